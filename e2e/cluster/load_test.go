package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/proc"
)

// load is an idempotent producer with acks=all that writes numbered records until it is stopped, a reader that follows, and what both
// saw.
type load struct {
	w          *world
	t          *testing.T
	topic      string
	partitions int32
	writer     *kgo.Client
	stopped    chan struct{}
	over       sync.WaitGroup
	n, nRead   atomic.Int64 // acknowledged, read
	paces      chan time.Duration

	histories []*history // by partition

	mu     sync.Mutex
	failed error         // guarded by mu; the first
	last   time.Time     // guarded by mu; of an acknowledgement
	gap    time.Duration // guarded by mu; the longest between two
}

// every is the time between two records; a history stays short enough to be checked.
const every = 3 * time.Millisecond

// startLoad begins to write to and read from the topic.
func (w *world) startLoad(topic string, partitions int32) *load {
	w.t.Helper()
	l := &load{w: w, t: w.t, topic: topic, partitions: partitions, stopped: make(chan struct{}), paces: make(chan time.Duration)}
	for range partitions {
		l.histories = append(l.histories, &history{})
	}
	// Requests wait one behind the other for a broker that sleeps, those for metadata too, and each gives up only after this time.
	l.writer = w.client(kgo.MaxBufferedRecords(200), kgo.ProducerLinger(0), kgo.RequestTimeoutOverhead(700*time.Millisecond), kgo.ProduceRequestTimeout(time.Second))
	l.over.Go(l.write)
	l.over.Go(l.read)
	return l
}

// loaded makes a topic of three partitions, each led by another broker, with a load on it that is under way.
func (w *world) loaded(topic string) *load {
	w.t.Helper()
	w.topic(topic, each...)
	l := w.startLoad(topic, int32(len(each)))
	l.more(200)
	return l
}

// wholeAfter lets the load go on for a while after what has happened, and then compares what clients saw, and what the brokers have.
func (w *world) wholeAfter(l *load) {
	w.t.Helper()
	l.more(200)
	l.stop()
	w.sameReplicas(l.topic, int(l.partitions))
}

func (l *load) write() {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-l.stopped:
			return
		case d := <-l.paces:
			tick.Reset(d)
		case <-tick.C:
		}
		p := int32(i) % l.partitions
		value, call := "w-"+strconv.Itoa(i), clock()
		l.writer.Produce(l.w.ctx, &kgo.Record{Topic: l.topic, Partition: p, Value: []byte(value)}, func(r *kgo.Record, err error) {
			if err != nil {
				l.fail(fmt.Errorf("record %s to partition %d: %w", value, p, err))
				l.histories[p].maybe(call, value)
				return
			}
			l.histories[p].wrote(call, value, r.Offset)
			l.acked()
		})
	}
}

// pace sets the time between two records, for a load that goes on for long.
func (l *load) pace(d time.Duration) { l.paces <- d }

func (l *load) acked() {
	l.n.Add(1)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := now.Sub(l.last); !l.last.IsZero() && d > l.gap {
		l.gap = d
	}
	l.last = now
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = err
	}
}

// read follows the topic from its start. The client itself goes on after what can be tried again; any other error is the test's.
func (l *load) read() {
	begin := map[int32]kgo.Offset{}
	for p := range l.partitions {
		begin[p] = kgo.NewOffset().At(0)
	}
	cl, err := kgo.NewClient(append(l.writer.Opts(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: begin}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.KeepRetryableFetchErrors())...)
	if err != nil {
		l.fail(err)
		return
	}
	defer cl.Close()
	next := make([]int64, l.partitions)
	for {
		select {
		case <-l.stopped:
			return
		default:
		}
		call := clock()
		ctx, cancel := context.WithTimeout(l.w.ctx, 300*time.Millisecond)
		fetches := cl.PollFetches(ctx)
		cancel()
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			l.saw(f, next, call)
		})
	}
}

