package cache

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// pool keeps buffers for reuse: chunks are of a few MiB, and making them anew costs page faults and garbage collections.
// Capacities come in eight steps a doubling, so at most an eighth of a buffer is wasted. sync.Pool would do, were it
// not emptied by each collection.
type pool struct {
	limit int64        // bytes kept
	inUse atomic.Int64 // bytes of buffers handed out

	mu   sync.Mutex
	kept int64
	free map[int][][]byte // by capacity
}

const smallestBuffer = 4 << 10

func newPool(limit int64) *pool { return &pool{limit: limit, free: make(map[int][][]byte)} }

// bufferSize rounds n up to a capacity.
func bufferSize(n int) int {
	if n <= smallestBuffer {
		return smallestBuffer
	}
	step := 1 << (bits.Len(uint(n-1)) - 4)
	return (n + step - 1) &^ (step - 1)
}

// get returns a buffer of length n with whatever content.
func (p *pool) get(n int) []byte {
	size := bufferSize(n)
	p.inUse.Add(int64(size))
	p.mu.Lock()
	if list := p.free[size]; len(list) > 0 {
		b := list[len(list)-1]
		list[len(list)-1] = nil
		p.free[size] = list[:len(list)-1]
		p.kept -= int64(size)
		p.mu.Unlock()
		return b[:n]
	}
	p.mu.Unlock()
	return make([]byte, n, size)
}

func (p *pool) put(b []byte) {
	size := cap(b)
	p.inUse.Add(-int64(size))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept+int64(size) > p.limit {
		return
	}
	p.kept += int64(size)
	p.free[size] = append(p.free[size], b[:0])
}
