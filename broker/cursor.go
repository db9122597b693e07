package broker

import (
	"encoding/binary"
	"errors"
)

// errMalformed says: the bytes are no request of this API and version.
var errMalformed = errors.New("malformed request")

// cursor reads Kafka's primitive types from bytes that it aliases. After the first failure everything reads as zero and ok is
// false; a length is checked against what remains before it is used.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad, c.b = true, nil
		return nil
	}
	b := c.b[:n:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) int16() int16 {
	if b := c.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (c *cursor) int32() int32 {
	if b := c.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (c *cursor) uvarint() int {
	v, n := binary.Uvarint(c.b)
	if n <= 0 || n > 5 || v > 1<<31 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[n:]
	return int(v)
}

// length reads the length of an array or of bytes; -1 is null.
func (c *cursor) length(flexible bool) int {
	if flexible {
		return c.uvarint() - 1
	}
	return int(c.int32())
}

// bytes reads nullable bytes; nil for null.
func (c *cursor) bytes(flexible bool) []byte {
	n := c.length(flexible)
	if n < 0 { // any negative one is null, as Kafka reads it
		return nil
	}
	return c.take(n)
}

// string reads a nullable string as bytes; nil for null.
func (c *cursor) string(flexible bool) []byte {
	n := 0
	if flexible {
		n = c.uvarint() - 1
	} else {
		n = int(c.int16())
	}
	if n < 0 { // any negative one is null, as Kafka reads it
		return nil
	}
	return c.take(n)
}

// tags skips a tag buffer (KIP-482).
func (c *cursor) tags() {
	for n := c.uvarint(); n > 0 && !c.bad; n-- {
		c.uvarint()
		c.take(c.uvarint())
	}
}

// Appending: the same types, other way.

func appendLength(dst []byte, n int, flexible bool) []byte {
	if flexible {
		return binary.AppendUvarint(dst, uint64(n+1))
	}
	return binary.BigEndian.AppendUint32(dst, uint32(int32(n)))
}

func appendString(dst []byte, s string, flexible bool) []byte {
	if flexible {
		dst = binary.AppendUvarint(dst, uint64(len(s)+1))
	} else {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	}
	return append(dst, s...)
}

func appendNullableString(dst []byte, s *string, flexible bool) []byte {
	if s != nil {
		return appendString(dst, *s, flexible)
	}
	if flexible {
		return append(dst, 0)
	}
	return append(dst, 0xff, 0xff)
}

func appendInt16(dst []byte, v int16) []byte { return binary.BigEndian.AppendUint16(dst, uint16(v)) }
func appendInt32(dst []byte, v int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(v)) }
func appendInt64(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }

// appendNoTags ends a flexible structure without tagged fields.
func appendNoTags(dst []byte, flexible bool) []byte {
	if flexible {
		return append(dst, 0)
	}
	return dst
}
