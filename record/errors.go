package record

import (
	"errors"
	"fmt"
)

// What callers branch on. Every error of the package wraps exactly one of these, and tells the batch, the byte position
// in it and the reason.
var (
	ErrShort       = errors.New("batch is cut short") // torn: the size field says more than is there
	ErrCorrupt     = errors.New("corrupt batch")
	ErrUnsupported = errors.New("unsupported batch version or codec")
	ErrInvalid     = errors.New("invalid record")                      // well formed but not acceptable: INVALID_RECORD
	ErrTooLarge    = errors.New("batch larger than max.message.bytes") // or more than the limit once decompressed
	ErrTimestamp   = errors.New("timestamp out of the accepted range") // INVALID_TIMESTAMP
)

// fail names the batch by its base offset, the byte in it and the reason. b may be shorter than a header.
func fail(kind error, b []byte, at int, format string, args ...any) error {
	reason := fmt.Sprintf(format, args...)
	if len(b) < 8 {
		return fmt.Errorf("batch of %d bytes: byte %d: %s: %w", len(b), at, reason, kind)
	}
	return fmt.Errorf("batch at offset %d: byte %d: %s: %w", Batch(b).BaseOffset(), at, reason, kind)
}

// failRecord is fail for the i-th record; at counts in the decompressed records.
func failRecord(kind error, b Batch, i int32, at int, reason string) error {
	return fmt.Errorf("batch at offset %d: record %d at byte %d of the records: %s: %w", b.BaseOffset(), i, at, reason, kind)
}

// failCodec keeps the sentinel of a decompression error, and gives it kind where it has none.
func failCodec(kind error, b Batch, err error) error {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("batch at offset %d: decompress %s: %w", b.BaseOffset(), b.Codec(), err)
	}
	return fmt.Errorf("batch at offset %d: decompress %s: %v: %w", b.BaseOffset(), b.Codec(), err, kind)
}
