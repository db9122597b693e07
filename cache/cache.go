package cache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/varvelog/varve/internal/vfs"
)

// ErrClosed: the cache was closed before the chunk was there.
var ErrClosed = errors.New("cache is closed")

// Options: zero values are defaults. Dir empty: no disk tier. Beside MemoryBytes and FillBytes the cache keeps free
// buffers of at most an eighth of both; what readers hold after it was put out of memory is theirs.
type Options struct {
	MemoryBytes int64         // default 64 MiB
	Dir         string        // the disk tier's; nothing but the directory chunks-v1 in it is touched
	FS          vfs.FS        // default vfs.OS
	DiskBytes   int64         // default 1 GiB where Dir is set
	FillBytes   int64         // bytes of fills under way at once; default 64 MiB. A larger chunk is refused.
	FillTimeout time.Duration // of one fill, once it has its budget; default 1 minute
	Registerer  prometheus.Registerer
}

func (o *Options) fill() error {
	for _, f := range []struct {
		name  string
		value *int64
		zero  int64
	}{{"MemoryBytes", &o.MemoryBytes, 64 << 20}, {"DiskBytes", &o.DiskBytes, 1 << 30}, {"FillBytes", &o.FillBytes, 64 << 20}, {"FillTimeout", (*int64)(&o.FillTimeout), int64(time.Minute)}} {
		if *f.value == 0 {
			*f.value = f.zero
		}
		if *f.value < 0 {
			return fmt.Errorf("cache: %s is %d", f.name, *f.value)
		}
	}
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	return nil
}

// Fill writes the chunk into the buffer, all of it, or returns an error; it returns soon after its context ends, and
// keeps neither. Its context has the values of the one that asked first, but not its end.
type Fill = func(context.Context, []byte) error

// Cache is safe for concurrent use.
type Cache struct {
	options Options
	pool    *pool
	disk    *disk // nil without a Dir
	metrics *metrics
	budget  *semaphore.Weighted
	filling atomic.Int64 // bytes of budget taken
	work    sync.WaitGroup

	mu      sync.Mutex // short: never held over I/O
	closed  bool
	memory  *memory
	flights map[Key]*flight
}

// New takes over what is in Dir, if it is set; that lists the directory, but reads no file. It starts no goroutine.
func New(o Options) (*Cache, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	c := &Cache{options: o, pool: newPool(o.MemoryBytes/8 + o.FillBytes/8), budget: semaphore.NewWeighted(o.FillBytes),
		memory: newMemory(o.MemoryBytes), flights: make(map[Key]*flight)}
	var err error
	if c.metrics, err = newMetrics(o.Registerer, c); err != nil {
		return nil, fmt.Errorf("register cache metrics: %w", err)
	}
	if o.Dir != "" {
		if c.disk, err = openDisk(o.FS, o.Dir, o.DiskBytes, c.metrics); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Get returns the chunk, filling it once however many ask; a fill that has begun goes on when the asking ctx ends. size is
// its size in bytes, charged to the budget before fill runs; Get waits for the budget as long as ctx lives. An error of
// fill reaches all that wait for it and is not kept. The caller must Release the chunk.
func (c *Cache) Get(ctx context.Context, k Key, size int64, fill Fill) (*Chunk, error) {
	c.mu.Lock()
	if hit := c.memory.get(k); hit != nil {
		hit.refs.Add(1) // memory holds it, so it is not zero
		c.mu.Unlock()
		c.metrics.memoryHits.Inc()
		return c.sized(hit, size)
	}
	f := c.flights[k]
	switch {
	case c.closed:
		c.mu.Unlock()
		return nil, ErrClosed
	case f != nil:
		f.waiters++
		c.mu.Unlock()
		c.metrics.joins.Inc()
	default:
		if err := c.checkSize(k, size); err != nil {
			c.mu.Unlock()
			return nil, err
		}
		f = c.start(ctx, k, size, fill, false)
		f.waiters = 1
		c.mu.Unlock()
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		if c.leave(k, f) {
			return nil, ctx.Err()
		}
		<-f.done // it has just landed, with a hold for us
	}
	if f.err != nil {
		return nil, f.err
	}
	return c.sized(f.chunk, size)
}

// sized refuses a chunk that is not what the caller expects: two footers would have to disagree.
func (c *Cache) sized(chunk *Chunk, size int64) (*Chunk, error) {
	if n := int64(len(chunk.buf)); n != size {
		k := chunk.key
		chunk.Release()
		return nil, fmt.Errorf("chunk %d of %s has %d bytes, asked for %d", k.Chunk, k.Object, n, size)
	}
	return chunk, nil
}

func (c *Cache) checkSize(k Key, size int64) error {
	if size <= 0 || size > c.options.FillBytes || size > math.MaxInt {
		return fmt.Errorf("chunk %d of %s: %d bytes, allowed are 1 to %d", k.Chunk, k.Object, size, c.options.FillBytes)
	}
	return nil
}

// Prefetch starts a fill if the budget has room and the chunk is not there; it never blocks. It reports whether it did.
func (c *Cache) Prefetch(k Key, size int64, fill Fill) bool {
	if c.checkSize(k, size) != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.flights[k] != nil || c.memory.byKey[k] != nil {
		return false
	}
	if !c.budget.TryAcquire(size) {
		c.metrics.refused.Inc()
		return false
	}
	c.start(context.Background(), k, size, fill, true)
	return true
}

// Close ends the fills under way, waits for them and frees what nobody holds. Chunks that are held stay valid until their
// Release. Get fails with ErrClosed afterwards.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, f := range c.flights {
		f.cancel()
	}
	var out []*Chunk
	for len(c.memory.byKey) > 0 {
		out = append(out, c.memory.removeOldest())
	}
	c.mu.Unlock()
	for _, chunk := range out {
		chunk.Release()
	}
	c.work.Wait()
	return nil
}

func (c *Cache) memoryBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory.bytes
}

func (c *Cache) diskBytes() int64 {
	if c.disk == nil {
		return 0
	}
	return c.disk.size()
}
