package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrCorrupt says that bytes are not what they should be; ErrUnsupported, that they are of a version that is not known.
var (
	ErrCorrupt     = errors.New("corrupt record of __consumer_offsets")
	ErrUnsupported = errors.New("unsupported record of __consumer_offsets")
)

// reader takes Kafka's primitive types off b. The first fault sticks; all that is read after it is zero.
type reader struct {
	b        []byte
	flexible bool // compact lengths and tagged fields (KIP-482)
	bad      bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *reader) uvarint() int {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || n > 5 || v > math.MaxInt32 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

// length reads that of a string (2 bytes) or of bytes and arrays (4), or a compact one; -1 is null.
func (r *reader) length(width int) int {
	switch {
	case r.flexible:
		return r.uvarint() - 1
	case width == 2:
		return int(r.int16())
	}
	return int(r.int32())
}

// string takes null for "".
func (r *reader) string() string {
	n := r.length(2)
	if n == -1 {
		return ""
	}
	return string(r.take(n))
}

// bytes copies; null is nil.
func (r *reader) bytes() []byte {
	n := r.length(4)
	if n == -1 {
		return nil
	}
	return append([]byte{}, r.take(n)...)
}

// count reads the length of an array whose entries take at least min bytes each.
func (r *reader) count(min int) int {
	n := r.length(4)
	if n == -1 {
		return 0
	}
	if n < 0 || n > len(r.b)/min {
		r.bad = true
		return 0
	}
	return n
}

// tags skips tagged fields, but for those that known takes.
func (r *reader) tags(known func(tag int, b []byte)) {
	if !r.flexible {
		return
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		tag := r.uvarint()
		b := r.take(r.uvarint())
		if !r.bad && known != nil {
			known(tag, b)
		}
	}
}

func (r *reader) err(what string) error {
	if r.bad {
		return fmt.Errorf("decode %s: %w", what, ErrCorrupt)
	}
	return nil
}

// fits tells if s can be written with a 2-byte length.
func fits(ss ...string) bool {
	for _, s := range ss {
		if len(s) > math.MaxInt16 {
			return false
		}
	}
	return true
}

func appendInt16(b []byte, v int16) []byte { return binary.BigEndian.AppendUint16(b, uint16(v)) }
func appendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func appendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

func appendString(b []byte, s string) []byte { return append(appendInt16(b, int16(len(s))), s...) }

// appendNullable writes "" as null.
func appendNullable(b []byte, s string) []byte {
	if s == "" {
		return appendInt16(b, -1)
	}
	return appendString(b, s)
}

func appendBytes(b, v []byte) []byte { return append(appendInt32(b, int32(len(v))), v...) }

func appendCompact(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))+1), s...)
}
