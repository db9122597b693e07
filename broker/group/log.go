package group

import "context"

// Logs opens partitions of __consumer_offsets that this broker leads.
type Logs interface {
	// Open may wait until ctx ends for the partition to be there. ErrNotCoordinator: this broker does not lead it in that epoch.
	Open(ctx context.Context, partition, leaderEpoch int32) (Log, error)
}

// Log is one partition of __consumer_offsets in one leader epoch. Append has one caller at a time; the others may be called with it.
// ErrNotCoordinator from any method ends the use of the log: the partition has another leader.
type Log interface {
	// Bounds are the log start offset and the log end offset.
	Bounds() (start, end int64)
	// Read calls f for the committed entries from off on, as many as it likes but one if there is one, and returns the offset after
	// the last. The bytes are only valid during the call of f.
	Read(ctx context.Context, off int64, f func(Entry)) (next int64, err error)
	// Append writes records with consecutive offsets, from base on. With an error none will ever be read.
	Append(nowMs int64, records []Record) (base int64, err error)
	// WaitCommitted returns when the high watermark is above off, or with an error when that cannot be told any more.
	WaitCommitted(ctx context.Context, off int64) error
}

// Entry is what one offset of the log holds: a record, or the marker that ends a transaction.
type Entry struct {
	Offset   int64
	Producer int64 // of the transaction, -1: none
	Marker   Marker
	Record   Record
}

// Marker ends a transaction.
type Marker uint8

const (
	NoMarker Marker = iota
	CommitMarker
	AbortMarker
)
