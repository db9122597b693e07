package recovery

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// net is the buckets that URLs name, each with faults.
type net struct {
	mu      sync.Mutex
	buckets map[string]*fault.Bucket
}

func (n *net) at(url string) *fault.Bucket {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.buckets[url] == nil {
		n.buckets[url] = fault.New(mem.New(mem.Options{}), fault.Options{})
	}
	return n.buckets[url]
}

func (n *net) open(_ context.Context, url string) (objstore.Bucket, error) { return n.at(url), nil }

// cluster is one running cluster of one broker: metadata, archive, logs.
type cluster struct {
	t      *testing.T
	net    *net
	url    string
	bucket *fault.Bucket
	kv     *memkv.KV
	store  *meta.Store
	info   manifest.ArchiveInfo
	inc    uint32
	engine *tier.Archive
	fs     *vfs.Mem
	parts  map[manifest.PartitionID]*part
	stop   func()
}

// part is a partition that the cluster leads. It is a tier.Source.
type part struct {
	log   *localseg.Log
	tier  *tier.Partition
	epoch int32
	hold  atomic.Int64 // Committed, if not negative
}

func (p *part) Log() *localseg.Log          { return p.log }
func (p *part) SetLogStart(off int64) error { return p.log.SetLogStart(off) }
func (p *part) Committed() int64 {
	if hold := p.hold.Load(); hold >= 0 {
		return hold
	}
	return min(p.log.LEO(), p.log.FirstUnstable())
}

// pointers is tier.Pointers on the metadata store.
type pointers struct{ s *meta.Store }

func (p pointers) Load(ctx context.Context, id manifest.PartitionID) (tier.Pointer, error) {
	rec, err := p.s.GetPartition(ctx, id)
	if err != nil {
		return tier.Pointer{}, err
	}
	return p.pointer(rec), nil
}

func (p pointers) pointer(rec *meta.Partition) tier.Pointer {
	out := tier.Pointer{Manifest: rec.Pointer.Manifest, N: rec.Pointer.N, Through: rec.Pointer.Through, ThroughTime: rec.Pointer.ThroughTime,
		LeaderEpoch: rec.LeaderEpoch, Incarnation: p.s.Image().Incarnation, Guard: rec.ModRev}
	for _, pin := range rec.Pointer.Pins {
		out.Pins = append(out.Pins, tier.Pin{ID: pin.ID, Reason: pin.Reason})
	}
	return out
}

func (p pointers) Commit(ctx context.Context, id manifest.PartitionID, old, next tier.Pointer) (tier.Pointer, error) {
	rec, err := p.s.GetPartition(ctx, id)
	if err != nil {
		return tier.Pointer{}, err
	}
	if rec.ModRev != old.Guard {
		return tier.Pointer{}, tier.ErrConflict
	}
	moved := *rec
	moved.Pointer.Manifest, moved.Pointer.N, moved.Pointer.Through, moved.Pointer.ThroughTime = next.Manifest, next.N, next.Through, next.ThroughTime
	stored, err := p.s.UpdatePartition(ctx, &moved)
	if err != nil {
		return tier.Pointer{}, tier.ErrConflict
	}
	return p.pointer(stored), nil
}

func (p pointers) CommitDeleted(ctx context.Context, id manifest.PartitionID, old, next tier.Pointer) (tier.Pointer, error) {
	return p.Commit(ctx, id, old, next)
}

func (p pointers) ElectDeleted(ctx context.Context, id manifest.PartitionID, old tier.Pointer) (tier.Pointer, error) {
	rec, err := p.s.GetPartition(ctx, id)
	if err != nil {
		return tier.Pointer{}, err
	}
	if rec.ModRev != old.Guard {
		return tier.Pointer{}, tier.ErrConflict
	}
	rec.LeaderEpoch++
	stored, err := p.s.UpdatePartition(ctx, rec)
	if err != nil {
		return tier.Pointer{}, tier.ErrConflict
	}
	return p.pointer(stored), nil
}

