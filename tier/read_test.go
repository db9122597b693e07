package tier

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/localseg/localsegtest"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/record"
)

func (w *world) withCache() {
	w.t.Helper()
	c, err := cache.New(cache.Options{MemoryBytes: 16 << 20})
	if err != nil {
		w.t.Fatal(err)
	}
	w.cache = c
	w.t.Cleanup(func() { _ = c.Close() })
}

func (w *world) put(from localseg.Origin, batches ...record.Batch) {
	w.t.Helper()
	for _, b := range batches {
		if _, err := w.src.log.Append([]record.Batch{b}, w.epoch, from); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestReadCrossesChunksAndSegmentsUpToMaxBytes(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.withCache()
		n := w.archived(100, TopicConfig{})
		for _, max := range []int{1, 500, 2000, 2 << 10, 9000, 1 << 20} {
			d, err := n.p.Read(t.Context(), 3, max)
			if err != nil {
				t.Fatal(err)
			}
			got := decode(t, d)
			for i, r := range got {
				if r.Offset != 3+int64(i) {
					t.Fatalf("max %d: record %d has offset %d", max, i, r.Offset)
				}
			}
			want := int64(len(got)) + 3
			if d.Base != 3 || d.Next != want || d.Size() > max && len(got) > 1 {
				t.Fatalf("max %d: [%d, %d) of %d bytes, %d records", max, d.Base, d.Next, d.Size(), len(got))
			}
			if more := max - d.Size(); d.Next < 100 && more >= 600 {
				t.Fatalf("max %d: only %d bytes although more follow", max, d.Size())
			}
			d.Release()
		}
		for _, off := range []int64{-1, 100, 1000} {
			if _, err := n.p.Read(t.Context(), off, 1); !errors.Is(err, localseg.ErrOffsetOutOfRange) {
				t.Fatalf("read at %d: %v", off, err)
			}
		}
	})
}

// edit commits a manifest as a restore would: the committed one, changed.
func (w *world) edit(change func(*manifest.Manifest)) {
	w.t.Helper()
	r, err := OpenBucket(w.t.Context(), w.mem, ReaderOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := r.Manifest(w.t.Context(), w.ptrs.get(partA).Manifest)
	if err != nil {
		w.t.Fatal(err)
	}
	change(m)
	m.N++
	if _, err := w.mem.Put(w.t.Context(), m.Key(), objstore.BytesBody(m.Encode()), objstore.Cond{IfNoneMatch: true}); err != nil {
		w.t.Fatal(err)
	}
	w.ptrs.change(partA, func(p *Pointer) { p.Manifest, p.N, p.Through = m.Key(), m.N, m.Through })
}

func TestTrimmedEntryNeverShowsRecordsAtOrAboveItsEnd(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		for range 5 { // batches of ten records
			w.put(localseg.OriginClient, localsegtest.Plain(t, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
		}
		w.roll()
		settle(n)
		n.stop()
		w.edit(func(m *manifest.Manifest) { m.Entries[0].End, m.Through = 34, 34 })
		w.restart()
		n = w.lead(TopicConfig{})
		if got := len(readAll(t, n.p, 0)); got != 34 {
			t.Fatalf("%d records of an entry cut at 34", got)
		}
		d, err := n.p.Read(t.Context(), 33, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if got := decode(t, d); len(got) != 4 || got[3].Offset != 33 || d.Next != 34 {
			t.Fatalf("read at 33: %d records, next %d", len(got), d.Next)
		}
		if ts, err := n.p.OffsetForTime(t.Context(), 5); err != nil || ts.Offset != 4 {
			t.Fatalf("time 5: %+v, %v", ts, err)
		}
		if ts, err := n.p.MaxTimestamp(t.Context()); err != nil || ts.Offset != 9 || ts.Timestamp != 10 {
			t.Fatalf("largest: %+v, %v", ts, err)
		}
		w.put(localseg.OriginClient, localsegtest.Plain(t, 20))
		w.roll()
		settle(n)
		if got := len(readAll(t, n.p, 0)); got != 35 {
			t.Fatalf("%d records after one more", got)
		}
	})
}

func TestReadInAHoleGoesOnBehindIt(t *testing.T) { // BUG-014
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		put := func(offs ...int64) {
			for _, off := range offs {
				b := localsegtest.Batch(t, record.BatchOptions{BaseOffset: off, ProducerID: -1}, off)
				w.put(localseg.OriginReplica, b)
			}
		}
		put(0, 2, 3, 4)
		w.roll()
		put(8, 9)
		w.roll()
		put(12)
		w.roll()
		settle(n)
		for off, want := range map[int64]int64{0: 0, 1: 2, 4: 4, 5: 8, 7: 8, 10: 12} {
			d, err := n.p.Read(t.Context(), off, 1)
			if err != nil {
				t.Fatal(err)
			}
			if got := decode(t, d); len(got) != 1 || got[0].Offset != want {
				t.Fatalf("read at %d: %+v, want %d", off, got, want)
			}
		}
	})
}

