// Package tier is one broker's archive engine: it uploads, commits manifests, reads archived offsets, retains and
// sweeps. No Kafka wire, no etcd. Rules: PROTOCOLS 1-3.
package tier

import (
	"context"
	"errors"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
)

// Source is the hot side of a partition that this broker leads. All methods may be called concurrently.
type Source interface {
	Log() *localseg.Log
	// Committed is the offset below which everything is replicated and of a decided transaction: min(HW, LSO).
	Committed() int64
	// SetLogStart raises the log start offset after total retention; it must not block on I/O for long.
	SetLogStart(offset int64) error
}

// Pin keeps a partition's entries from being doomed: a fork or a running restore refers to them.
type Pin struct {
	ID     string
	Reason string
}

// Pointer is the archive's part of a partition's record in the metadata store.
type Pointer struct {
	Manifest    string // key, "" before the first commit
	N           uint64
	Through     int64
	ThroughTime int64
	LeaderEpoch int32 // of the partition now
	Incarnation uint32
	Pins        []Pin
	Guard       int64 // mod revision of the record
	// Undeleted says that the topic was brought back, and that no leader has committed since. Commit clears it.
	Undeleted bool
}

// ErrConflict: the record changed since it was read; read it again (PROTOCOLS 1.5).
var ErrConflict = errors.New("partition record changed")

// Pointers is where pointers are committed. Any error but ErrConflict leaves the outcome unknown: Load again.
type Pointers interface {
	Load(ctx context.Context, p manifest.PartitionID) (Pointer, error)
	// Commit moves the pointer if the record's mod revision is still old.Guard, and its incarnation this cluster's.
	// It returns the pointer as stored, with its new Guard.
	Commit(ctx context.Context, p manifest.PartitionID, old, next Pointer) (Pointer, error)
	// CommitDeleted is Commit for a partition of a deleted topic: ErrConflict, too, if the topic is not deleted any more.
	CommitDeleted(ctx context.Context, p manifest.PartitionID, old, next Pointer) (Pointer, error)
	// ElectDeleted gives the record of a partition of a deleted topic the next leader epoch, if nothing in it has changed since old was read.
	// Who had an epoch before is fenced. It returns the pointer as stored; errors are CommitDeleted's.
	ElectDeleted(ctx context.Context, p manifest.PartitionID, old Pointer) (Pointer, error)
}
