package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/varvelog/varve/internal/vfs"
)

func key(n int) Key { return Key{"a", "object", int32(n)} }

// content of a chunk: every byte depends on the key.
func content(k Key, size int64) []byte {
	return bytes.Repeat([]byte{byte(k.Chunk*7 + 1), byte(k.Chunk >> 8)}, int(size/2))
}

// origin is where chunks come from.
type origin struct {
	fills atomic.Int64
	delay time.Duration
	err   error
}

func (o *origin) fill(k Key) Fill {
	return func(ctx context.Context, b []byte) error {
		o.fills.Add(1)
		if o.delay > 0 {
			select {
			case <-time.After(o.delay):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if o.err != nil {
			return o.err
		}
		copy(b, content(k, int64(len(b))))
		return nil
	}
}

func open(t testing.TB, o Options) *Cache {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// get reads a chunk, checks its bytes and releases it.
func get(t testing.TB, c *Cache, o *origin, k Key, size int64) {
	t.Helper()
	chunk, err := c.Get(context.Background(), k, size, o.fill(k))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(chunk.Bytes(), content(k, size)) {
		t.Fatalf("chunk %d has other bytes", k.Chunk)
	}
	chunk.Release()
}

func value(t testing.TB, m prometheus.Metric) float64 {
	t.Helper()
	var d dto.Metric
	if err := m.Write(&d); err != nil {
		t.Fatal(err)
	}
	return d.GetCounter().GetValue()
}

func closed(t testing.TB, c *Cache) {
	t.Helper()
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if n := c.pool.inUse.Load(); n != 0 {
		t.Fatalf("%d bytes of buffers are still in use", n)
	}
	if n := c.filling.Load(); n != 0 {
		t.Fatalf("%d bytes of budget are still taken", n)
	}
	if !c.budget.TryAcquire(c.options.FillBytes) {
		t.Fatal("the budget has not come back")
	}
}

func TestAChunkIsFilledOnceHoweverManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, Options{}), &origin{delay: time.Second}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { get(t, c, o, key(1), 1000) })
		}
		all.Wait()
		get(t, c, o, key(1), 1000)
		if n := o.fills.Load(); n != 1 {
			t.Fatalf("%d fills", n)
		}
		if n := value(t, c.metrics.joins); n != 49 {
			t.Fatalf("%v joins", n)
		}
		closed(t, c)
	})
}

func TestAFillGoesOnWhenItsAskerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, Options{}), &origin{delay: time.Second}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if _, err := c.Get(ctx, key(1), 1000, o.fill(key(1))); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		get(t, c, o, key(1), 1000)
		if n := o.fills.Load(); n != 1 {
			t.Fatalf("%d fills", n)
		}
		closed(t, c)
	})
}

func TestAFillHasADeadlineOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, Options{FillTimeout: 5 * time.Second}), &origin{delay: time.Hour}
		began := time.Now()
		if _, err := c.Get(context.Background(), key(1), 1000, o.fill(key(1))); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Fatalf("after %v", d)
		}
		closed(t, c)
	})
}

func TestAFailedFillIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, Options{}), &origin{err: errors.New("no route")}
		if _, err := c.Get(context.Background(), key(1), 1000, o.fill(key(1))); !errors.Is(err, o.err) {
			t.Fatal(err)
		}
		o.err = nil
		get(t, c, o, key(1), 1000)
		closed(t, c)
	})
}

func TestGetWaitsForTheBudgetAndPrefetchDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, Options{FillBytes: 1000}), &origin{delay: time.Second}
		if !c.Prefetch(key(1), 800, o.fill(key(1))) {
			t.Fatal("the first prefetch was refused")
		}
		if c.Prefetch(key(1), 100, o.fill(key(1))) {
			t.Fatal("a prefetch of what is under way was begun")
		}
		if c.Prefetch(key(2), 800, o.fill(key(2))) {
			t.Fatal("a prefetch above the budget was begun")
		}
		began := time.Now()
		get(t, c, o, key(3), 800)
		if d := time.Since(began); d != 2*time.Second {
			t.Fatalf("Get took %v", d)
		}
		if n := value(t, c.metrics.budgetWaits); n != 1 {
			t.Fatalf("%v waits", n)
		}
		if c.Prefetch(key(3), 800, o.fill(key(3))) {
			t.Fatal("a prefetch of what is there was begun")
		}
		closed(t, c)
	})
}

