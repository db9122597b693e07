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

// The decoder is shared and serves as many at once as there are cores; the options are constants, so there is no error.
// It is made when the program starts, since it has a channel inside: one that was made at first use in a synctest bubble
// could not be used outside of it. It costs little before it is used.
var zstdDecoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
	zstd.WithDecoderMaxWindow(zstdWindowMax), zstd.WithDecodeAllCapLimit(true))

// zstdEncoders are pools of encoders by level. For the same reason they are used as streams with a concurrency of one, which
// needs neither channel nor goroutine; EncodeAll would make a channel at its first call.
var zstdEncoders [zstd.SpeedBestCompression + 1]sync.Pool

func zstdTo(dst, src []byte, level int) ([]byte, error) {
	at := zstd.SpeedDefault
	if level != 0 {
		at = zstd.EncoderLevelFromZstd(level)
	}
	w, _ := zstdEncoders[at].Get().(*zstd.Encoder)
	if w == nil {
		var err error // no content checksum: the batch has its CRC
		w, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(at), zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(2<<20), zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true))
		if err != nil {
			return dst, err
		}
	}
	a := &appender{dst}
	w.ResetContentSize(a, int64(len(src)))
	_, err := w.Write(src)
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	w.Reset(nil)
	zstdEncoders[at].Put(w)
	return a.b, err
}

// unzstd decodes within the capacity of its buffer. A frame's content size could be a lie of 2 GiB, so the buffer grows
// in steps: never beyond what the frames' blocks can hold, and only after the smaller one has been filled or is too small
// for a size that the blocks allow.
func unzstd(dst, src []byte, limit int) ([]byte, error) {
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
		out, err := zstdDecoder.DecodeAll(src, dst[:0:max(size, min(cap(dst), limit))])
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
