// Package record is record batch v2 (magic 2, KIP-98) as bytes: validate, walk, stamp, build, compress, markers.
// Nothing is decoded on hot paths. No I/O, no goroutine, no clock.
package record

// Batch is the bytes of exactly one record batch, header and records, as on the wire and on disk.
type Batch []byte
