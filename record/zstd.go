package record

import (
	"errors"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	zstdBlockMax  = 128 << 10 // what one block can decompress to
	zstdWindowMax = 128 << 20 // what Java's decoder allows
)

// The coders are made at first use and shared: EncodeAll and DecodeAll run concurrently on one, with the options below
// start no goroutine, and keep per core what they need.
var (
	zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindowMax), zstd.WithDecodeAllCapLimit(true))
	})
	zstdEncoders = [...]func() *zstd.Encoder{
		zstdEncoder(zstd.SpeedFastest),
		zstdEncoder(zstd.SpeedDefault),
		zstdEncoder(zstd.SpeedBetterCompression),
		zstdEncoder(zstd.SpeedBestCompression),
	}
)

func zstdEncoder(level zstd.EncoderLevel) func() *zstd.Encoder {
	return sync.OnceValue(func() *zstd.Encoder {
		// No content checksum: the batch has its CRC. The options are constants, so there is no error.
		w, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(false),
			zstd.WithWindowSize(2<<20), zstd.WithLowerEncoderMem(true))
		return w
	})
}

func zstdTo(dst, src []byte, level int) []byte {
	at := zstd.SpeedDefault
	if level != 0 {
		at = zstd.EncoderLevelFromZstd(level)
	}
	return zstdEncoders[at-zstd.SpeedFastest]().EncodeAll(src, dst)
}

// unzstd decodes within the capacity of its buffer. A frame's content size could be a lie of 2 GiB, so the buffer grows
// in steps: never beyond what the frames' blocks can hold, and only after the smaller one has been filled or is too small
// for a size that the blocks allow.
func unzstd(dst, src []byte, limit int) ([]byte, error) {
	d, err := zstdDecoder()
	if err != nil {
		return dst, err
	}
	bound, err := zstdBound(src)
	if err != nil {
		return dst, err
	}
	most := min(bound, limit)
	size := min(most, max(1<<20, 16*len(src)))
	for {
		// Blocks are copied in some bytes past their end where there is space; the cap limit counts from dst's length.
		if cap(dst) < size {
			dst = make([]byte, 0, size)
		}
		out, err := d.DecodeAll(src, dst[:0:max(size, min(cap(dst), limit))])
		switch {
		case err == nil:
			return out, nil
		case !errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return dst, err
		case size < most:
			size = min(most, 8*size)
		case bound > limit:
			return dst, ErrTooLarge
		default:
			return dst, err
		}
	}
}

// zstdBound walks frame and block headers and adds up what they can decompress to at most. A stated content size lowers
// it but never raises it.
func zstdBound(src []byte) (int, error) {
	total := 0
	for len(src) > 0 {
		var h zstd.Header
		if err := h.Decode(src); err != nil {
			return 0, err
		}
		if h.HeaderSize > len(src) {
			return 0, errZstdShort
		}
		src = src[h.HeaderSize:]
		if h.Skippable {
			if uint64(h.SkippableSize) > uint64(len(src)) {
				return 0, errZstdShort
			}
			src = src[h.SkippableSize:]
			continue
		}
		n, rest, err := zstdBlocks(src)
		if err != nil {
			return 0, err
		}
		if h.HasFCS {
			if h.FrameContentSize > uint64(n) {
				return 0, errors.New("content size is more than the blocks can hold")
			}
			n = int(h.FrameContentSize)
		}
		total += n
		src = rest
		if h.HasCheckSum {
			if len(src) < 4 {
				return 0, errZstdShort
			}
			src = src[4:]
		}
	}
	return total, nil
}

var errZstdShort = errors.New("frame is cut short")

// zstdBlocks bounds the decompressed size of the blocks up to the frame's last, and returns what is after it.
func zstdBlocks(src []byte) (most int, rest []byte, err error) {
	for {
		if len(src) < 3 {
			return 0, nil, errZstdShort
		}
		h := uint32(src[0]) | uint32(src[1])<<8 | uint32(src[2])<<16
		last, kind, n := h&1 != 0, h>>1&3, int(h>>3)
		stored := n
		switch kind {
		case 0: // raw
			most += n
		case 1: // one byte repeated
			most += n
			stored = 1
		case 2:
			most += zstdBlockMax
		default:
			return 0, nil, errors.New("reserved block type")
		}
		src = src[3:]
		if n > zstdBlockMax {
			return 0, nil, errors.New("block is larger than allowed")
		}
		if len(src) < stored {
			return 0, nil, errZstdShort
		}
		src = src[stored:]
		if last {
			return most, src, nil
		}
	}
}
