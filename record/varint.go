package record

import "math/bits"

// varint32 decodes a zigzag varint of at most five bytes at p[i:]. The second result is the position after it, negative
// if there is none: bytes missing, or more than 32 bits.
func varint32(p []byte, i int) (int32, int) {
	if uint(i) < uint(len(p)) && p[i] < 0x80 {
		c := int32(p[i])
		return c>>1 ^ -(c & 1), i + 1
	}
	return varint32Slow(p, i)
}

func varint32Slow(p []byte, i int) (int32, int) {
	var u uint32
	for shift := 0; shift < 35 && i < len(p); shift += 7 {
		c := p[i]
		i++
		if shift == 28 && c > 0x0f {
			return 0, -1
		}
		u |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return int32(u>>1) ^ -int32(u&1), i
		}
	}
	return 0, -1
}

// varint64 is varint32 for at most ten bytes and 64 bits.
func varint64(p []byte, i int) (int64, int) {
	if uint(i) < uint(len(p)) && p[i] < 0x80 {
		c := int64(p[i])
		return c>>1 ^ -(c & 1), i + 1
	}
	return varint64Slow(p, i)
}

func varint64Slow(p []byte, i int) (int64, int) {
	var u uint64
	for shift := 0; shift < 70 && i < len(p); shift += 7 {
		c := p[i]
		i++
		if shift == 63 && c > 0x01 {
			return 0, -1
		}
		u |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i
		}
	}
	return 0, -1
}

// appendVarint appends v as a zigzag varint; the same bytes serve as 32 and 64 bit.
func appendVarint(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

// varintSize is the number of bytes that appendVarint appends.
func varintSize(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	return (bits.Len64(u|1) + 6) / 7
}