func (l *load) saw(f kgo.FetchTopicPartition, next []int64, call int64) {
	var lost *kgo.ErrDataLoss
	if errors.Is(f.Err, kerr.OffsetOutOfRange) || errors.As(f.Err, &lost) {
		l.fail(fmt.Errorf("read partition %d at %d: %w", f.Partition, next[f.Partition], f.Err))
	}
	if len(f.Records) == 0 {
		return
	}
	var values []string
	for _, r := range f.Records {
		if r.Offset != next[f.Partition] {
			l.fail(fmt.Errorf("partition %d: read offset %d, want %d", f.Partition, r.Offset, next[f.Partition]))
		}
		next[f.Partition] = r.Offset + 1
		values = append(values, string(r.Value))
	}
	l.nRead.Add(int64(len(values)))
	l.histories[f.Partition].read(call, f.Records[0].Offset, values)
}

// more waits until n more records are acknowledged, and some more read.
func (l *load) more(n int64) {
	l.t.Helper()
	want, seen := l.n.Load()+n, l.nRead.Load()
	proc.Until(l.t, 60*time.Second, "records are acknowledged and read", func() error {
		if got := l.n.Load(); got < want || l.nRead.Load() == seen {
			return fmt.Errorf("acknowledged %d of %d, read %d since", got, want, l.nRead.Load()-seen)
		}
		return l.error()
	})
}

func (l *load) error() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// longestGap is the longest time between two acknowledgements since it was last asked.
func (l *load) longestGap() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gap
	l.gap = 0
	return g
}

// stop ends the load, waits for what is under way, and checks what was seen: no error, and each partition's history is that of a log,
// with each record at most once and the producer's in its order.
func (l *load) stop() {
	l.t.Helper()
	close(l.stopped)
	l.over.Wait()
	ctx, cancel := context.WithTimeout(l.w.ctx, 30*time.Second)
	defer cancel()
	if err := l.writer.Flush(ctx); err != nil {
		l.t.Fatalf("flush: %v", err)
	}
	if err := l.error(); err != nil {
		l.t.Fatal(err)
	}
	for p, final := range l.w.readAll(l.topic, l.partitions) {
		if err := l.histories[p].check(final); err != nil {
			l.t.Errorf("partition %d: %v", p, err)
		}
		last := -1
		for o, v := range final {
			i, err := strconv.Atoi(strings.TrimPrefix(v, "w-"))
			if err == nil && i <= last {
				l.t.Fatalf("partition %d: %s at %d is after %d", p, v, o, last)
			} else if err == nil {
				last = i
			}
		}
	}
	l.t.Logf("%d records acknowledged, %d read", l.n.Load(), l.nRead.Load())
}

// ends is the end of each partition.
func (w *world) ends(topic string) map[int32]int64 {
	w.t.Helper()
	ends := map[int32]int64{}
	proc.Until(w.t, 20*time.Second, "ends are listed", func() error {
		ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
		defer cancel()
		list, err := w.adm.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		for _, o := range list[topic] {
			ends[o.Partition] = o.Offset
		}
		return list.Error()
	})
	return ends
}

// readAll reads a topic to its present end: values by partition, which have to have the offsets 0, 1, 2, ...
func (w *world) readAll(topic string, partitions int32) [][]string {
	w.t.Helper()
	ends := w.ends(topic)
	out := make([][]string, partitions)
	begin, left := map[int32]kgo.Offset{}, map[int32]bool{}
	for p, end := range ends {
		if end > 0 {
			begin[p], left[p] = kgo.NewOffset().At(0), true
		}
	}
	if len(left) == 0 {
		return out
	}
	cl := w.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: begin}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
	defer cancel()
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			w.t.Fatalf("read %s: %v; partitions that are left: %v", topic, fetches.Err(), left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset >= ends[r.Partition] {
				return
			}
			if r.Offset != int64(len(out[r.Partition])) {
				w.t.Fatalf("partition %d: read offset %d, want %d", r.Partition, r.Offset, len(out[r.Partition]))
			}
			out[r.Partition] = append(out[r.Partition], string(r.Value))
			if r.Offset+1 == ends[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return out
}