// inBubble runs f in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, n *net)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &net{buckets: map[string]*fault.Bucket{}}) })
}

// newCluster starts an empty cluster whose archive is at the URL.
func newCluster(t *testing.T, n *net, url string) *cluster {
	t.Helper()
	return startCluster(t, n, url, memkv.New(), "")
}

// startCluster starts a cluster on metadata that may be there, with empty disks.
func startCluster(t *testing.T, n *net, url string, kv *memkv.KV, id string) *cluster {
	t.Helper()
	c := &cluster{t: t, net: n, url: url, bucket: n.at(url), kv: kv, fs: vfs.NewMem(), parts: map[manifest.PartitionID]*part{}}
	ctx := context.Background()
	var err error
	if c.store, err = meta.Open(ctx, kv, id, meta.Options{}); err != nil {
		t.Fatal(err)
	}
	if c.info, c.inc, err = tier.OpenArchive(ctx, c.bucket, c.store.Image().Cluster); err != nil {
		t.Fatal(err)
	}
	run, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.store.Run(run) })
	c.engine = tier.New(c.bucket, c.info, pointers{c.store}, nil, tier.Options{
		Cluster: c.info.Cluster, Incarnation: c.inc, Broker: 1, ChunkBytes: 2 << 10, MaxLag: time.Second, SweepInterval: time.Hour,
		SupersededGrace: time.Minute,
		Foreign:         func(archive string) (objstore.Bucket, error) { return n.at(c.store.Image().Attached[archive].URL), nil },
	})
	c.engine.MarkBy(func(upTo int64, _ bool) (int64, bool) { return upTo, true })
	wg.Go(func() { _ = c.engine.Run(run) })
	c.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(c.stop)
	for _, topic := range c.store.Image().Topics {
		for _, p := range topic.Partitions {
			c.lead(topic, p.ID)
		}
	}
	return c
}

// topic creates a topic and its record.
func (c *cluster) topic(name string, partitions int, configs ...string) *meta.Topic {
	c.t.Helper()
	spec := meta.TopicSpec{Name: name, Internal: strings.HasPrefix(name, "__"), Configs: map[string]string{}}
	for i := 0; i < len(configs); i += 2 {
		spec.Configs[configs[i]] = configs[i+1]
	}
	for range partitions {
		spec.Assignment = append(spec.Assignment, []int32{1})
	}
	topic, err := c.store.CreateTopic(c.t.Context(), spec)
	if err != nil {
		c.t.Fatal(err)
	}
	c.record(topic.ID)
	for _, p := range topic.Partitions {
		c.lead(topic, p.ID)
	}
	return topic
}

// record writes the topic's record as the archivist does.
func (c *cluster) record(id manifest.TopicID) {
	c.t.Helper()
	synctest.Wait()
	img := c.store.Image()
	t, event := img.TopicsByID[id], manifest.TopicAltered
	if t == nil {
		t, event = img.Deleted[id], manifest.TopicDropped
	} else if t.Version == 1 {
		event = manifest.TopicCreated
	}
	err := c.engine.PutTopic(c.t.Context(), manifest.TopicRecord{N: t.Version, Event: event, Time: t.ChangedMs, ID: t.ID, Name: t.Name,
		Partitions: int32(len(t.Partitions)), Configs: t.Configs, Internal: t.Internal})
	if err != nil {
		c.t.Fatal(err)
	}
}