func TestLookUpsByTimeAreExact(t *testing.T) { // BUG-039
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		for seg := range int64(3) {
			for i := range int64(10) {
				off := seg*10 + i
				ts := 1000 + off
				if off == 1 {
					ts = 9000
				}
				w.put(localseg.OriginClient, localsegtest.Batch(t, record.BatchOptions{ProducerID: -1, Codec: record.Codec(off % 5)}, ts, ts))
			}
			w.roll()
		}
		settle(n)
		if got, err := n.p.MaxTimestamp(t.Context()); err != nil || got.Offset != 2 || got.Timestamp != 9000 {
			t.Fatalf("largest: %+v, %v", got, err)
		}
		for ts, want := range map[int64]int64{0: 0, 1000: 0, 1001: 2, 1002: 2, 9000: 2, 9001: -1} {
			if got, err := n.p.OffsetForTime(t.Context(), ts); err != nil || got.Offset != want {
				t.Fatalf("time %d: %+v, %v, want %d", ts, got, err, want)
			}
		}
		_ = w.src.log.SetLogStart(23)
		n.p.DeleteBefore(23)
		settle(n)
		for ts, want := range map[int64]int64{0: 23, 1011: 23, 1012: 24, 1029: 58, 1030: -1} {
			if got, err := n.p.OffsetForTime(t.Context(), ts); err != nil || got.Offset != want {
				t.Fatalf("above the log start, time %d: %+v, %v, want %d", ts, got, err, want)
			}
		}
		if got, err := n.p.MaxTimestamp(t.Context()); err != nil || got.Offset != 58 || got.Timestamp != 1029 {
			t.Fatalf("largest above the log start: %+v, %v", got, err)
		}
	})
}

func TestAbortedTransactionIsFoundThoughItsMarkerIsSegmentsAway(t *testing.T) { // BUG-002
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		w.put(localseg.OriginClient, localsegtest.Transactional(t, 7, 0, 0, 1))
		for i := range 25 {
			w.put(localseg.OriginClient, localsegtest.Plain(t, int64(i)))
			if i%10 == 9 {
				w.roll()
			}
		}
		settle(n)
		time.Sleep(time.Minute)
		if got := n.p.Through(); got != 0 {
			t.Fatalf("archived through %d above the last stable offset 0", got)
		}
		w.put(localseg.OriginInternal, localsegtest.Marker(7, 0, 30, false))
		for i := range 34 {
			w.put(localseg.OriginClient, localsegtest.Plain(t, int64(i)))
		}
		w.roll()
		settle(n)
		for _, r := range [][2]int64{{0, 1}, {0, 61}, {5, 6}, {20, 27}} {
			got, err := n.p.Aborted(t.Context(), r[0], r[1])
			if err != nil || len(got) != 1 || got[0].ProducerID != 7 || got[0].First != 0 {
				t.Fatalf("aborted in %v: %+v, %v", r, got, err)
			}
		}
		if got, err := n.p.Aborted(t.Context(), 30, 61); err != nil || len(got) != 0 {
			t.Fatalf("aborted behind the marker: %+v, %v", got, err)
		}
	})
}

