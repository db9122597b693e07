package cache

import (
	"context"
	"fmt"
	"time"
)

// flight is one chunk on its way into the cache.
type flight struct {
	done   chan struct{} // closed when chunk or err is there
	cancel context.CancelFunc
	chunk  *Chunk // with one hold for each waiter
	err    error

	waiters int  // guarded by Cache.mu
	filling bool // it has its budget and goes on without waiters; guarded by Cache.mu
	landed  bool // holds have been given out; guarded by Cache.mu
}

// start begins a flight; mu is held. Budgeted: the caller has taken its share of the budget.
func (c *Cache) start(ctx context.Context, k Key, size int64, fill Fill, budgeted bool) *flight {
	f := &flight{done: make(chan struct{}), filling: budgeted}
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.flights[k] = f
	c.work.Go(func() { c.fly(ctx, f, k, size, fill, budgeted) })
	return f
}

// leave takes a waiter off the flight, and the flight off the cache if nobody is left to wait for its budget. False: it
// has landed, and the waiter has a hold.
func (c *Cache) leave(k Key, f *flight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.landed {
		return false
	}
	f.waiters--
	if f.waiters == 0 && !f.filling {
		delete(c.flights, k)
		f.cancel()
	}
	return true
}

// fly is a flight's goroutine.
//
//  1. wait for the budget;
//  2. read from disk, or fill;
//  3. put the chunk into memory and let the waiters go;
//  4. write it to disk, if that is not where it came from;
//  5. give the budget back: until then the chunk is in memory for the cache's own sake.
func (c *Cache) fly(ctx context.Context, f *flight, k Key, size int64, fill Fill, budgeted bool) {
	defer f.cancel()
	if !budgeted {
		if err := c.acquire(ctx, f, size); err != nil {
			c.land(k, f, nil, err)
			return
		}
	}
	c.filling.Add(size)
	defer func() {
		c.filling.Add(-size)
		c.budget.Release(size)
	}()
	chunk := &Chunk{key: k, buf: c.pool.get(int(size)), pool: c.pool}
	chunk.refs.Store(1) // this goroutine's
	defer chunk.Release()
	if c.disk != nil && c.disk.read(k, chunk.buf) {
		c.metrics.diskHits.Inc()
		c.land(k, f, chunk, nil)
		return
	}
	c.metrics.misses.Inc()
	began := time.Now()
	fillCtx, cancel := context.WithTimeout(ctx, c.options.FillTimeout)
	err := fill(fillCtx, chunk.buf)
	cancel()
	c.metrics.fillSeconds.Observe(time.Since(began).Seconds())
	if err != nil {
		c.metrics.fillErrors.Inc()
		c.land(k, f, nil, fmt.Errorf("fill chunk %d of %s: %w", k.Chunk, k.Object, err))
		return
	}
	c.metrics.fillBytes.Add(float64(size))
	c.land(k, f, chunk, nil)
	if c.disk != nil {
		c.disk.write(k, chunk.buf)
	}
}

// acquire waits for the budget until the cache closes or the last waiter has left.
func (c *Cache) acquire(ctx context.Context, f *flight, size int64) error {
	if !c.budget.TryAcquire(size) {
		c.metrics.budgetWaits.Inc()
		if err := c.budget.Acquire(ctx, size); err != nil {
			return ErrClosed // or nobody waits any more, and nobody sees it
		}
	}
	c.mu.Lock()
	gone := f.waiters == 0
	f.filling = !gone
	c.mu.Unlock()
	if gone {
		c.budget.Release(size)
		return ErrClosed
	}
	return nil
}

// land ends the flight with a chunk, of which each waiter and the memory tier get a hold, or with an error.
func (c *Cache) land(k Key, f *flight, chunk *Chunk, err error) {
	var out []*Chunk
	c.mu.Lock()
	if c.flights[k] == f {
		delete(c.flights, k)
	}
	if err != nil && c.closed {
		err = ErrClosed
	}
	f.landed = true
	f.chunk, f.err = chunk, err
	if chunk != nil {
		chunk.refs.Add(int32(f.waiters))
		if !c.closed {
			chunk.refs.Add(1)
			out = c.memory.add(chunk)
		}
	}
	c.mu.Unlock()
	close(f.done)
	for _, old := range out {
		c.metrics.memoryEvictions.Inc()
		old.Release()
	}
}