// lead elects the broker and opens the log; where the past is in the archive, it begins there.
func (c *cluster) lead(t *meta.Topic, id manifest.PartitionID) {
	c.t.Helper()
	ctx := context.Background()
	synctest.Wait()
	if err := c.store.Elect(ctx, []meta.Election{{ID: id, Leader: 1, ISR: []int32{1}}}); err != nil {
		c.t.Fatal(err)
	}
	rec, err := c.store.GetPartition(ctx, id)
	if err != nil {
		c.t.Fatal(err)
	}
	log, err := localseg.Open(c.fs, fmt.Sprintf("%s-%d-%d", id.Topic, id.Partition, rec.LeaderEpoch), localseg.Options{Topic: t.Name, TopicID: t.ID,
		Config: localseg.Config{SegmentBytes: 8 << 10, IndexIntervalBytes: 512, Tiered: true, RetentionMs: -1, RetentionBytes: -1}})
	if err != nil {
		c.t.Fatal(err)
	}
	p := &part{log: log, epoch: rec.LeaderEpoch}
	p.hold.Store(-1)
	if rec.Pointer.Manifest != "" {
		st, err := c.engine.StartState(ctx, id)
		if err != nil {
			c.t.Fatal(err)
		}
		if err := log.StartAt(st.LogStart, st.Through, st.Epochs, st.Producers, st.LastAppend); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := log.AssignEpoch(p.epoch); err != nil {
		c.t.Fatal(err)
	}
	if p.tier, err = c.engine.Lead(ctx, id, p.epoch, p, tier.TopicConfig{Name: t.Name, RetentionMs: -1, RetentionBytes: -1}); err != nil {
		c.t.Fatal(err)
	}
	c.parts[id] = p
}

func (c *cluster) part(t *meta.Topic, n int) *part {
	return c.parts[manifest.PartitionID{Topic: t.ID, Partition: int32(n)}]
}

// produce appends one batch of n records, whose values name cluster, topic, partition and offset.
func (c *cluster) produce(t *meta.Topic, partition, n int) {
	c.t.Helper()
	c.append(t, partition, c.batch(t, partition, n, record.BatchOptions{ProducerID: -1}))
}

func (c *cluster) batch(t *meta.Topic, partition, n int, o record.BatchOptions) record.Batch {
	c.t.Helper()
	base := c.part(t, partition).log.LEO()
	recs := make([]record.Record, n)
	for i := range recs {
		off := base + int64(i)
		recs[i] = record.Record{Offset: int64(i), Timestamp: time.Now().UnixMilli(), Key: fmt.Appendf(nil, "k%d", off), Value: []byte(c.value(t, partition, off))}
	}
	b, err := record.Build(nil, o, recs)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *cluster) value(t *meta.Topic, partition int, off int64) string {
	return fmt.Sprintf("%s/%s/%d/%d", c.url, t.Name, partition, off)
}

func (c *cluster) append(t *meta.Topic, partition int, batches ...record.Batch) {
	c.t.Helper()
	p := c.part(t, partition)
	if _, err := p.log.Append(batches, p.epoch, localseg.OriginInternal); err != nil {
		c.t.Fatal(err)
	}
	p.tier.Notify()
}

func (c *cluster) roll(t *meta.Topic, partition int) {
	c.t.Helper()
	p := c.part(t, partition)
	if err := p.log.Roll(); err != nil {
		c.t.Fatal(err)
	}
	p.tier.Notify()
	synctest.Wait()
}

// pass lets time go by: what is to be archived is, and marks are written.
func (c *cluster) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func now() int64 { return time.Now().UnixMilli() }

// drop deletes a topic as the broker and its archivist do.
func (c *cluster) drop(t *meta.Topic) {
	c.t.Helper()
	for i := range t.Partitions {
		p := c.part(t, i)
		if err := p.tier.Flush(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
		p.tier.Resign()
	}
	if err := c.store.DeleteTopic(c.t.Context(), t.Name); err != nil {
		c.t.Fatal(err)
	}
	c.record(t.ID)
	del := c.store.Image().Deleted[t.ID]
	if _, err := c.engine.CollectDeleted(c.t.Context(), t.ID, int32(len(t.Partitions)), del.DeletedMs, 0); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) source() *Source {
	c.t.Helper()
	s, err := OpenSource(c.t.Context(), c.url, c.net.open)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (c *cluster) inventory() *Inventory {
	c.t.Helper()
	inv, err := TakeInventory(c.t.Context(), c.source())
	if err != nil {
		c.t.Fatal(err)
	}
	return inv
}

func (c *cluster) plan(req Request) (*Plan, error) {
	c.t.Helper()
	s := c.source()
	inv, err := TakeInventory(c.t.Context(), s)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Internal = true
	return Prepare(c.t.Context(), s, inv, req)
}

// restoring prepares a restore of the cluster's archive into a new directory, whose archive is at the URL and whose metadata
// is in memory.
type restoring struct {
	*ClusterRestore
	kv *memkv.KV
}

func (c *cluster) restoring(to string, req Request) *restoring {
	r := &restoring{kv: memkv.New()}
	r.ClusterRestore = &ClusterRestore{Source: c.url, Request: req, Dir: c.t.TempDir(), Archive: to, Open: c.net.open,
		OpenMetadata: func(context.Context, string) (meta.KV, func() error, error) {
			return r.kv, func() error { return nil }, nil
		},
		WipeMetadata: func(string) error { r.kv = memkv.New(); return nil }}
	return r
}

// restore restores into a new cluster and starts it.
func (c *cluster) restore(to string, req Request) *cluster {
	c.t.Helper()
	r := c.restoring(to, req)
	res, err := r.Run(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return startCluster(c.t, c.net, to, r.kv, res.Cluster)
}

// values reads all records of a partition through the archive's own reader, as the broker would for a consumer: by offset.
func (c *cluster) values(topic string, partition int) map[int64]string {
	c.t.Helper()
	synctest.Wait()
	t := c.store.Image().Topics[topic]
	if t == nil {
		c.t.Fatalf("no topic %s; there are %v", topic, slices.Sorted(maps.Keys(c.store.Image().Topics)))
	}
	p := c.part(t, partition)
	out := map[int64]string{}
	off := p.tier.Manifest().LogStart
	for off < p.tier.Through() {
		d, err := p.tier.Read(c.t.Context(), off, 1<<20)
		if err != nil {
			c.t.Fatalf("read %s:%d at %d: %v", topic, partition, off, err)
		}
		for _, part := range d.Parts {
			for len(part) > 0 {
				b, rest, err := record.Next(part)
				if err == nil {
					err = b.Check()
				}
				if err != nil {
					c.t.Fatal(err)
				}
				it := b.Records(1 << 20)
				for it.Next() {
					if r := it.Record(); r.Offset >= off && !b.Control() {
						out[r.Offset] = string(r.Value)
					}
				}
				it.Close()
				part = rest
			}
		}
		if d.Next <= off {
			c.t.Fatalf("read %s:%d at %d goes on at %d", topic, partition, off, d.Next)
		}
		off = d.Next
		d.Release()
	}
	return out
}

// wantRange checks that a partition has exactly the records [from, to) that origin produced.
func (c *cluster) wantRange(origin *cluster, topic string, partition int, from, to int64) {
	c.t.Helper()
	got := c.values(topic, partition)
	t := c.store.Image().Topics[topic]
	for off := from; off < to; off++ {
		if want := origin.value(t, partition, off); got[off] != want {
			c.t.Fatalf("%s:%d at %d: %q, want %q", topic, partition, off, got[off], want)
		}
	}
	if int64(len(got)) != to-from {
		c.t.Fatalf("%s:%d has %d records, want %d", topic, partition, len(got), to-from)
	}
	if leo := c.part(t, partition).log.LEO(); leo != to {
		c.t.Fatalf("%s:%d goes on at %d, want %d", topic, partition, leo, to)
	}
}

func atTime(ms int64) Request { return Request{Target: Target{Kind: AtTime, Time: ms}} }

func latest() Request { return Request{Target: Target{Kind: Latest}} }

func atOffsets(t *testing.T, text string) Request {
	t.Helper()
	list, err := ParseOffsets(text)
	if err != nil {
		t.Fatal(err)
	}
	return Request{Target: Target{Kind: Offsets, Offsets: list}}
}
