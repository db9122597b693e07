// Package budget bounds what is under way between a process and its object store: requests and bytes. Who finds the
// budget used up waits, first come first served, until its context ends.
//
// A reader from Get holds its share until it is closed: a goroutine that holds one and waits for another request can
// wait for itself if the budget is that small. Listings are not counted, since their consumers make requests too.
package budget

import (
	"context"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/varvelog/varve/objstore"
)

// Options bound the budget. Each zero value is the default said.
type Options struct {
	Requests int64 // in flight; default 64
	Bytes    int64 // of bodies in flight, both ways; one larger body than this goes alone; default 256 MiB
	OpenGet  int64 // bytes that a Get to the end of an object counts for, whose size nobody knows; default 8 MiB

	Registerer prometheus.Registerer // default: no metrics
}

// Bucket is the decorator.
type Bucket struct {
	below    objstore.Bucket
	o        Options
	requests *semaphore.Weighted
	bytes    *semaphore.Weighted
	waits    prometheus.Counter
	held     prometheus.Gauge
}

// New returns b within a budget.
func New(b objstore.Bucket, o Options) *Bucket {
	if o.Requests <= 0 {
		o.Requests = 64
	}
	if o.Bytes <= 0 {
		o.Bytes = 256 << 20
	}
	if o.OpenGet <= 0 {
		o.OpenGet = 8 << 20
	}
	r := &Bucket{
		below: b, o: o,
		requests: semaphore.NewWeighted(o.Requests),
		bytes:    semaphore.NewWeighted(o.Bytes),
		waits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "objstore_budget_waits_total", Help: "Requests that waited because the budget was used up.",
		}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "objstore_budget_held_bytes", Help: "Bytes of bodies in flight, as the budget counts them.",
		}),
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(r.waits, r.held)
	}
	return r
}

// Unwrap returns the bucket below.
func (b *Bucket) Unwrap() objstore.Bucket { return b.below }

// take waits for one request and n bytes and returns what gives them back, which may be called more than once.
func (b *Bucket) take(ctx context.Context, op, key string, n int64) (release func(), err error) {
	n = max(0, min(n, b.o.Bytes))
	if err := b.acquire(ctx, b.requests, 1); err != nil {
		return nil, fmt.Errorf("%s %s: wait for budget: %w: %w", op, key, objstore.ErrUnavailable, err)
	}
	if err := b.acquire(ctx, b.bytes, n); err != nil {
		b.requests.Release(1)
		return nil, fmt.Errorf("%s %s: wait for budget: %w: %w", op, key, objstore.ErrUnavailable, err)
	}
	b.held.Add(float64(n))
	return sync.OnceFunc(func() {
		b.held.Sub(float64(n))
		b.bytes.Release(n)
		b.requests.Release(1)
	}), nil
}

func (b *Bucket) acquire(ctx context.Context, s *semaphore.Weighted, n int64) error {
	if s.TryAcquire(n) {
		return nil
	}
	b.waits.Inc()
	return s.Acquire(ctx, n)
}

// Put implements objstore.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body objstore.Body, cond objstore.Cond) (objstore.Info, error) {
	release, err := b.take(ctx, "put", key, body.Size)
	if err != nil {
		return objstore.Info{}, err
	}
	defer release()
	return b.below.Put(ctx, key, body, cond)
}

// Get implements objstore.Bucket.
func (b *Bucket) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	weight := n
	if n < 0 {
		weight = b.o.OpenGet
	}
	release, err := b.take(ctx, "get", key, weight)
	if err != nil {
		return nil, err
	}
	rc, err := b.below.Get(ctx, key, off, n)
	if err != nil {
		release()
		return nil, err
	}
	return &held{rc, release}, nil
}

// Head implements objstore.Bucket.
func (b *Bucket) Head(ctx context.Context, key string) (objstore.Info, error) {
	release, err := b.take(ctx, "head", key, 0)
	if err != nil {
		return objstore.Info{}, err
	}
	defer release()
	return b.below.Head(ctx, key)
}

// List implements objstore.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return b.below.List(ctx, prefix, after)
}

// Delete implements objstore.Bucket.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	release, err := b.take(ctx, "delete", keys[0], 0)
	if err != nil {
		return err
	}
	defer release()
	return b.below.Delete(ctx, keys...)
}

type held struct {
	io.ReadCloser
	release func()
}

func (h *held) ObjectInfo() objstore.Info {
	info, _ := objstore.InfoOf(h.ReadCloser)
	return info
}

func (h *held) Close() error {
	defer h.release()
	return h.ReadCloser.Close()
}
