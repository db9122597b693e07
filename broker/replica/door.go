// Package replica joins one partition's log, high watermark, archive and waiters, and manages all partitions of a broker.
// The rules of replication are a pure core; files, metadata and archive are the shell around it. No Kafka wire here.
package replica

import (
	"errors"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

// Errors that handlers map to Kafka's codes.
var (
	ErrUnknownPartition = errors.New("unknown topic or partition")    // UNKNOWN_TOPIC_OR_PARTITION
	ErrUnknownTopicID   = errors.New("unknown topic id")              // UNKNOWN_TOPIC_ID
	ErrNotLeader        = errors.New("not leader of partition")       // NOT_LEADER_OR_FOLLOWER
	ErrFencedEpoch      = errors.New("leader epoch is old")           // FENCED_LEADER_EPOCH
	ErrUnknownEpoch     = errors.New("leader epoch is not known yet") // UNKNOWN_LEADER_EPOCH
	ErrNotEnough        = errors.New("fewer in-sync replicas than min.insync.replicas")
	ErrNotEnoughAfter   = errors.New("appended, but fewer in-sync replicas are left than min.insync.replicas")
	ErrUnsettled        = errors.New("high watermark is below the start of the leader epoch")       // OFFSET_NOT_AVAILABLE
	ErrInArchive        = errors.New("offset is in the archive alone")                              // OFFSET_MOVED_TO_TIERED_STORAGE
	ErrNotReplica       = errors.New("broker is not a replica of the partition")                    // REPLICA_NOT_AVAILABLE
	ErrStaleBroker      = errors.New("broker epoch is old")                                         // STALE_BROKER_EPOCH
	ErrArchiveBehind    = errors.New("archive.local.max.bytes reached while the archive is behind") // retriable
	ErrArchive          = errors.New("archive cannot be read now")                                  // retriable
	ErrNotAvailable     = errors.New("partition is still loading")                                  // LEADER_NOT_AVAILABLE-like, retriable
)

// Isolation is the reader's isolation level.
type Isolation int8

const (
	ReadUncommitted Isolation = 0
	ReadCommitted   Isolation = 1
)

// Slice is what one read of a partition found: either Hot (a file range) or Cold parts, or nothing.
type Slice struct {
	Hot  localseg.Span
	Cold [][]byte // archived batches, written in order
	Size int
	Base int64
	Next int64

	HighWatermark int64
	LastStable    int64
	LogStart      int64
	Aborted       []record.AbortedTxn // only for ReadCommitted
	Appended      []record.AppendTime // only for followers

	release func()
}

// Release gives the bytes back; call once, when they have been written.
func (s *Slice) Release() {
	if s.Hot.File != nil {
		s.Hot.Release()
		s.Hot = localseg.Span{}
	}
	if s.release != nil {
		s.release()
		s.release = nil
	}
}

// TopicPartition is how handlers name a partition before they know it.
type TopicPartition struct {
	Topic     string
	ID        manifest.TopicID // zero: by name
	Partition int32
}
