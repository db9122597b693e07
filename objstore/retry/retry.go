// Package retry repeats what a store refused for the moment: ErrThrottled and ErrUnavailable, nothing else.
//
// It repeats the same key with the same bytes and never interprets. A conditional create that was applied without an
// answer comes back as ErrExists from the repetition, and as ErrExists it is returned: the caller reads the object and
// compares (PROTOCOLS 1.3). The same holds for ErrPrecondition after a replacement of unknown outcome.
package retry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/objstore"
)

// Options of the decorator. Each zero value is the default said.
type Options struct {
	Attempts int           // tries of one call, the first included; default 10
	Elapsed  time.Duration // no try is begun later than this after the first; default 1 min
	Base     time.Duration // the n-th pause is uniform in [0, min(Max, Base*2^n)); default 100 ms
	Max      time.Duration // default 10 s

	// AttemptTimeout ends a try that gets no answer; reading what Get returned is not part of it. A Put has a second
	// more for each MiB. Default 30 s.
	AttemptTimeout time.Duration

	// Breaker is shared by all buckets of one store. Default: one of its own with the default options.
	Breaker *Breaker

	Rand       func() float64        // uniform in [0, 1), called concurrently; default math/rand/v2
	Registerer prometheus.Registerer // default: no metrics
}

func (o *Options) fill() {
	if o.Attempts <= 0 {
		o.Attempts = 10
	}
	if o.Elapsed <= 0 {
		o.Elapsed = time.Minute
	}
	if o.Base <= 0 {
		o.Base = 100 * time.Millisecond
	}
	if o.Max <= 0 {
		o.Max = 10 * time.Second
	}
	if o.AttemptTimeout <= 0 {
		o.AttemptTimeout = 30 * time.Second
	}
	if o.Breaker == nil {
		o.Breaker = NewBreaker(BreakerOptions{Registerer: o.Registerer})
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
}

// Bucket is the decorator.
type Bucket struct {
	below   objstore.Bucket
	o       Options
	retries *prometheus.CounterVec // nil without a Registerer
	gaveUp  *prometheus.CounterVec
}

// New returns b with repetition.
func New(b objstore.Bucket, o Options) *Bucket {
	o.fill()
	r := &Bucket{below: b, o: o}
	if o.Registerer != nil {
		r.retries = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "objstore_retries_total", Help: "Repeated requests to the object store.",
		}, []string{"op"})
		r.gaveUp = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "objstore_gave_up_total", Help: "Calls that failed after the last allowed repetition.",
		}, []string{"op"})
		o.Registerer.MustRegister(r.retries, r.gaveUp)
	}
	return r
}

// Unwrap returns the bucket below.
func (b *Bucket) Unwrap() objstore.Bucket { return b.below }

// Put implements objstore.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body objstore.Body, cond objstore.Cond) (info objstore.Info, err error) {
	limit := b.o.AttemptTimeout + time.Duration(body.Size>>20)*time.Second
	err = b.do(ctx, "put", key, limit, func(ctx context.Context) (err error) {
		info, err = b.below.Put(ctx, key, body, cond)
		return err
	})
	return info, err
}

// Head implements objstore.Bucket.
func (b *Bucket) Head(ctx context.Context, key string) (info objstore.Info, err error) {
	err = b.do(ctx, "head", key, b.o.AttemptTimeout, func(ctx context.Context) (err error) {
		info, err = b.below.Head(ctx, key)
		return err
	})
	return info, err
}

// Delete implements objstore.Bucket.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	limit := b.o.AttemptTimeout * time.Duration(1+len(keys)/1000)
	return b.do(ctx, "delete", keys[0], limit, func(ctx context.Context) error { return b.below.Delete(ctx, keys...) })
}

// Get implements objstore.Bucket. A body that breaks off is asked for again from where it broke, as long as the answers
// carry an ETag and it stays the same; otherwise the break is returned.
func (b *Bucket) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	rc, err := b.get(ctx, key, off, n)
	if err != nil {
		return nil, err
	}
	return &resuming{ctx: ctx, b: b, key: key, off: off, n: n, rc: rc}, nil
}

// get has no time-out of its own, since its context must outlive it; the clients bound the wait for an answer.
func (b *Bucket) get(ctx context.Context, key string, off, n int64) (rc io.ReadCloser, err error) {
	err = b.do(ctx, "get", key, 0, func(ctx context.Context) (err error) {
		rc, err = b.below.Get(ctx, key, off, n)
		return err
	})
	return rc, err
}

// List implements objstore.Bucket: after an error it goes on behind the last object that it has shown.
func (b *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for {
			progress, stopped := false, false
			err := b.do(ctx, "list", prefix, 0, func(ctx context.Context) error {
				for info, err := range b.below.List(ctx, prefix, after) {
					if err != nil && progress {
						return nil // begin anew: a listing that moves on is not out of attempts
					}
					if err != nil {
						return err
					}
					progress, after = true, info.Key
					if !yield(info, nil) {
						stopped = true
						return nil
					}
				}
				stopped = true
				return nil
			})
			if err != nil {
				yield(objstore.Info{}, err)
				return
			}
			if stopped {
				return
			}
		}
	}
}

// do calls f until it succeeds, fails for good, or the bounds are reached.
func (b *Bucket) do(ctx context.Context, op, key string, limit time.Duration, f func(context.Context) error) error {
	start := time.Now()
	until := start.Add(b.o.Elapsed)
	var last error
	for n := 0; ; n++ {
		if err := b.o.Breaker.wait(ctx, until); err != nil {
			return b.end(ctx, op, key, n, start, errors.Join(err, last))
		}
		err := once(ctx, limit, f)
		if ctx.Err() != nil && err != nil {
			if last != nil {
				return fmt.Errorf("%w, and before that: %v", err, last) // the text alone: what ended it is the context
			}
			return err // says nothing about the store
		}
		b.o.Breaker.done(!objstore.Retryable(err))
		if !objstore.Retryable(err) {
			return err
		}
		last = err
		pause := b.pause(n)
		if n+1 >= b.o.Attempts || time.Now().Add(pause).After(until) {
			return b.end(ctx, op, key, n+1, start, last)
		}
		if err := sleep(ctx, pause); err != nil {
			return b.end(ctx, op, key, n+1, start, errors.Join(err, last))
		}
		if b.retries != nil {
			b.retries.WithLabelValues(op).Inc()
		}
	}
}

// pause is the exponential back-off with full jitter after n+1 failures.
func (b *Bucket) pause(n int) time.Duration {
	bound := b.o.Max
	if n < 30 && b.o.Base<<n > 0 {
		bound = min(bound, b.o.Base<<n)
	}
	return time.Duration(b.o.Rand() * float64(bound))
}

func (b *Bucket) end(ctx context.Context, op, key string, tries int, start time.Time, err error) error {
	if ctx.Err() == nil && b.gaveUp != nil {
		b.gaveUp.WithLabelValues(op).Inc()
	}
	return fmt.Errorf("%s %s: given up after %d tries in %s: %w", op, key, tries, time.Since(start).Round(time.Millisecond), err)
}

func once(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	if limit <= 0 {
		return f(ctx)
	}
	tryCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := f(tryCtx)
	if err != nil && tryCtx.Err() != nil && !objstore.Retryable(err) {
		return fmt.Errorf("no answer in %s: %w: %w", limit, objstore.ErrUnavailable, err)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