func TestAWaiterForTheBudgetMayLeaveAndItsFillNeverRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, slow, o := open(t, Options{FillBytes: 1000}), &origin{delay: time.Minute}, &origin{}
		c.Prefetch(key(1), 1000, slow.fill(key(1)))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := c.Get(ctx, key(2), 500, o.fill(key(2))); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if n := o.fills.Load(); n != 0 {
			t.Fatalf("%d fills", n)
		}
		get(t, c, o, key(2), 500)
		closed(t, c)
	})
}

func TestOneOfTwoWaitersForTheBudgetMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, Options{FillBytes: 1000}), &origin{delay: time.Second}
		c.Prefetch(key(1), 1000, o.fill(key(1)))
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.Get(ctx, key(2), 500, o.fill(key(2))); err == nil {
				t.Error("no error")
			}
		})
		synctest.Wait()
		all.Go(func() { get(t, c, o, key(2), 500) })
		all.Wait()
		closed(t, c)
	})
}

func TestSizesAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, Options{FillBytes: 1000}), &origin{}
		for _, size := range []int64{0, -1, 1001, 1 << 62} {
			if _, err := c.Get(context.Background(), key(1), size, o.fill(key(1))); err == nil {
				t.Fatalf("size %d: no error", size)
			}
			if c.Prefetch(key(1), size, o.fill(key(1))) {
				t.Fatalf("size %d was prefetched", size)
			}
		}
		get(t, c, o, key(1), 1000)
		if _, err := c.Get(context.Background(), key(1), 998, o.fill(key(1))); err == nil {
			t.Fatal("another size than the chunk has: no error")
		}
		closed(t, c)
	})
}

func TestAChunkThatIsHeldOutlivesItsEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, Options{MemoryBytes: 64 << 10}), &origin{}
		held, err := c.Get(context.Background(), key(0), 32<<10, o.fill(key(0)))
		if err != nil {
			t.Fatal(err)
		}
		held.Retain()
		held.Release()
		for i := 1; i < 20; i++ {
			get(t, c, o, key(i), 32<<10)
			if n := c.memoryBytes(); n > 64<<10 {
				t.Fatalf("%d bytes in memory", n)
			}
		}
		if !bytes.Equal(held.Bytes(), content(key(0), 32<<10)) {
			t.Fatal("its bytes changed")
		}
		synctest.Wait() // until the goroutines that filled the chunks have let them go, too
		closeWith := c.pool.inUse.Load()
		held.Release()
		if n := closeWith - c.pool.inUse.Load(); n != 32<<10 {
			t.Fatalf("the last release gave %d bytes back", n)
		}
		get(t, c, o, key(19), 32<<10)
		get(t, c, o, key(0), 32<<10)
		if n := o.fills.Load(); n != 21 {
			t.Fatalf("%d fills", n)
		}
		closed(t, c)
	})
}

func TestWhatWasUsedLastIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, Options{MemoryBytes: 32 << 10}), &origin{}
		for _, n := range []int{0, 1, 2, 3, 0, 4, 0} { // 8 KiB each, so 4 of them
			get(t, c, o, key(n), 8<<10)
		}
		before := o.fills.Load()
		get(t, c, o, key(0), 8<<10)
		get(t, c, o, key(2), 8<<10)
		if o.fills.Load() != before {
			t.Fatal("a chunk of late use was evicted")
		}
		get(t, c, o, key(1), 8<<10)
		if o.fills.Load() != before+1 {
			t.Fatal("the chunk of oldest use was kept")
		}
		closed(t, c)
	})
}

func TestAChunkLargerThanTheMemoryTierIsStillServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, Options{MemoryBytes: 1 << 10}), &origin{}
		get(t, c, o, key(0), 32<<10)
		if n := c.memoryBytes(); n != 0 {
			t.Fatalf("%d bytes in memory", n)
		}
		closed(t, c)
	})
}

func TestCloseEndsFillsAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, Options{FillBytes: 1000}), &origin{delay: time.Minute}
		var all sync.WaitGroup
		for i := range 4 { // one fills, three wait for the budget
			all.Go(func() {
				if _, err := c.Get(context.Background(), key(i), 1000, o.fill(key(i))); !errors.Is(err, ErrClosed) {
					t.Errorf("Get: %v", err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		closed(t, c)
		all.Wait()
		if d := time.Since(began); d != 0 {
			t.Fatalf("Close took %v", d)
		}
		if _, err := c.Get(context.Background(), key(9), 10, o.fill(key(9))); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		if c.Prefetch(key(9), 10, o.fill(key(9))) {
			t.Fatal("a closed cache prefetches")
		}
	})
}

func TestReleaseTooOftenIsFoundOut(t *testing.T) {
	c, o := open(t, Options{MemoryBytes: 1}), &origin{}
	chunk, err := c.Get(context.Background(), key(0), 10, o.fill(key(0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	chunk.Release()
	// In this order: a retain counts, although it is refused.
	for _, c := range []struct {
		name string
		f    func()
	}{{"release", chunk.Release}, {"retain", chunk.Retain}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", c.name)
				}
			}()
			c.f()
		}()
	}
}

func TestAnythingAtOnceKeepsBytesAndBounds(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			mem := vfs.NewMem()
			c := open(t, Options{MemoryBytes: 64 << 10, FillBytes: 32 << 10, Dir: "/cache", DiskBytes: 100 << 10, FS: mem})
			var all sync.WaitGroup
			for g := range uint64(16) {
				all.Go(func() {
					r := rand.New(rand.NewPCG(seed, g))
					for range 60 {
						k := key(r.IntN(24))
						size := int64(k.Chunk+1) * 700
						o := &origin{delay: time.Duration(r.IntN(5)) * time.Millisecond}
						if r.IntN(4) == 0 {
							c.Prefetch(k, size, o.fill(k))
							continue
						}
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(20))*time.Millisecond)
						chunk, err := c.Get(ctx, k, size, o.fill(k))
						if err == nil {
							time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
							if !bytes.Equal(chunk.Bytes(), content(k, size)) {
								t.Errorf("chunk %d has other bytes", k.Chunk)
							}
							chunk.Release()
						} else if !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
						cancel()
						if n := c.memoryBytes(); n > 64<<10 {
							t.Errorf("%d bytes in memory", n)
						}
						if n := c.filling.Load(); n > 32<<10 {
							t.Errorf("%d bytes of fills", n)
						}
						if n := c.diskBytes(); n > 100<<10 {
							t.Errorf("%d bytes on disk", n)
						}
					}
				})
			}
			all.Wait()
			closed(t, c)
		})
	}
}

func TestMetricsRegisterOnce(t *testing.T) {
	r := prometheus.NewRegistry()
	c := open(t, Options{Registerer: r})
	get(t, c, &origin{}, key(0), 100)
	if all, err := r.Gather(); err != nil || len(all) < 15 {
		t.Fatalf("%d metrics, %v", len(all), err)
	}
	if _, err := New(Options{Registerer: r}); err == nil {
		t.Fatal("a second cache on one registry: no error")
	}
	if _, err := New(Options{MemoryBytes: -1}); err == nil {
		t.Fatal("a negative size: no error")
	}
	closed(t, c)
}

func BenchmarkHit(b *testing.B) {
	c, o := open(b, Options{}), &origin{}
	get(b, c, o, key(1), 4<<20)
	k := Key{"a", fmt.Sprintf("t/%022d/0000000001/s/%020d-%020d-0000000001-%016x", 1, 2, 3, 4), 1}
	get(b, c, o, k, 1<<20)
	ctx, fill := context.Background(), o.fill(k)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			chunk, err := c.Get(ctx, k, 1<<20, fill)
			if err != nil {
				b.Fatal(err)
			}
			chunk.Release()
		}
	})
}

func BenchmarkMiss(b *testing.B) {
	c := open(b, Options{})
	fill := func(context.Context, []byte) error { return nil }
	b.SetBytes(4 << 20)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		chunk, err := c.Get(context.Background(), key(n), 4<<20, fill)
		if err != nil {
			b.Fatal(err)
		}
		chunk.Release()
	}
}

func BenchmarkDiskHit(b *testing.B) {
	c, o := open(b, Options{Dir: b.TempDir(), MemoryBytes: 1}), &origin{}
	get(b, c, o, key(1), 4<<20)
	c.work.Wait()
	b.SetBytes(4 << 20)
	b.ReportAllocs()
	for b.Loop() {
		chunk, err := c.Get(context.Background(), key(1), 4<<20, o.fill(key(1)))
		if err != nil {
			b.Fatal(err)
		}
		chunk.Release()
	}
	if o.fills.Load() != 1 {
		b.Fatalf("%d fills", o.fills.Load())
	}
}
