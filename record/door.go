// Package record is record batch v2 (magic 2, KIP-98) as bytes: validate, walk, stamp, build, compress, markers.
// Nothing is decoded on hot paths. No I/O, no goroutine, no clock.
//
// The broker validates what clients produce, the log checks and stamps what it stores, the archive and the restore walk
// and cut what they read. The byte table is in format.md. All functions are safe for concurrent use on different batches;
// the Set methods and Validate write to the batch they are given.
package record

// Batch is the bytes of exactly one record batch, header and records, as on the wire and on disk. Its accessors read the
// header in place and panic on fewer than HeaderSize bytes: take a Batch from Next, Build or Validate, or Check it first.
type Batch []byte
