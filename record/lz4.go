package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// The LZ4 frame format, as much of it as Kafka's own decoder takes: version 1, independent blocks, no dictionary. The
// module's stream reader would take more (linked blocks, legacy and skippable frames), which Java consumers cannot read.
const (
	lz4Magic     = 0x184d2204
	lz4Raw       = 1 << 31 // block size bit: stored, not compressed
	lz4Ratio     = 255     // what a byte can decompress to
	lz4WriteSize = 64 << 10
)

// lz4Header starts every frame we write, as Java's: version 1, independent blocks of 64 KiB, no checksums.
var lz4Header = []byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}

var (
	errLZ4Short = errors.New("frame is cut short")
	errLZ4Flags = errors.New("frame header is not one Kafka reads")
	errLZ4Sum   = errors.New("checksum does not match")
)

// lz4Frame is a decoded frame header.
type lz4Frame struct {
	blockMax    int
	blockSum    bool
	contentSum  bool
	headerBytes int
}

func parseLZ4Frame(src []byte) (lz4Frame, error) {
	if len(src) < 7 {
		return lz4Frame{}, errLZ4Short
	}
	if m := binary.LittleEndian.Uint32(src); m != lz4Magic {
		return lz4Frame{}, fmt.Errorf("frame magic is %08x", m)
	}
	flg, bd := src[4], src[5]
	const version, independent, reserved, dict = 0xc0, 0x20, 0x02, 0x01
	if flg&version != 0x40 || flg&independent == 0 || flg&(reserved|dict) != 0 || bd&0x8f != 0 || bd>>4 < 4 {
		return lz4Frame{}, errLZ4Flags
	}
	f := lz4Frame{blockMax: 1 << (8 + 2*(bd>>4)), blockSum: flg&0x10 != 0, contentSum: flg&0x04 != 0, headerBytes: 7}
	if flg&0x08 != 0 {
		f.headerBytes += 8 // the content size, which is not relied on
	}
	if len(src) < f.headerBytes {
		return lz4Frame{}, errLZ4Short
	}
	sum := src[f.headerBytes-1]
	if byte(xxHash32(src[4:f.headerBytes-1])>>8) != sum {
		return lz4Frame{}, errLZ4Sum
	}
	return f, nil
}

func unlz4(dst, src []byte, limit int) ([]byte, error) {
	f, err := parseLZ4Frame(src)
	if err != nil {
		return dst, err
	}
	src = src[f.headerBytes:]
	for {
		if len(src) < 4 {
			return dst, errLZ4Short
		}
		size := binary.LittleEndian.Uint32(src)
		src = src[4:]
		if size == 0 {
			break
		}
		n := int(size &^ lz4Raw)
		if n > f.blockMax {
			return dst, fmt.Errorf("block of %d bytes in a frame of %d byte blocks", n, f.blockMax)
		}
		tail := 0
		if f.blockSum {
			tail = 4
		}
		if len(src) < n+tail {
			return dst, errLZ4Short
		}
		if f.blockSum && xxHash32(src[:n]) != binary.LittleEndian.Uint32(src[n:]) {
			return dst, errLZ4Sum
		}
		if size&lz4Raw != 0 {
			var ok bool
			if dst, ok = room(dst, n, limit); !ok {
				return dst, ErrTooLarge
			}
			dst = append(dst, src[:n]...)
		} else if dst, err = unlz4Block(dst, src[:n], f.blockMax, limit); err != nil {
			return dst, err
		}
		src = src[n+tail:]
	}
	if f.contentSum { // not verified, as in Kafka: the batch's CRC covers it
		if len(src) < 4 {
			return dst, errLZ4Short
		}
		src = src[4:]
	}
	if len(src) != 0 {
		return dst, errors.New("bytes after the frame")
	}
	return dst, nil
}

func unlz4Block(dst, src []byte, blockMax, limit int) ([]byte, error) {
	most := min(blockMax, lz4Ratio*len(src))
	give := min(most, limit-len(dst))
	dst, _ = room(dst, give, limit)
	n, err := lz4.UncompressBlock(src, dst[len(dst):len(dst)+give:len(dst)+give])
	if err != nil {
		if give < most {
			return dst, ErrTooLarge // or corrupt as well: not worth telling apart
		}
		return dst, err
	}
	return dst[:len(dst)+n], nil
}

// lz4s and lz4HCs are pools of block compressors, fast and by level.
var (
	lz4s   = sync.Pool{New: func() any { return new(lz4.Compressor) }}
	lz4HCs = sync.Pool{New: func() any { return new(lz4.CompressorHC) }}
)

// lz4To writes one frame. Level 9, Kafka's default, means its fast compressor; the others search deeper.
func lz4To(dst, src []byte, level int) ([]byte, error) {
	block := func(src, dst []byte) (int, error) {
		c := lz4s.Get().(*lz4.Compressor)
		defer lz4s.Put(c)
		return c.CompressBlock(src, dst)
	}
	if level > 0 && level != 9 {
		block = func(src, dst []byte) (int, error) {
			c := lz4HCs.Get().(*lz4.CompressorHC)
			defer lz4HCs.Put(c)
			c.Level = lz4.Level1 << (min(level, 9) - 1)
			return c.CompressBlock(src, dst)
		}
	}
	dst = append(dst, lz4Header...)
	for len(src) > 0 {
		in := src[:min(len(src), lz4WriteSize)]
		src = src[len(in):]
		at := len(dst)
		dst = append(dst, make([]byte, 4+lz4.CompressBlockBound(len(in)))...)
		n, err := block(in, dst[at+4:])
		if err != nil {
			return dst[:at], err
		}
		size := uint32(n)
		if n == 0 || n >= len(in) { // does not compress: stored
			n = copy(dst[at+4:], in)
			size = uint32(n) | lz4Raw
		}
		binary.LittleEndian.PutUint32(dst[at:], size)
		dst = dst[:at+4+n]
	}
	return append(dst, 0, 0, 0, 0), nil
}
