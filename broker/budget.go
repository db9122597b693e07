package broker

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// budget bounds the request bytes that are in memory at once, over all connections (queued.max.request.bytes). Readers wait for
// room before they read a body, first come first served.
type budget struct {
	sem   *semaphore.Weighted
	size  int64
	waits prometheus.Counter
}

func newBudget(size int64, waits prometheus.Counter) *budget {
	return &budget{sem: semaphore.NewWeighted(size), size: size, waits: waits}
}

// acquire takes n bytes, or all there are if n is more: such a request is served alone.
func (b *budget) acquire(ctx context.Context, n int64) error {
	n = min(n, b.size)
	if b.sem.TryAcquire(n) {
		return nil
	}
	b.waits.Inc()
	return b.sem.Acquire(ctx, n)
}

func (b *budget) release(n int64) { b.sem.Release(min(n, b.size)) }