func TestReaderOvertakenByCollectionSeesDataOrOutOfRange(t *testing.T) { // BUG-085
	in(t, func(t *testing.T, w *world) {
		n := w.dying()
		zombie := n.p.view.Load()
		n.stop()
		n2 := w.lead(TopicConfig{RestoreWindowMs: hour})
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		if got := w.segments(); got != 1 {
			t.Fatalf("%d objects", got)
		}
		_ = n2
		// The deposed leader's view still has the first segment below its log start; reads above go on, below do not.
		if d, err := n.p.Read(t.Context(), 20, 1); err != nil || d.Base != 20 {
			t.Fatalf("read of what is left: %v", err)
		}
		old := *zombie.man
		old.LogStart = 0
		old.Entries = slices.Clone(old.Entries)
		old.Entries[0].State, old.Entries[0].DeadAt, old.Entries[0].Reason = manifest.Live, 0, manifest.NoReason
		n.p.view.Store(newView(zombie.ptr, &old))
		if _, err := n.p.Read(t.Context(), 3, 1); !errors.Is(err, localseg.ErrOffsetOutOfRange) {
			t.Fatalf("read of what was collected: %v, want out of range", err)
		}
	})
}

func TestMissingObjectOfTheCommittedManifestIsDamage(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(34, TopicConfig{})
		_ = w.mem.Delete(t.Context(), n.p.Manifest().Entries[0].Object)
		var bad *CorruptError
		if _, err := n.p.Read(t.Context(), 3, 1); !errors.As(err, &bad) {
			t.Fatalf("read: %v, want a CorruptError", err)
		}
		if d, err := n.p.Read(t.Context(), 17, 1); err != nil || d.Base != 17 {
			t.Fatalf("the other segment: %v", err)
		}
	})
}

func TestFlippedBitIsFoundWithItsPlaceOrHealedIfItWasInTheAnswer(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(17, TopicConfig{})
		key := n.p.Manifest().Entries[0].Object
		w.fault.SetRules(fault.Rule{Op: fault.Get, Prefix: key, From: 2, Count: 1, Effect: fault.Flip, At: 100})
		if d, err := n.p.Read(t.Context(), 0, 1); err != nil || d.Next != 1 {
			t.Fatalf("one bad answer: %v", err)
		}
		w.fault.SetRules()
		w.mem.Corrupt(key, func(b []byte) []byte { b[3000] ^= 4; return b })
		var bad *CorruptError
		if _, err := n.p.Read(t.Context(), 6, 1); !errors.As(err, &bad) || bad.Object != key || bad.Chunk != 1 {
			t.Fatalf("damaged chunk: %v", err)
		}
		w.mem.Corrupt(key, func(b []byte) []byte { b[len(b)-30] ^= 4; return b })
		n2 := w.lead(TopicConfig{})
		if _, err := n2.p.Read(t.Context(), 0, 1); !errors.As(err, &bad) || bad.Chunk != -1 || !strings.Contains(err.Error(), key) {
			t.Fatalf("damaged footer: %v", err)
		}
	})
}

func TestUnavailableStoreStaysRetriable(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(17, TopicConfig{})
		w.fault.SetRules(fault.Rule{Op: fault.Get, Effect: fault.Fail})
		if _, err := n.p.Read(t.Context(), 0, 1); !objstore.Retryable(err) {
			t.Fatalf("read: %v", err)
		}
		w.fault.SetRules(fault.Rule{Op: fault.Get, Effect: fault.Truncate, At: 10})
		if _, err := n.p.Read(t.Context(), 0, 1); !objstore.Retryable(err) {
			t.Fatalf("read of a body that breaks off: %v", err)
		}
	})
}

