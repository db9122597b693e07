package replica

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// cluster is what outlives a broker: metadata, disk, object store.
type cluster struct {
	t         testing.TB
	kv        *memkv.KV
	dir       string
	fs        vfs.FS
	bucket    objstore.Bucket // nil: no tiering
	tiered    bool            // topics are archived
	mu        sync.Mutex
	config    localseg.Config // guarded by mu once a broker runs; of every topic
	throttle  [2]int64        // guarded by mu; leader's and follower's rate, 0: none
	throttled []string        // guarded by mu; of every topic
	limit     int64           // archive.local.max.bytes
	upstream  Upstream        // nil: there are no other brokers
	retain    time.Duration
	intact    bool // see Options
}

func newCluster(t testing.TB) *cluster {
	return &cluster{t: t, kv: memkv.New(), dir: t.TempDir(), fs: vfs.OS{}, config: localseg.Config{Delete: true, RetentionMs: -1}, retain: time.Hour}
}

// tieredCluster archives every topic within moments and keeps nothing locally that is archived, but the active segment.
func tieredCluster(t testing.TB) *cluster {
	c := newCluster(t)
	c.bucket, c.tiered = mem.New(mem.Options{}), true
	c.config.Tiered, c.config.SegmentBytes, c.config.LocalRetentionBytes = true, 4096, 1
	c.retain = 20 * time.Millisecond
	return c
}

// broker is one process of the cluster's only broker.
type broker struct {
	*cluster
	store *meta.Store
	m     *Manager
	stop  func(clean bool)
}

// start runs a broker process until stop.
func (c *cluster) start() *broker {
	c.t.Helper()
	b, err := c.tryStart()
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *cluster) tryStart() (*broker, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	store, err := meta.Open(ctx, c.kv, "", meta.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		cancel()
		return nil, err
	}
	g.Go(func() { store.Run(ctx) })
	var archive *tier.Archive
	if c.bucket != nil {
		info, inc, err := tier.OpenArchive(ctx, c.bucket, store.Image().Cluster)
		if err != nil {
			c.t.Fatal(err)
		}
		chunks, err := cache.New(cache.Options{})
		if err != nil {
			c.t.Fatal(err)
		}
		archive = tier.New(c.bucket, info, Pointers{store}, chunks, tier.Options{Incarnation: inc, MaxLag: 20 * time.Millisecond, RetryMax: time.Second})
		g.Go(func() { archive.Run(ctx) })
	}
	m, err := NewManager(c.fs, store, archive, Options{
		NodeID: 1, Intact: c.intact, Dir: c.dir, RetentionCheck: c.retain, LocalMaxBytes: c.limit, Upstream: c.upstream,
		TopicConfig: func(t *meta.Topic) (localseg.Config, tier.TopicConfig) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.config, tier.TopicConfig{Name: t.Name, RetentionMs: -1, RetentionBytes: -1}
		},
		Throttle: func() (int64, int64) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return cmp.Or(c.throttle[0], math.MaxInt64), cmp.Or(c.throttle[1], math.MaxInt64)
		},
		Throttled: func(*meta.Topic) (leader, follower []string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.throttled, c.throttled
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	b := &broker{cluster: c, store: store, m: m}
	if err := m.Start(ctx); err != nil {
		cancel()
		g.Wait()
		return nil, err
	}
	run, stopRun := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { m.Run(run) })
	var once sync.Once
	b.stop = func(clean bool) {
		once.Do(func() {
			stopRun()
			parts.Wait()
			if clean {
				down, done := context.WithTimeout(ctx, 5*time.Second)
				defer done()
				if err := m.Close(down); err != nil {
					c.t.Errorf("close: %v", err)
				}
			} else {
				m.releaseDir() // as the end of the process does
			}
			cancel()
			g.Wait()
		})
	}
	c.t.Cleanup(func() { b.stop(false) })
	return b, nil
}

func (b *broker) topic(name string, partitions int) *meta.Topic {
	b.t.Helper()
	assignment := make([][]int32, partitions)
	for i := range assignment {
		assignment[i] = []int32{1}
	}
	t, err := b.store.CreateTopic(context.Background(), meta.TopicSpec{Name: name, Assignment: assignment})
	if err != nil {
		b.t.Fatal(err)
	}
	until(b.t, "the image has the topic", func() bool { return b.store.Image().TopicsByID[t.ID] != nil })
	return t
}

func (b *broker) leader(topic string, partition int32) *Partition {
	b.t.Helper()
	p, err := b.m.Leader(TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		b.t.Fatalf("leader of %s-%d: %v", topic, partition, err)
	}
	return p
}

// until polls ok in real time.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 15 s: %s", what)
		}
	}
}

// one builds a batch of records with the given timestamps; values are their future offsets from base.
func one(t testing.TB, base int64, timestamps ...int64) record.Batch {
	t.Helper()
	recs := make([]record.Record, len(timestamps))
	for i, ts := range timestamps {
		recs[i] = record.Record{Offset: int64(i), Timestamp: ts, Value: fmt.Appendf(nil, "value %d", base+int64(i))}
	}
	b, err := record.Build(nil, record.BatchOptions{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, recs)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fill appends n records, ten a batch, with timestamp 1000 + offset.
func fill(t testing.TB, p *Partition, n int) {
	t.Helper()
	for range n / 10 {
		base := p.LEO()
		ts := make([]int64, 10)
		for i := range ts {
			ts[i] = 1000 + base + int64(i)
		}
		if _, err := p.Append([]record.Batch{one(t, base, ts...)}, localseg.OriginClient, true); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll reads [from, high watermark) through both tiers as a consumer does and checks each value.
func readAll(t testing.TB, p *Partition, from int64) int {
	t.Helper()
	n := 0
	for off := from; off < p.HighWatermark(); {
		recs, next, err := read(p, off)
		if err != nil {
			t.Fatalf("read at %d: %v", off, err)
		}
		for _, r := range recs {
			if want := fmt.Sprintf("value %d", r.Offset); string(r.Value) != want || r.Offset < off {
				t.Fatalf("offset %d: %q (asked for %d)", r.Offset, r.Value, off)
			}
			n++
		}
		if next <= off {
			t.Fatalf("no progress at %d", off)
		}
		off = next
	}
	return n
}

// read is one Fetch at off: records from off on, and where to go on.
func read(p *Partition, off int64) (out []record.Record, next int64, err error) {
	s, err := p.ReadHot(off, 4096, ReadUncommitted)
	if isBelow(err) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s, err = p.ReadCold(ctx, off, 4096, ReadUncommitted)
	}
	if err != nil {
		return nil, off, err
	}
	defer s.Release()
	var parts [][]byte
	if len(s.Cold) > 0 {
		parts = s.Cold
	} else if s.Size > 0 {
		b := make([]byte, s.Size)
		if _, err := s.Hot.ReadAt(b, 0); err != nil {
			return nil, off, err
		}
		parts = [][]byte{b}
	}
	for _, rest := range parts {
		for len(rest) > 0 {
			b, more, err := record.Next(rest)
			if err != nil {
				return nil, off, err
			}
			if err := b.Check(); err != nil {
				return nil, off, err
			}
			it := b.Records(1 << 20)
			for it.Next() {
				if r := it.Record(); r.Offset >= off {
					r.Value = append([]byte(nil), r.Value...)
					out = append(out, r)
				}
			}
			it.Close()
			rest = more
		}
	}
	return out, s.Next, nil
}
