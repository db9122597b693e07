package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/proc"
)

// load is an idempotent producer that writes until it is stopped, and what was acknowledged to it.
type load struct {
	t          *testing.T
	topic      string
	partitions int32
	cl         *client
	stopped    chan struct{}
	over       sync.WaitGroup
	n          atomic.Int64 // acknowledged
	slowest    atomic.Int64 // ns from the call to the acknowledgement

	mu     sync.Mutex
	acked  map[int32]map[int64]string // guarded by mu; value by partition and offset
	failed error                      // guarded by mu; the first
}

// startLoad begins to write values of about size bytes.
func startLoad(t *testing.T, addr, topic string, partitions int32, size int) *load {
	t.Helper()
	return startLoadAt(t, addr, topic, partitions, size, 200)
}

// startLoadAt writes so many records a millisecond at most.
func startLoadAt(t *testing.T, addr, topic string, partitions int32, size, rate int) *load {
	t.Helper()
	l := &load{t: t, topic: topic, partitions: partitions, stopped: make(chan struct{}), acked: map[int32]map[int64]string{}}
	l.cl = connect(t, addr, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(400), kgo.ProduceRequestTimeout(5*time.Second))
	l.over.Go(func() { l.run(size, rate) })
	return l
}

func (l *load) run(size, rate int) {
	rnd := rand.New(rand.NewPCG(7, 7))
	pad := make([]byte, size)
	for i := range pad {
		pad[i] = byte(rnd.Uint32())
	}
	for i := 0; ; i++ {
		select {
		case <-l.stopped:
			return
		default:
		}
		start := time.Now()
		head := fmt.Sprintf("%d-", i)
		r := &kgo.Record{Topic: l.topic, Partition: int32(i) % l.partitions, Value: append([]byte(head), pad...)}
		l.cl.Produce(l.cl.ctx, r, func(r *kgo.Record, err error) { l.done(r, head, start, err) })
		if i%rate == rate-1 {
			proc.Pause(time.Millisecond)
		}
	}
}

func (l *load) done(r *kgo.Record, value string, start time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if l.failed == nil && !errors.Is(err, context.Canceled) {
			l.failed = err
		}
		return
	}
	m := l.acked[r.Partition]
	if m == nil {
		m = map[int64]string{}
		l.acked[r.Partition] = m
	}
	if other, twice := m[r.Offset]; twice && l.failed == nil {
		l.failed = fmt.Errorf("offset %d of partition %d was acknowledged for %q and for %q", r.Offset, r.Partition, other, value)
	}
	m[r.Offset] = value
	l.n.Add(1)
	if took := int64(time.Since(start)); took > l.slowest.Load() {
		l.slowest.Store(took)
	}
}

// more waits until n more records are acknowledged.
func (l *load) more(n int64) {
	l.t.Helper()
	want := l.n.Load() + n
	proc.Until(l.t, 30*time.Second, "records are acknowledged", func() error {
		if got := l.n.Load(); got < want {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	})
}

// stop ends the writing, waits for what is under way, and fails the test if any record failed.
func (l *load) stop() {
	l.t.Helper()
	close(l.stopped)
	l.over.Wait()
	ctx, cancel := context.WithTimeout(l.cl.ctx, 30*time.Second)
	defer cancel()
	if err := l.cl.Flush(ctx); err != nil {
		l.t.Fatalf("flush: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		l.t.Fatalf("a record failed: %v", l.failed)
	}
}

// check reads everything: nothing acknowledged is missing or elsewhere, offsets are dense, no value is there twice.
func (l *load) check(c *client) {
	l.t.Helper()
	l.checkAs(c, l.topic)
}

func (l *load) checkAs(c *client, topic string) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	got := c.read(topic)
	for p := range l.partitions {
		recs := got[p]
		dense(l.t, recs, 0, int64(len(recs)))
		seen := map[string]int64{}
		for _, r := range recs {
			value := head(r.Value)
			if first, twice := seen[value]; twice {
				l.t.Fatalf("partition %d has %q at %d and at %d", p, value, first, r.Offset)
			}
			seen[value] = r.Offset
			if want, ok := l.acked[p][r.Offset]; ok && want != value {
				l.t.Fatalf("partition %d has %q at %d, where %q was acknowledged", p, value, r.Offset, want)
			}
		}
		for o := range l.acked[p] {
			if o >= int64(len(recs)) {
				l.t.Fatalf("partition %d ends before %d; the acknowledged offset %d is lost", p, len(recs), o)
			}
		}
	}
}

// head is the part of a value that tells it from others.
func head(value []byte) string {
	for i, b := range value {
		if b == '-' {
			return string(value[:i+1])
		}
	}
	return string(value)
}
