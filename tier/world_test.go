package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/record"
)

var (
	topicA = manifest.TopicID{1}
	partA  = manifest.PartitionID{Topic: topicA, Partition: 0}
)

var errPointers = errors.New("injected: metadata store unavailable")

// pointers is a metadata store in memory whose calls can be made to fail.
type pointers struct {
	mu      sync.Mutex
	records map[manifest.PartitionID]Pointer
	calls   int
	failAt  int  // this call fails ...
	lost    bool // ... after it was done
	allFail bool
	before  func() // called once, by the next Commit, before it looks at the record
	loaded  func() // called once, after the next Load has read the record
	living  bool   // the topics are not deleted any more
	commits []Pointer
}

func (f *pointers) hit() (fail bool) {
	f.calls++
	return f.allFail || f.calls == f.failAt
}

func (f *pointers) Load(_ context.Context, id manifest.PartitionID) (Pointer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hit() {
		return Pointer{}, errPointers
	}
	p := f.records[id]
	p.Pins = slices.Clone(p.Pins)
	if loaded := f.loaded; loaded != nil {
		f.loaded = nil
		f.mu.Unlock()
		loaded()
		f.mu.Lock()
	}
	return p, nil
}

func (f *pointers) Commit(_ context.Context, id manifest.PartitionID, old, next Pointer) (Pointer, error) {
	f.mu.Lock()
	before := f.before
	f.before = nil
	f.mu.Unlock()
	if before != nil {
		before()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fail := f.hit()
	if fail && !f.lost {
		return Pointer{}, errPointers
	}
	now := f.records[id]
	if now.Guard != old.Guard || now.Incarnation != old.Incarnation {
		return Pointer{}, ErrConflict
	}
	next.Guard = now.Guard + 1
	next.LeaderEpoch, next.Pins, next.Undeleted = now.LeaderEpoch, now.Pins, false
	f.records[id] = next
	f.commits = append(f.commits, next)
	if fail {
		return Pointer{}, errPointers
	}
	return next, nil
}

func (f *pointers) CommitDeleted(ctx context.Context, id manifest.PartitionID, old, next Pointer) (Pointer, error) {
	f.mu.Lock()
	before := f.before
	f.before = nil
	f.mu.Unlock()
	if before != nil {
		before()
	}
	f.mu.Lock()
	living := f.living
	f.mu.Unlock()
	if living {
		return Pointer{}, ErrConflict
	}
	return f.Commit(ctx, id, old, next)
}

func (f *pointers) ElectDeleted(_ context.Context, id manifest.PartitionID, old Pointer) (Pointer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fail := f.hit()
	if fail && !f.lost {
		return Pointer{}, errPointers
	}
	now := f.records[id]
	if now.Guard != old.Guard || f.living {
		return Pointer{}, ErrConflict
	}
	now.LeaderEpoch++
	now.Guard++
	f.records[id] = now
	if fail {
		return Pointer{}, errPointers
	}
	return now, nil
}

func (f *pointers) change(id manifest.PartitionID, edit func(*Pointer)) Pointer {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.records[id]
	edit(&p)
	p.Guard++
	f.records[id] = p
	return p
}

func (f *pointers) get(id manifest.PartitionID) Pointer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.records[id]
}

// source is the hot side: a real log in a file system in memory.
type source struct {
	log *localseg.Log
	hw  atomic.Int64 // committed; -1: the log's end
}

func (s *source) Log() *localseg.Log { return s.log }
func (s *source) Committed() int64 {
	if hw := s.hw.Load(); hw >= 0 {
		return hw
	}
	return min(s.log.LEO(), s.log.FirstUnstable())
}
func (s *source) SetLogStart(off int64) error { return s.log.SetLogStart(off) }

// world is a bucket with faults, a metadata store and one partition's log.
type world struct {
	t     *testing.T
	mem   *mem.Bucket
	fault *fault.Bucket
	ptrs  *pointers
	fs    *vfs.Mem
	src   *source
	info  manifest.ArchiveInfo
	opts  Options
	held  Held // of brokers' other replicas; nil: no marks
	cache *cache.Cache
	epoch int32
	dirs  int
	mark  string // in the values of what is appended
}

// in runs f with a new world inside a bubble.
func in(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, mem: mem.New(mem.Options{}), fs: vfs.NewMem()}
	w.fault = fault.New(w.mem, fault.Options{})
	w.ptrs = &pointers{records: map[manifest.PartitionID]Pointer{}}
	var err error
	if w.info, _, err = OpenArchive(t.Context(), w.mem, "c1"); err != nil {
		t.Fatal(err)
	}
	w.opts = Options{Cluster: "c1", Incarnation: 1, ChunkBytes: 2 << 10, SweepInterval: time.Minute}
	w.held = func(upTo int64, _ bool) (int64, bool) { return upTo, true }
	w.newLog()
	return w
}

// newLog replaces the local log by an empty one.
func (w *world) newLog() {
	w.t.Helper()
	w.dirs++
	l, err := localseg.Open(w.fs, w.dir(), w.logOptions())
	if err != nil {
		w.t.Fatal(err)
	}
	w.src = &source{log: l}
	w.src.hw.Store(-1)
}

func (w *world) dir() string { return fmt.Sprintf("a-%d", w.dirs) }

func (w *world) logOptions() localseg.Options {
	return localseg.Options{Topic: "a", TopicID: topicA,
		Config: localseg.Config{SegmentBytes: 8 << 10, IndexIntervalBytes: 512, Tiered: true, LocalRetentionBytes: 1, RetentionMs: -1, RetentionBytes: -1}}
}

// node is one broker process that leads the partition.
type node struct {
	a    *Archive
	p    *Partition
	stop func()
}

