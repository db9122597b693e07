package record

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/klauspost/compress/snappy"
)

// The xerial framing: a header of magic, version and lowest compatible version, then blocks of a big-endian int32 length
// and as many bytes of raw snappy. Java always writes it; librdkafka, Python and others may send one raw block instead.
var xerialHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const (
	xerialMagic = 8        // bytes of the header that tell the framing; the versions are not looked at, as in Java
	xerialBlock = 32 << 10 // uncompressed bytes a block, Java's default
)

// snappyRatio bounds what a byte of snappy can decompress to: a copy of 64 bytes takes three.
const snappyRatio = 22

var errXerial = errors.New("block is cut short")

func unsnappy(dst, src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialHeader[:xerialMagic]) {
		return unsnappyBlock(dst, src, limit)
	}
	for len(src) > 0 {
		if bytes.HasPrefix(src, xerialHeader[:xerialMagic]) { // again, where streams were concatenated
			if len(src) < len(xerialHeader) {
				return dst, errXerial
			}
			src = src[len(xerialHeader):]
			continue
		}
		if len(src) < 4 {
			return dst, errXerial
		}
		n := int(int32(binary.BigEndian.Uint32(src)))
		src = src[4:]
		if n < 0 || n > len(src) {
			return dst, errXerial
		}
		var err error
		if dst, err = unsnappyBlock(dst, src[:n], limit); err != nil {
			return dst, err
		}
		src = src[n:]
	}
	return dst, nil
}

// unsnappyBlock is strict: an S2 block decodes too in the same package, but no other client could read it.
func unsnappyBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return dst, err
	}
	if n/snappyRatio > len(src) {
		return dst, snappy.ErrCorrupt
	}
	dst, ok := room(dst, n, limit)
	if !ok {
		return dst, ErrTooLarge
	}
	at := len(dst)
	out, err := snappy.DecodeStrict(dst[at:at+n:at+n], src)
	if err != nil {
		return dst, err
	}
	if n == 0 {
		return dst, nil
	}
	if &out[0] != &dst[at : at+1][0] {
		copy(dst[at:at+n], out)
	}
	return dst[:at+n], nil
}

func snappyTo(dst, src []byte) []byte {
	dst = append(dst, xerialHeader...)
	for len(src) > 0 {
		block := src[:min(len(src), xerialBlock)]
		src = src[len(block):]
		at := len(dst)
		worst := snappy.MaxEncodedLen(len(block))
		dst = append(dst, make([]byte, 4+worst)...)
		n := len(snappy.Encode(dst[at+4:], block))
		binary.BigEndian.PutUint32(dst[at:], uint32(n))
		dst = dst[:at+4+n]
	}
	return dst
}