func TestSequentialReaderFindsItsChunksInTheCache(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.withCache()
		n := w.archived(1000, TopicConfig{})
		before, off := 0, int64(0)
		for reads := 0; off < 1000; reads++ {
			d, err := n.p.Read(t.Context(), off, 1000)
			if err != nil {
				t.Fatal(err)
			}
			off = d.Next
			d.Release()
			if reads == 2 {
				time.Sleep(time.Second)
				synctest.Wait() // the readahead has run over all segments
				before = w.fault.Calls(fault.Get)
			}
		}
		if gets := w.fault.Calls(fault.Get) - before; gets > 0 {
			t.Fatalf("the reader waited for %d requests after its third read", gets)
		}
	})
}

func TestSequenceNotesOnlySequentialReaders(t *testing.T) {
	var s sequence
	if got := s.note(0, 10, 1<<20, 16<<20); got != 0 {
		t.Fatalf("first read: %d ahead", got)
	}
	if got := s.note(10, 20, 1<<20, 16<<20); got != windowInitial {
		t.Fatalf("second read: %d ahead", got)
	}
	if got := s.note(20, 30, 1<<20, 16<<20); got != 0 {
		t.Fatalf("enough ahead: %d more", got)
	}
	if got := s.note(500, 510, 1<<20, 16<<20); got != 0 {
		t.Fatalf("a jump: %d ahead", got)
	}
	if got := s.note(30, 40, 2<<20, 16<<20); got != 2*windowInitial {
		t.Fatalf("half is used up: %d ahead, want twice the window", got)
	}
	for i := range int64(100) {
		s.note(1000*i, 1000*i+1, 1, 16<<20)
	}
	if len(s.list) > readersKnown {
		t.Fatalf("%d readers remembered", len(s.list))
	}
}

func TestBucketAloneShowsWhatIsCommitted(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(60, TopicConfig{})
		rec := manifest.TopicRecord{N: 1, Event: manifest.TopicCreated, Time: 5, ID: topicA, Name: "a", Partitions: 1}
		if err := n.a.PutTopic(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		n.stop()
		r, err := OpenBucket(t.Context(), w.mem, ReaderOptions{})
		if err != nil || r.Incarnation() != 1 || r.Info().Cluster != "c1" {
			t.Fatalf("open: %+v, %v", r, err)
		}
		parts, err := r.Partitions(t.Context(), topicA)
		if err != nil || len(parts) != 1 || parts[0] != partA {
			t.Fatalf("partitions %v, %v", parts, err)
		}
		m, err := r.Tip(t.Context(), partA)
		if err != nil || m.Key() != w.ptrs.get(partA).Manifest {
			t.Fatalf("tip: %v", err)
		}
		// A number of another, unsealed incarnation is no tip.
		unsealed := *m
		unsealed.Incarnation = 2
		_, _ = w.mem.Put(t.Context(), unsealed.Key(), objstore.BytesBody(unsealed.Encode()), objstore.Cond{})
		if m2, err := r.Tip(t.Context(), partA); err != nil || m2.Key() != m.Key() {
			t.Fatalf("tip beside an unsealed incarnation: %v", err)
		}
		next := int64(0)
		for e, err := range r.Entries(t.Context(), m) {
			if err != nil {
				t.Fatal(err)
			}
			if f, err := r.Footer(t.Context(), e); err != nil || f.Partition != partA {
				t.Fatalf("footer: %v", err)
			}
			for b, err := range r.Batches(t.Context(), e, e.Base) {
				if err != nil || b.BaseOffset() != next {
					t.Fatalf("batch at %d: %v", next, err)
				}
				next = b.NextOffset()
			}
		}
		if next != 60 {
			t.Fatalf("batches end at %d", next)
		}
		if m, err := r.Tip(t.Context(), manifest.PartitionID{Topic: topicA, Partition: 9}); m != nil || err != nil {
			t.Fatalf("tip of nothing: %v, %v", m, err)
		}
	})
}

