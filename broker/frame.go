package broker

import (
	"math/bits"
	"sync"
)

// buffer is a pooled byte slice. Record batches of a Produce alias it until they are written; nothing may keep it longer.
type buffer struct {
	b     []byte
	class int8 // index into buffers, -1: not pooled
}

// Size classes are powers of two; what is smaller or larger is left to the garbage collector.
const (
	minBufferShift = 12 // 4 KiB
	maxBufferShift = 27 // 128 MiB
)

// buffers pools by size class: the first touch of a fresh page costs more than what is done with most requests.
var buffers [maxBufferShift - minBufferShift + 1]sync.Pool

// getBuffer returns a buffer of n bytes, contents arbitrary.
func getBuffer(n int) *buffer {
	class := max(bits.Len(uint(n-1)), minBufferShift) - minBufferShift
	if n <= 0 {
		class = 0
	}
	if class >= len(buffers) {
		return &buffer{b: make([]byte, n), class: -1}
	}
	if f, ok := buffers[class].Get().(*buffer); ok {
		f.b = f.b[:n]
		return f
	}
	return &buffer{b: make([]byte, n, 1<<(class+minBufferShift)), class: int8(class)}
}

// free gives the buffer back; nil is fine.
func (f *buffer) free() {
	if f == nil || f.class < 0 {
		return
	}
	buffers[f.class].Put(f)
}
