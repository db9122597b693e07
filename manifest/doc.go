// Package manifest is what is in the bucket, as values: keys, segment footers, manifests and edits, topic records,
// claims, seals and leases. No I/O, no goroutine, no clock. Formats are in format.md.
//
// tier and recovery call it. Values are plain: nothing here is safe for concurrent change, everything for concurrent
// reading. Decoders take hostile bytes: they return *CorruptError or ErrUnsupported, never panic, and allocate no more
// than a small multiple of what they were given. Encoders assert what decoders check, since a manifest that cannot be
// read back is worse than a crash.
package manifest
