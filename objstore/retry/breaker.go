package retry

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/objstore"
)

// BreakerOptions bound what a store that is down gets to see. Each zero value is the default said.
type BreakerOptions struct {
	Threshold  int           // consecutive failures, of all calls together, that make an outage; default 5
	Interval   time.Duration // during an outage one request goes out in each, of all callers together; default 250 ms
	Registerer prometheus.Registerer
}

// Breaker counts failures over all calls to one store. Whatever the number of callers, an outage is probed by 1/Interval
// requests a second; the first request that is answered ends it and lets all go on. It may be used concurrently.
type Breaker struct {
	o      BreakerOptions
	turn   chan struct{} // capacity 1: who holds it may wait for the next slot
	outage prometheus.Gauge

	mu       sync.Mutex
	failures int           // guarded by mu
	ended    chan struct{} // guarded by mu; not nil during an outage, closed when it ends
	next     time.Time     // guarded by mu; when the next request may go out during an outage
}

// NewBreaker returns a closed breaker.
func NewBreaker(o BreakerOptions) *Breaker {
	if o.Threshold <= 0 {
		o.Threshold = 5
	}
	if o.Interval <= 0 {
		o.Interval = 250 * time.Millisecond
	}
	b := &Breaker{o: o, turn: make(chan struct{}, 1)}
	b.outage = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "objstore_outage", Help: "1 while the object store does not answer and requests to it are limited.",
	})
	if o.Registerer != nil {
		o.Registerer.MustRegister(b.outage)
	}
	return b
}

// Outage tells whether requests are being limited.
func (b *Breaker) Outage() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended != nil
}

// wait returns at once while the store is well. During an outage it waits for the next slot or for the end of the
// outage, at most until the given instant.
func (b *Breaker) wait(ctx context.Context, until time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ended := b.endedCh()
	if ended == nil {
		return nil
	}
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ended:
		return nil
	case <-limit.C:
		return b.tooLong()
	case <-ctx.Done():
		return ctx.Err()
	}
	slot := time.NewTimer(time.Until(b.slot()))
	defer slot.Stop()
	select {
	case <-slot.C:
		b.take()
		return nil
	case <-ended:
		return nil
	case <-limit.C:
		return b.tooLong()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Breaker) tooLong() error {
	return fmt.Errorf("the object store is down, no request was sent: %w", objstore.ErrUnavailable)
}

func (b *Breaker) endedCh() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

func (b *Breaker) slot() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next
}

func (b *Breaker) take() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = time.Now().Add(b.o.Interval)
}

// done tells how a request ended: answered means by the store itself, with whatever verdict.
func (b *Breaker) done(answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if answered {
		b.failures = 0
		if b.ended != nil {
			close(b.ended)
			b.ended = nil
			b.outage.Set(0)
		}
		return
	}
	b.failures++
	if b.failures >= b.o.Threshold && b.ended == nil {
		b.ended = make(chan struct{})
		b.next = time.Now().Add(b.o.Interval)
		b.outage.Set(1)
	}
}
