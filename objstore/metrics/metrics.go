// Package metrics counts what goes to an object store and how it ends, as Prometheus metrics. Below the retry decorator
// it sees each request, above it each call.
package metrics

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/objstore"
)

type metrics struct {
	requests *prometheus.CounterVec   // op, outcome: 5 x 11 series at most
	bytes    *prometheus.CounterVec   // op
	seconds  *prometheus.HistogramVec // op
	inFlight *prometheus.GaugeVec     // op
}

// Bucket is the decorator.
type Bucket struct {
	below objstore.Bucket
	m     metrics
}

// New returns b with its requests counted in reg. A registerer takes one bucket; wrap it with labels for more.
func New(b objstore.Bucket, reg prometheus.Registerer) *Bucket {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "objstore_requests_total", Help: "Object store requests by operation and outcome; a whole listing is one.",
		}, []string{"op", "outcome"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "objstore_bytes_total", Help: "Object bytes of successful puts and bytes read by gets.",
		}, []string{"op"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "objstore_request_seconds", Help: "Time to the answer; for get to the last byte read.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, []string{"op"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "objstore_requests_in_flight", Help: "Object store requests that have not ended.",
		}, []string{"op"}),
	}
	reg.MustRegister(m.requests, m.bytes, m.seconds, m.inFlight)
	return &Bucket{below: b, m: m}
}

// Unwrap returns the bucket below.
func (b *Bucket) Unwrap() objstore.Bucket { return b.below }

// begin returns the function that counts the end of an operation.
func (m *metrics) begin(op string) func(err error) {
	start := time.Now()
	m.inFlight.WithLabelValues(op).Inc()
	return func(err error) {
		m.inFlight.WithLabelValues(op).Dec()
		m.requests.WithLabelValues(op, objstore.Outcome(err)).Inc()
		m.seconds.WithLabelValues(op).Observe(time.Since(start).Seconds())
	}
}

// Put implements objstore.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body objstore.Body, cond objstore.Cond) (objstore.Info, error) {
	end := b.m.begin("put")
	info, err := b.below.Put(ctx, key, body, cond)
	end(err)
	if err == nil {
		b.m.bytes.WithLabelValues("put").Add(float64(body.Size))
	}
	return info, err
}

// Get implements objstore.Bucket. The request ends when its body is closed.
func (b *Bucket) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	end := b.m.begin("get")
	rc, err := b.below.Get(ctx, key, off, n)
	if err != nil {
		end(err)
		return nil, err
	}
	return &counted{rc: rc, end: end, bytes: b.m.bytes.WithLabelValues("get")}, nil
}

// Head implements objstore.Bucket.
func (b *Bucket) Head(ctx context.Context, key string) (objstore.Info, error) {
	end := b.m.begin("head")
	info, err := b.below.Head(ctx, key)
	end(err)
	return info, err
}

// List implements objstore.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		end := b.m.begin("list")
		var last error
		defer func() { end(last) }()
		for info, err := range b.below.List(ctx, prefix, after) {
			last = err
			if !yield(info, err) {
				return
			}
		}
	}
}

// Delete implements objstore.Bucket.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	end := b.m.begin("delete")
	err := b.below.Delete(ctx, keys...)
	end(err)
	return err
}

// counted is a body whose bytes are counted; one goroutine uses it.
type counted struct {
	rc    io.ReadCloser
	end   func(error)
	bytes prometheus.Counter
	err   error
}

func (c *counted) ObjectInfo() objstore.Info {
	info, _ := objstore.InfoOf(c.rc)
	return info
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.rc.Read(p)
	c.bytes.Add(float64(n))
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

func (c *counted) Close() error {
	err := c.rc.Close()
	if c.end != nil {
		c.end(c.err)
		c.end = nil
	}
	return err
}
