// Package cache is a read-through chunk cache: memory, then disk, one fill per chunk at a time, a byte budget for all.
//
// It knows keys and bytes; what they mean and where they come from is in the fill that the caller hands in. tier reads
// archived segments through it. The disk tier holds copies only: its files carry checksums, whatever is wrong with one is a
// miss, and nothing is synced. It is taken over at the next start.
package cache

// Key names a chunk for ever: objects are immutable and their keys never reused.
type Key struct {
	Archive string // id of the archive
	Object  string
	Chunk   int32
}
