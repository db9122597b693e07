// Package localseg is one partition's local log: segments, sparse indexes, leader epochs, producer states, crash
// recovery, truncation and retention, byte for byte in Kafka's own format. It knows neither replication nor archive.
package localseg

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/record"
)

// Errors that callers branch on.
var (
	ErrOffsetOutOfRange   = errors.New("offset out of range")                   // below log start or above LEO
	ErrBelowLocal         = errors.New("offset is below the local log")         // at or above log start, but only the archive has it
	ErrOutOfOrderSequence = errors.New("sequence number out of order")          // idempotent producer
	ErrInvalidEpoch       = errors.New("producer epoch is old")                 // INVALID_PRODUCER_EPOCH
	ErrUnknownProducer    = errors.New("producer id unknown to this partition") // UNKNOWN_PRODUCER_ID
	ErrTooLarge           = errors.New("batches exceed the segment size")       // RECORD_LIST_TOO_LARGE
	ErrOffline            = errors.New("log is offline after a disk error")     // KAFKA_STORAGE_ERROR
	ErrClosed             = errors.New("log is closed")
)

// Origin says who appends.
type Origin uint8

const (
	OriginClient   Origin = iota // offsets are assigned; sequences are checked
	OriginInternal               // coordinators: offsets assigned, control batches allowed
	OriginReplica                // a follower: offsets, epochs and timestamps are kept as they are
)

// Config is what a topic's configuration tells the log. Zero values mean Kafka's defaults, so a limit of zero is to be
// given as 1; -1 is "no limit" where Kafka says so. It may be replaced at run time with SetConfig.
type Config struct {
	SegmentBytes        int64 // segment.bytes
	SegmentMs           int64 // segment.ms
	SegmentJitterMs     int64 // segment.jitter.ms
	IndexIntervalBytes  int64 // index.interval.bytes
	SegmentIndexBytes   int64 // segment.index.bytes
	RetentionMs         int64 // retention.ms
	RetentionBytes      int64 // retention.bytes
	LocalRetentionMs    int64 // local.retention.ms, -2 = as retention.ms
	LocalRetentionBytes int64 // local.retention.bytes, -2 = as retention.bytes
	FlushMessages       int64 // flush.messages
	FlushMs             int64 // flush.ms
	FileDeleteDelayMs   int64 // file.delete.delay.ms
	MaxMessageBytes     int64 // max.message.bytes (checked by the caller; here the segment bound)
	Compact, Delete     bool  // cleanup.policy
	Tiered              bool  // remote.storage.enable: local data goes only below archived-through
	CopyDisabled        bool  // remote.log.copy.disable: nothing more is archived, retention.* holds here
	Preallocate         bool  // preallocate: accepted, without effect: files have exactly the bytes that were appended
	LogAppendTime       bool  // message.timestamp.type=LogAppendTime
	ProducerExpiryMs    int64 // producer.id.expiration.ms
}

// Appended is the outcome of one Append. Offsets are of the first and the last record, inclusive.
type Appended struct {
	First, Last int64
	AppendTime  int64 // ms; the broker's clock, never below the previous one of this log
	LogStart    int64
	Duplicate   bool // the producer's sequence was already here; First and Last are the original ones
	Rolled      bool // a segment was closed by this call
}

// SegmentInfo is one segment, [Base, End), End the base offset of the next one or the LEO.
type SegmentInfo struct {
	Base, End       int64
	SizeBytes       int64
	MaxTimestamp    int64
	FirstAppendTime int64 // ms; -1 when empty
	LastAppendTime  int64
	Active          bool // still appended to
}

// What a log knows about its records beside their bytes; the archive keeps the same.
type (
	Epoch      = record.Epoch
	AppendTime = record.AppendTime
	AbortedTxn = record.AbortedTxn
)

// TimestampOffset is the answer of a look-up by time. Offset -1 and Timestamp -1 when there is none.
type TimestampOffset struct {
	Timestamp   int64
	Offset      int64
	LeaderEpoch int32
}

// CorruptError names bad bytes on disk.
type CorruptError struct {
	File   string
	Pos    int64
	Reason error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: corrupt at byte %d: %v", e.File, e.Pos, e.Reason)
}
func (e *CorruptError) Unwrap() error { return e.Reason }

var _ vfs.FS
