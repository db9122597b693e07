package replica

import (
	"context"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

// Upstream asks other brokers for what they lead. Whoever knows the wire implements it.
//
// Each (leader, lane) is one connection with one request at a time; calls of different lanes run concurrently. An error is of the whole
// request: the connection is gone, and with it the session. When ctx ends the connection is given up.
type Upstream interface {
	// Fetch sends req and waits for its answer. Records in it are valid until the next Fetch of the same lane.
	Fetch(ctx context.Context, leader int32, lane int, req *FetchRequest) (*FetchAnswer, error)
}

// FetchRequest is one Fetch of a follower, in an incremental session (KIP-227): Parts are those that the leader does not know yet as
// they are now.
type FetchRequest struct {
	BrokerEpoch  int64
	Session      int32 // 0: none yet
	SessionEpoch int32 // 0: make one
	MaxWait      time.Duration
	MinBytes     int
	MaxBytes     int
	Parts        []FetchPart
	Forgotten    []manifest.PartitionID
}

// FetchPart is a partition to be fetched.
type FetchPart struct {
	ID           manifest.PartitionID
	Epoch        int32 // the leader epoch that the follower knows
	Offset       int64
	FetchedEpoch int32 // of the record before Offset; -1: none
	LogStart     int64
	MaxBytes     int
}

// FetchAnswer is what the leader says. Of a session it has only the partitions of which there is something to say.
type FetchAnswer struct {
	Session int32
	Err     error // of the session: begin a new one
	Parts   []FetchedPart
}

// FetchedPart is the answer for a partition. With Err, or diverging, there are no Records.
type FetchedPart struct {
	ID       manifest.PartitionID
	Err      error // ErrNotLeader, ErrFencedEpoch, ErrUnknownEpoch, ErrInArchive, localseg.ErrOffsetOutOfRange, ...
	HW       int64
	LogStart int64
	LogEnd   int64 // only with localseg.ErrOffsetOutOfRange; -1: not told
	Records  []byte
	Appended []record.AppendTime // when the leader appended Records, by its clock; nil: not told

	Diverging      bool // the log has other records than the leader's
	DivergingEpoch int32
	DivergingEnd   int64
}
