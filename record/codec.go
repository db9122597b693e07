package record

import (
	"fmt"
	"io"
	"sync"
)

// Codec is how the records of a batch are compressed, as in the attributes.
type Codec uint8

// The codecs of batch v2; there are no others.
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2 // in the xerial framing, as Java writes it
	LZ4    Codec = 3 // one frame of independent blocks
	Zstd   Codec = 4
)

// String is Kafka's name of the codec in compression.type.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", uint8(c))
}

// decompress appends the decompressed src to dst, which has length 0; the result may use dst's memory, also on error. Memory grows with what
// src really decompresses to, not with the sizes it claims, and never beyond limit (plus a byte).
//
// ErrTooLarge beyond the limit, ErrUnsupported for an unknown codec; other errors wrap none of the sentinels.
func (c Codec) decompress(dst, src []byte, limit int) ([]byte, error) {
	switch c {
	case None:
		if len(src) > limit {
			return dst, ErrTooLarge
		}
		return append(dst, src...), nil
	case Gzip:
		return gunzip(dst, src, limit)
	case Snappy:
		return unsnappy(dst, src, limit)
	case LZ4:
		return unlz4(dst, src, limit)
	case Zstd:
		return unzstd(dst, src, limit)
	}
	return dst, fmt.Errorf("%s: %w", c, ErrUnsupported)
}

// compress appends the compressed src to dst. level is the codec's own, as in Kafka's compression.<codec>.level; 0 is the
// default, and so is what the codec does not know.
func (c Codec) compress(dst, src []byte, level int) ([]byte, error) {
	switch c {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return gzipTo(dst, src, level)
	case Snappy:
		return snappyTo(dst, src), nil
	case LZ4:
		return lz4To(dst, src, level)
	case Zstd:
		return zstdTo(dst, src, level)
	}
	return dst, fmt.Errorf("%s: %w", c, ErrUnsupported)
}

// Buffers above maxPooled are left to the garbage collector, so that one huge batch does not stay in memory.
const (
	minGrow   = 64 << 10
	maxPooled = 4 << 20
)

// scratch is a pooled buffer.
type scratch struct{ b []byte }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func newScratch() *scratch { return scratches.Get().(*scratch) }

// free gives the buffer back; s may be nil.
func (s *scratch) free() {
	if s == nil {
		return
	}
	if cap(s.b) > maxPooled {
		s.b = nil
	}
	scratches.Put(s)
}

// room makes space for n more bytes in b, at least doubling it where it has to move, within limit bytes in all. False if
// they do not fit in the limit.
func room(b []byte, n, limit int) ([]byte, bool) {
	need := len(b) + n
	if need > limit {
		return b, false
	}
	if need <= cap(b) {
		return b, true
	}
	grown := make([]byte, len(b), min(limit, max(need, 2*cap(b), minGrow)))
	copy(grown, b)
	return grown, true
}

// readAll appends all of r to dst, which has length 0, up to limit bytes.
func readAll(dst []byte, r io.Reader, limit int) ([]byte, error) {
	for {
		if len(dst) > limit {
			return dst, ErrTooLarge
		}
		if len(dst) == cap(dst) {
			dst, _ = room(dst, 1, limit+1)
		}
		n, err := r.Read(dst[len(dst):min(cap(dst), limit+1)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			if len(dst) > limit {
				return dst, ErrTooLarge
			}
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}
