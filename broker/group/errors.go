package group

import "errors"

// What a request may be refused with; the caller maps them to Kafka's codes.
var (
	ErrNotCoordinator      = errors.New("not the coordinator of this group")               // NOT_COORDINATOR
	ErrLoading             = errors.New("coordinator is loading")                          // COORDINATOR_LOAD_IN_PROGRESS
	ErrNotAvailable        = errors.New("coordinator not available")                       // COORDINATOR_NOT_AVAILABLE, retriable
	ErrInvalidGroup        = errors.New("invalid group id")                                // INVALID_GROUP_ID
	ErrGroupNotFound       = errors.New("group not found")                                 // GROUP_ID_NOT_FOUND
	ErrGroupFull           = errors.New("group.max.size reached")                          // GROUP_MAX_SIZE_REACHED
	ErrNonEmptyGroup       = errors.New("group is not empty")                              // NON_EMPTY_GROUP
	ErrSubscribed          = errors.New("group is subscribed to the topic")                // GROUP_SUBSCRIBED_TO_TOPIC
	ErrUnknownMember       = errors.New("unknown member id")                               // UNKNOWN_MEMBER_ID
	ErrMemberIDRequired    = errors.New("join again with the member id given")             // MEMBER_ID_REQUIRED
	ErrFencedInstance      = errors.New("instance id is held by another member")           // FENCED_INSTANCE_ID
	ErrIllegalGeneration   = errors.New("not the generation of the group")                 // ILLEGAL_GENERATION
	ErrRebalanceInProgress = errors.New("rebalance in progress")                           // REBALANCE_IN_PROGRESS
	ErrInconsistent        = errors.New("protocol type or protocols do not fit the group") // INCONSISTENT_GROUP_PROTOCOL
	ErrSessionTimeout      = errors.New("session timeout out of the allowed range")        // INVALID_SESSION_TIMEOUT
	ErrInvalidRequest      = errors.New("request has a name that is too long")             // INVALID_REQUEST
	ErrMetadataTooLarge    = errors.New("offset metadata too large")                       // OFFSET_METADATA_TOO_LARGE
	ErrRecordTooLarge      = errors.New("group does not fit into a record")                // UNKNOWN_SERVER_ERROR
)