// elect makes a new leader epoch in the metadata store.
func (w *world) elect() int32 {
	w.epoch = max(w.epoch, w.ptrs.get(partA).LeaderEpoch) + 1
	w.ptrs.change(partA, func(p *Pointer) { p.LeaderEpoch, p.Incarnation = w.epoch, 1 })
	return w.epoch
}

// lead elects and starts a broker on the world's log.
func (w *world) lead(c TopicConfig) *node {
	w.t.Helper()
	epoch := w.elect()
	if err := w.src.log.AssignEpoch(epoch); err != nil {
		w.t.Fatal(err)
	}
	return w.start(epoch, c)
}

func (w *world) start(epoch int32, c TopicConfig) *node {
	w.t.Helper()
	if c.Name == "" {
		c.Name = "a"
	}
	a := New(w.fault, w.info, w.ptrs, w.cache, w.opts)
	if w.held != nil {
		a.MarkBy(w.held)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = a.Run(ctx) })
	n := &node{a: a, stop: sync.OnceFunc(func() { cancel(); wg.Wait() })}
	w.t.Cleanup(n.stop)
	p, err := a.Lead(w.t.Context(), partA, epoch, w.src, c)
	if err != nil {
		w.t.Fatalf("lead in epoch %d: %v", epoch, err)
	}
	n.p = p
	return n
}

// append writes n records, one batch each, with values that name offset and epoch.
func (w *world) append(n int) {
	w.t.Helper()
	for range n {
		off := w.src.log.LEO()
		b, err := record.Build(nil, record.BatchOptions{ProducerID: -1}, []record.Record{{
			Timestamp: time.Now().UnixMilli(), Key: []byte("k"), Value: w.value(off)}})
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := w.src.log.Append([]record.Batch{b}, w.epoch, localseg.OriginClient); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) value(off int64) []byte {
	return fmt.Appendf(nil, "v%d-%s-%s", off, w.mark, strings.Repeat("x", 400))
}

func (w *world) roll() {
	w.t.Helper()
	if err := w.src.log.Roll(); err != nil {
		w.t.Fatal(err)
	}
}

// settle lets everything that can be done now be done.
func settle(n *node) {
	for range 20 {
		n.p.Notify()
		time.Sleep(coalesce)
		synctest.Wait()
	}
}

// decode lists the records of the data.
func decode(t *testing.T, d Data) []record.Record {
	t.Helper()
	var out []record.Record
	for _, part := range d.Parts {
		for len(part) > 0 {
			b, rest, err := record.Next(part)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Check(); err != nil {
				t.Fatal(err)
			}
			it := b.Records(1 << 20)
			for it.Next() {
				r := it.Record()
				r.Value = slices.Clone(r.Value)
				out = append(out, r)
			}
			if it.Err() != nil {
				t.Fatal(it.Err())
			}
			it.Close()
			part = rest
		}
	}
	return out
}

// readAll reads the archive from off to Through, as a consumer would.
func readAll(t *testing.T, p *Partition, off int64) map[int64]string {
	t.Helper()
	got := map[int64]string{}
	for off < p.Through() {
		d, err := p.Read(t.Context(), off, 3000)
		if err != nil {
			t.Fatalf("read %d: %v", off, err)
		}
		if d.Next <= off {
			t.Fatalf("read %d goes on at %d", off, d.Next)
		}
		for _, r := range decode(t, d) {
			if r.Offset >= off {
				got[r.Offset] = string(r.Value)
			}
		}
		off = d.Next
		d.Release()
	}
	return got
}

// wantArchived checks that exactly the log's records in [from, to) can be read from the archive.
func (w *world) wantArchived(p *Partition, from, to int64) {
	w.t.Helper()
	if p.Through() < to {
		w.t.Fatalf("archived through %d, want %d", p.Through(), to)
	}
	got := readAll(w.t, p, from)
	for off := from; off < to; off++ {
		if want := string(w.value(off)); got[off] != want {
			w.t.Fatalf("offset %d: read %.20q, want %.20q", off, got[off], want)
		}
	}
}

// keys lists the bucket.
func (w *world) keys(prefix string) []string {
	w.t.Helper()
	var out []string
	for i, err := range w.mem.List(context.Background(), prefix, "") {
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, i.Key)
	}
	return out
}

// check looks at the bucket alone: the committed manifest is behind its pointer, and nothing that it lists as live or
// dead is missing.
func (w *world) check() *manifest.Manifest {
	w.t.Helper()
	ptr := w.ptrs.get(partA)
	if ptr.Manifest == "" {
		return nil
	}
	r, err := OpenBucket(context.Background(), w.mem, ReaderOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := r.Manifest(context.Background(), ptr.Manifest)
	if err != nil {
		w.t.Fatalf("committed manifest: %v", err)
	}
	for e, err := range r.Entries(context.Background(), m) {
		if err != nil {
			w.t.Fatal(err)
		}
		if e.State == manifest.Doomed {
			continue
		}
		if _, err := w.mem.Head(context.Background(), e.Object); err != nil {
			w.t.Fatalf("%v entry [%d, %d): %v", e.State, e.Base, e.End, err)
		}
		for _, err := range r.Batches(context.Background(), e, e.Base) {
			if err != nil {
				w.t.Fatalf("entry [%d, %d): %v", e.Base, e.End, err)
			}
		}
	}
	return m
}

func entriesOf(m *manifest.Manifest, s manifest.State) (out []string) {
	for _, e := range m.Entries {
		if e.State == s {
			kind := ""
			if e.Tail {
				kind = "t"
			}
			out = append(out, fmt.Sprintf("%s[%d,%d)", kind, e.Base, e.End))
		}
	}
	return out
}

func wantEqual[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s = %v, want %v", what, got, want)
	}
}

var _ objstore.Bucket = (*fault.Bucket)(nil)