func TestOpenArchiveSaysWhatItFound(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		if info, inc, err := OpenArchive(ctx, w.mem, "c1"); err != nil || inc != 1 || info.ID != w.info.ID {
			t.Fatalf("again: %+v, %d, %v", info, inc, err)
		}
		if _, _, err := OpenArchive(ctx, w.mem, "c2"); !errors.Is(err, ErrNotOurs) || !strings.Contains(err.Error(), "c1") {
			t.Fatalf("another cluster: %v", err)
		}
		seal, _ := manifest.Seal{Incarnation: 3, ID: "r", Cluster: "c1", From: 1}.Encode()
		_, _ = w.mem.Put(ctx, manifest.SealKey(3), objstore.BytesBody(seal), objstore.Cond{})
		if _, inc, err := OpenArchive(ctx, w.mem, "c1"); err != nil || inc != 3 {
			t.Fatalf("highest sealed incarnation %d, %v", inc, err)
		}
		_ = w.mem.Delete(ctx, archiveKey)
		if _, _, err := OpenArchive(ctx, w.mem, "c1"); !errors.Is(err, ErrNotOurs) {
			t.Fatalf("other content: %v", err)
		}
		_, _ = w.mem.Put(ctx, archiveKey, objstore.BytesBody([]byte(`{"x":1}`)), objstore.Cond{})
		if _, _, err := OpenArchive(ctx, w.mem, "c1"); !errors.Is(err, ErrNotOurs) {
			t.Fatalf("garbage: %v", err)
		}
		if _, err := OpenBucket(ctx, fault.New(w.mem, fault.Options{}), ReaderOptions{}); !errors.Is(err, ErrNotOurs) {
			t.Fatalf("read garbage: %v", err)
		}
	})
}

func TestOpenArchiveSurvivesAFailureAtEachStep(t *testing.T) {
	for _, effect := range []fault.Effect{fault.Fail, fault.Lost} {
		for k := 1; k < 12; k++ {
			in(t, func(t *testing.T, w *world) {
				b := fault.New(w.mem, fault.Options{})
				_ = w.mem.Delete(t.Context(), w.keys("")...)
				b.SetRules(fault.Rule{From: k, Count: 1, Effect: effect})
				_, _, _ = OpenArchive(t.Context(), b, "c1")
				b.SetRules()
				info, inc, err := OpenArchive(t.Context(), b, "c1")
				if err != nil || inc != 1 || info.ID == "" {
					t.Fatalf("effect %d at call %d: %d, %v", effect, k, inc, err)
				}
			})
		}
	}
}

// Brokers of a new cluster that start at once see each other's probes.
func TestOpenArchiveTakesTheProbesOfOthersForNothing(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := mem.New(mem.Options{})
		_, _ = b.Put(t.Context(), objstore.ProbePrefix+"349c091393829ac1/o-b", objstore.BytesBody([]byte("x")), objstore.Cond{})
		if _, inc, err := OpenArchive(t.Context(), b, "c1"); err != nil || inc != 1 {
			t.Fatalf("incarnation %d, %v", inc, err)
		}
	})
}

// Checksums are no proof: whoever made the object made them, too.
func TestBatchesWhoseOffsetsGoBackAreDamage(t *testing.T) {
	at := func(base int64) record.Batch {
		b := localsegtest.Plain(t, 1)
		b.SetOffset(base)
		return b
	}
	both := slices.Concat(at(10), at(11))
	if got, err := take(both, 100, 1<<20, true); err != nil || got.next != 12 || len(got.whole) != len(both) {
		t.Fatalf("next %d, %v", got.next, err)
	}
	for _, second := range []int64{10, 5} {
		if got, err := take(slices.Concat(at(10), at(second)), 100, 1<<20, true); !errors.Is(err, record.ErrCorrupt) {
			t.Fatalf("offset %d after 10: next %d, %v", second, got.next, err)
		}
	}
}
