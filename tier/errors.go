package tier

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/manifest"
)

// Errors that callers branch on.
var (
	// ErrFenced: another leader epoch, or another incarnation, owns the partition's archive. Stop for good.
	ErrFenced = errors.New("partition's archive belongs to a newer leader")
	// ErrResigned: Resign was called.
	ErrResigned = errors.New("no longer leader of the partition")
	// ErrBehind: the metadata store does not show this leader epoch yet. Try again.
	ErrBehind = errors.New("metadata store is behind this leader epoch")
	// ErrLeaseLapsed: an attached archive may not be read until its lease is renewed. Try again.
	ErrLeaseLapsed = errors.New("lease on the attached archive has lapsed")
	// ErrNotOurs: the bucket holds something else than an archive of this cluster.
	ErrNotOurs = errors.New("bucket is not an archive of this cluster")
	// ErrNotSealed: the archive was created, but never opened to the end.
	ErrNotSealed = errors.New("archive has no sealed incarnation")
	// ErrNewerFormat: a newer varve wrote the archive.
	ErrNewerFormat = errors.New("archive has a newer format")
	// ErrTopicLive: the topic is not, or no longer, deleted.
	ErrTopicLive = errors.New("topic is not deleted")
	// ErrNewerClaim: a restore has claimed a newer incarnation; this one collects nothing any more.
	ErrNewerClaim = errors.New("a newer incarnation is claimed")
)

// CorruptError names bytes in the object store that are not what was written.
type CorruptError struct {
	Archive string // "" for the cluster's own
	Object  string
	Chunk   int32 // -1: not in a chunk
	Err     error
}

func (e *CorruptError) Error() string {
	where := e.Object
	if e.Archive != "" {
		where = e.Archive + ":" + e.Object
	}
	if e.Chunk >= 0 {
		return fmt.Sprintf("object %s: corrupt in chunk %d: %v", where, e.Chunk, e.Err)
	}
	return fmt.Sprintf("object %s: corrupt: %v", where, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// ManifestError: the manifest behind a partition's pointer is missing, unreadable or of another partition. It is never
// taken for a fresh start: what the partition has in the archive is unknown.
type ManifestError struct {
	Partition manifest.PartitionID
	Key       string
	Err       error
}

func (e *ManifestError) Error() string {
	return fmt.Sprintf("partition %s-%d: manifest %s behind its pointer: %v", e.Partition.Topic, e.Partition.Partition, e.Key, e.Err)
}

func (e *ManifestError) Unwrap() error { return e.Err }

// DivergedError: below the archived-through offset the local log differs from the archive, or ends before it. The archive
// wins (PROTOCOLS 1.6): the caller empties the log, starts it at StartState, and leads again.
type DivergedError struct {
	Partition manifest.PartitionID
	At        int64 // first offset where the two differ
	Through   int64
	Reason    string
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("partition %s-%d: local log diverges from the archive at offset %d (archived through %d): %s",
		e.Partition.Topic, e.Partition.Partition, e.At, e.Through, e.Reason)
}
