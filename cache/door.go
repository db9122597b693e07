// Package cache is a read-through chunk cache: memory, then disk, one fill per chunk at a time, a byte budget for all.
package cache

// Key names a chunk for ever: objects are immutable and their keys never reused.
type Key struct {
	Archive string // id of the archive
	Object  string
	Chunk   int32
}
