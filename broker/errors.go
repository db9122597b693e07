package broker

import (
	"context"
	"errors"
	"io/fs"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvelog/varve/broker/group"
	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
)

// errUnsupportedVersion says: this request asks for something that its version does not have.
var errUnsupportedVersion = errors.New("not in this version of the request")

// errInvalidTopic says: the name is not one that a topic may have, or that a client may write to.
var errInvalidTopic = errors.New("invalid topic")

// errInvalidRequest says: well formed, but makes no sense.
var errInvalidRequest = errors.New("invalid request")

// kafkaErrors maps what the packages below report to Kafka's codes: the only place where that is done. The first match wins.
var kafkaErrors = []struct {
	err  error
	code *kerr.Error
}{
	{group.ErrNotCoordinator, kerr.NotCoordinator},
	{group.ErrLoading, kerr.CoordinatorLoadInProgress},
	{group.ErrNotAvailable, kerr.CoordinatorNotAvailable},
	{group.ErrInvalidGroup, kerr.InvalidGroupID},
	{group.ErrGroupNotFound, kerr.GroupIDNotFound},
	{group.ErrGroupFull, kerr.GroupMaxSizeReached},
	{group.ErrNonEmptyGroup, kerr.NonEmptyGroup},
	{group.ErrSubscribed, kerr.GroupSubscribedToTopic},
	{group.ErrUnknownMember, kerr.UnknownMemberID},
	{group.ErrMemberIDRequired, kerr.MemberIDRequired},
	{group.ErrFencedInstance, kerr.FencedInstanceID},
	{group.ErrIllegalGeneration, kerr.IllegalGeneration},
	{group.ErrRebalanceInProgress, kerr.RebalanceInProgress},
	{group.ErrInconsistent, kerr.InconsistentGroupProtocol},
	{group.ErrSessionTimeout, kerr.InvalidSessionTimeout},
	{group.ErrInvalidRequest, kerr.InvalidRequest},
	{group.ErrMetadataTooLarge, kerr.OffsetMetadataTooLarge},
	{group.ErrRecordTooLarge, kerr.UnknownServerError},

	{replica.ErrUnknownPartition, kerr.UnknownTopicOrPartition},
	{replica.ErrUnknownTopicID, kerr.UnknownTopicID},
	{replica.ErrNotLeader, kerr.NotLeaderForPartition},
	{replica.ErrFencedEpoch, kerr.FencedLeaderEpoch},
	{replica.ErrUnknownEpoch, kerr.UnknownLeaderEpoch},
	{replica.ErrNotEnough, kerr.NotEnoughReplicas},
	{replica.ErrNotEnoughAfter, kerr.NotEnoughReplicasAfterAppend},
	{replica.ErrUnsettled, kerr.OffsetNotAvailable},
	{replica.ErrInArchive, kerr.OffsetMovedToTieredStorage},
	{replica.ErrNotReplica, kerr.ReplicaNotAvailable},
	{replica.ErrStaleBroker, kerr.StaleBrokerEpoch},
	{replica.ErrArchiveBehind, kerr.NotEnoughReplicas}, // retriable, and clients back off on it
	{replica.ErrArchive, kerr.KafkaStorageError},       // retriable: read again later
	{replica.ErrNotAvailable, kerr.LeaderNotAvailable},

	{localseg.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{localseg.ErrBelowLocal, kerr.OffsetOutOfRange},
	{localseg.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{localseg.ErrInvalidEpoch, kerr.InvalidProducerEpoch},
	{localseg.ErrUnknownProducer, kerr.UnknownProducerID},
	{localseg.ErrTooLarge, kerr.RecordListTooLarge},
	{localseg.ErrOffline, kerr.KafkaStorageError},
	{localseg.ErrClosed, kerr.NotLeaderForPartition},

	{record.ErrShort, kerr.CorruptMessage},
	{record.ErrCorrupt, kerr.CorruptMessage},
	{record.ErrUnsupported, kerr.UnsupportedForMessageFormat},
	{record.ErrInvalid, kerr.InvalidRecord},
	{record.ErrTooLarge, kerr.MessageTooLarge},
	{record.ErrTimestamp, kerr.InvalidTimestamp},

	{meta.ErrTopicExists, kerr.TopicAlreadyExists},
	{meta.ErrUnknownTopic, kerr.UnknownTopicOrPartition},
	{meta.ErrConflict, kerr.RequestTimedOut},
	{meta.ErrUnavailable, kerr.RequestTimedOut},

	{errUnsupportedVersion, kerr.UnsupportedVersion},
	{errInvalidTopic, kerr.InvalidTopicException},
	{errInvalidRequest, kerr.InvalidRequest},

	{context.DeadlineExceeded, kerr.RequestTimedOut},
	{context.Canceled, kerr.RequestTimedOut},
}

// code is the Kafka error code of err; 0 for nil. A *kerr.Error in the chain is its own code.
func code(err error) int16 {
	if err == nil {
		return 0
	}
	if k, ok := errors.AsType[*kerr.Error](err); ok {
		return k.Code
	}
	for _, m := range kafkaErrors {
		if errors.Is(err, m.err) {
			return m.code.Code
		}
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return kerr.KafkaStorageError.Code // the disk; clients try again, which they do not on UNKNOWN_SERVER_ERROR
	}
	return kerr.UnknownServerError.Code
}

// message is the text that goes with a code, nil for success.
func message(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	return &text
}
