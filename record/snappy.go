package record

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/klauspost/compress/s2"
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

var (
	errXerial = errors.New("block is cut short")
	errS2     = errors.New("S2, not snappy")
)

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

// unsnappyBlock decodes with the S2 decoder, which is four times as fast as the strict one of the same module, and refuses
// before that what only S2 has: no other client could read it.
func unsnappyBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(src)
	if err != nil {
		return dst, err
	}
	if n/snappyRatio > len(src) {
		return dst, s2.ErrCorrupt
	}
	if hasRepeat(src) {
		return dst, errS2
	}
	dst, ok := room(dst, n, limit)
	if !ok {
		return dst, ErrTooLarge
	}
	at := len(dst)
	if _, err := s2.Decode(dst[at:at+n:at+n], src); err != nil {
		return dst, err
	}
	return dst[:at+n], nil
}

// hasRepeat walks the tags of a block: S2's one extension is the copy with an 11 bit offset of zero, "the same offset
// again". Where the block makes no sense the answer does not matter, the decoder will refuse it.
func hasRepeat(src []byte) bool {
	_, i := binary.Uvarint(src)
	for i >= 0 && i < len(src) {
		c := int(src[i])
		switch c & 3 {
		case 0: // literal
			n := c>>2 + 1
			i++
			if k := n - 60; k > 0 {
				if k > len(src)-i {
					return false
				}
				n = 0
				for j := k - 1; j >= 0; j-- {
					n = n<<8 | int(src[i+j])
				}
				n++
				i += k
			}
			i += n
		case 1:
			if i+1 < len(src) && c>>5 == 0 && src[i+1] == 0 {
				return true
			}
			i += 2
		case 2:
			i += 3
		default:
			i += 5
		}
	}
	return false
}

func snappyTo(dst, src []byte) []byte {
	dst = append(dst, xerialHeader...)
	for len(src) > 0 {
		block := src[:min(len(src), xerialBlock)]
		src = src[len(block):]
		at := len(dst)
		worst := s2.MaxEncodedLen(len(block))
		dst = append(dst, make([]byte, 4+worst)...)
		n := len(s2.EncodeSnappy(dst[at+4:], block))
		binary.BigEndian.PutUint32(dst[at:], uint32(n))
		dst = dst[:at+4+n]
	}
	return dst
}
