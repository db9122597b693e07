package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// ErrTooLarge is returned by ReadAll for an object above its limit.
var ErrTooLarge = errors.New("object larger than allowed")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BytesBody is a body of bytes in memory. The caller does not change p until Put has returned.
func BytesBody(p []byte) Body {
	return Body{R: bytes.NewReader(p), Size: int64(len(p)), CRC32C: crc32.Checksum(p, castagnoli)}
}

// FileBody is the body [0, size) of r, whose CRC-32C the caller has computed while writing it.
// r must give the same bytes each time it is read until Put has returned.
func FileBody(r io.ReaderAt, size int64, crc32c uint32) Body {
	return Body{R: r, Size: size, CRC32C: crc32c}
}

// Reader returns a new reader of the whole body.
func (b Body) Reader() *io.SectionReader {
	if b.R == nil {
		return io.NewSectionReader(bytes.NewReader(nil), 0, 0)
	}
	return io.NewSectionReader(b.R, 0, b.Size)
}

// Bytes returns a copy of the body, or ErrChecksum if it is not what its length and CRC-32C say.
func (b Body) Bytes() ([]byte, error) {
	if b.Size < 0 {
		return nil, fmt.Errorf("body of %d bytes: %w", b.Size, ErrChecksum)
	}
	p := make([]byte, b.Size)
	if _, err := io.ReadFull(b.Reader(), p); err != nil {
		return nil, fmt.Errorf("read body of %d bytes: %w", b.Size, err)
	}
	if got := crc32.Checksum(p, castagnoli); got != b.CRC32C {
		return nil, fmt.Errorf("body has CRC-32C %08x, announced was %08x: %w", got, b.CRC32C, ErrChecksum)
	}
	return p, nil
}

// ReadAll returns the whole object, or ErrTooLarge if it has more than limit bytes. It never allocates more than
// about twice limit, whatever the store claims. The Info has what the answer told; its Key and Size are always set.
func ReadAll(ctx context.Context, b Bucket, key string, limit int64) ([]byte, Info, error) {
	if limit < 0 || limit == math.MaxInt64 {
		return nil, Info{}, fmt.Errorf("read %s: limit %d out of range", key, limit)
	}
	// One byte more than allowed tells a full object from a longer one.
	r, err := b.Get(ctx, key, 0, limit+1)
	if err != nil {
		return nil, Info{}, err
	}
	defer r.Close()
	info, _ := InfoOf(r)
	var buf bytes.Buffer
	if info.Size > 0 && info.Size <= limit {
		buf.Grow(int(info.Size) + bytes.MinRead)
	}
	n, err := io.Copy(&buf, r)
	if err != nil {
		return nil, Info{}, fmt.Errorf("read %s: %w", key, err)
	}
	if n > limit || info.Size > limit {
		return nil, Info{}, fmt.Errorf("read %s: more than %d bytes: %w", key, limit, ErrTooLarge)
	}
	info.Key, info.Size = key, n
	return buf.Bytes(), info, nil
}
