package manifest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/varvelog/varve/internal/invariants"
)

// Every binary object begins with an envelope of 16 bytes that stays the same in all versions, so that damage and a
// newer format can be told apart: magic, version, kept-zero, length of the body, CRC-32C of those 12 bytes and the body.
const envelopeLen = 16

type magic [4]byte

var (
	magicManifest = magic{'V', 'V', 'M', 'F'}
	magicGroup    = magic{'V', 'V', 'G', 'R'}
	magicFooter   = magic{'V', 'V', 'F', 'T'}
	magicTrailer  = magic{'V', 'V', 'S', 'G'}
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encoder appends fixed-width big-endian fields behind an envelope that finish fills in.
type encoder struct{ b []byte }

func newEncoder(m magic, version uint16, sizeHint int) *encoder {
	b := make([]byte, envelopeLen, envelopeLen+sizeHint)
	copy(b, m[:])
	binary.BigEndian.PutUint16(b[4:], version)
	return &encoder{b}
}

func (e *encoder) finish() []byte {
	body := len(e.b) - envelopeLen
	invariants.Assert(body <= math.MaxUint32, "body of %d bytes", body)
	binary.BigEndian.PutUint32(e.b[8:], uint32(body))
	binary.BigEndian.PutUint32(e.b[12:], envelopeCRC(e.b))
	return e.b
}

func crc32c(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func envelopeCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[envelopeLen:])
}

func (e *encoder) u8(v uint8)   { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16) { e.b = binary.BigEndian.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32) { e.b = binary.BigEndian.AppendUint32(e.b, v) }
func (e *encoder) u64(v uint64) { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *encoder) i32(v int32)  { e.u32(uint32(v)) }
func (e *encoder) i64(v int64)  { e.u64(uint64(v)) }
func (e *encoder) raw(v []byte) { e.b = append(e.b, v...) }

func (e *encoder) str(s string) {
	invariants.Assert(len(s) <= math.MaxUint16, "string of %d bytes", len(s))
	e.u16(uint16(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) bytes(v []byte) {
	invariants.Assert(len(v) <= math.MaxUint32, "field of %d bytes", len(v))
	e.u32(uint32(len(v)))
	e.raw(v)
}

// decoder reads the body of an envelope. The first fault sticks; reads after it give zeros and allocate nothing.
type decoder struct {
	b   []byte // with the envelope, so that positions are positions in the object
	off int
	err error
}

// openEnvelope checks magic, length and CRC, then the version: a sound object of a newer version is ErrUnsupported.
func openEnvelope(b []byte, m magic, version uint16) (*decoder, error) {
	if len(b) < envelopeLen {
		return nil, corruptf(len(b), "%d bytes are too few for an envelope", len(b))
	}
	if magic(b[:4]) != m {
		return nil, corruptf(0, "magic %q, want %q", b[:4], m[:])
	}
	if n := binary.BigEndian.Uint32(b[8:]); uint64(n) != uint64(len(b)-envelopeLen) {
		return nil, corruptf(8, "length %d, but %d bytes follow", n, len(b)-envelopeLen)
	}
	if got, want := envelopeCRC(b), binary.BigEndian.Uint32(b[12:]); got != want {
		return nil, corruptf(12, "CRC-32C %08x, want %08x", got, want)
	}
	switch v := binary.BigEndian.Uint16(b[4:]); {
	case v == 0:
		return nil, corruptf(4, "version 0")
	case v > version:
		return nil, fmt.Errorf("%s version %d, known up to %d: %w", m[:], v, version, ErrUnsupported)
	}
	if z := binary.BigEndian.Uint16(b[6:]); z != 0 {
		return nil, corruptf(6, "reserved field is %d", z)
	}
	return &decoder{b: b, off: envelopeLen}, nil
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = corruptf(d.off, format, args...)
	}
}

// close reports the first fault, or bytes left over.
func (d *decoder) close() error {
	if d.err == nil && d.off != len(d.b) {
		d.fail("%d bytes left over", len(d.b)-d.off)
	}
	return d.err
}

// next returns the next n bytes in place, nil after a fault.
func (d *decoder) next(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.b)-d.off {
		d.fail("need %d bytes, have %d", n, len(d.b)-d.off)
		return nil
	}
	b := d.b[d.off : d.off+n]
	d.off += n
	return b
}

func (d *decoder) u8() uint8 {
	if b := d.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.next(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.next(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.next(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) i32() int32 { return int32(d.u32()) }
func (d *decoder) i64() int64 { return int64(d.u64()) }

func (d *decoder) str() string { return string(d.next(int(d.u16()))) }

func (d *decoder) sum() (s [32]byte) {
	copy(s[:], d.next(32))
	return s
}

// field returns a copy of a length-prefixed field, nil if it is empty.
func (d *decoder) field() []byte {
	n := d.u32()
	if d.err == nil && uint64(n) > uint64(len(d.b)-d.off) {
		d.fail("field of %d bytes, %d remain", n, len(d.b)-d.off)
	}
	if d.err != nil || n == 0 {
		return nil
	}
	return append([]byte(nil), d.next(int(n))...)
}

// count reads the number of elements that follow, each of at least size bytes: more than fit is a fault, before anything
// is allocated for them.
func (d *decoder) count(size int) int {
	n := d.u32()
	if d.err == nil && uint64(n)*uint64(size) > uint64(len(d.b)-d.off) {
		d.fail("%d elements of %d bytes, %d remain", n, size, len(d.b)-d.off)
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}
