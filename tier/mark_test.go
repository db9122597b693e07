package tier

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
)

// readMark reads the world's mark; ok: there is one.
func (w *world) readMark() (manifest.Mark, bool) {
	w.t.Helper()
	b, _, err := objstore.ReadAll(w.t.Context(), w.mem, manifest.MarkKey("c1", 0), 1<<20)
	if err != nil {
		return manifest.Mark{}, false
	}
	m, err := manifest.DecodeMark(b)
	if err != nil {
		w.t.Fatal(err)
	}
	return m, true
}

func TestMarkFollowsTheClockWhileNothingIsPending(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.opts.MaxLag, w.opts.RestoreWindow = 10*time.Second, time.Hour
		n := w.lead(TopicConfig{})
		w.append(3)
		n.p.Notify()
		time.Sleep(time.Minute)
		synctest.Wait()
		m, ok := w.readMark()
		if late := time.Now().UnixMilli() - m.TimeMs; !ok || late < 100 || late > 11_000 || m.WindowMs != 3600_000 {
			t.Fatalf("mark %+v, %d ms old", m, late)
		}
	})
}

func TestMarkStaysBelowThePendingRecord(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.opts.MaxLag = time.Second
		n := w.lead(TopicConfig{})
		w.append(3)
		n.p.Notify()
		time.Sleep(time.Minute)
		w.src.hw.Store(3)
		at := time.Now().UnixMilli()
		w.append(1)
		time.Sleep(time.Hour)
		synctest.Wait()
		if m, _ := w.readMark(); m.TimeMs >= at {
			t.Fatalf("mark %d, a record of %d is not archived", m.TimeMs, at)
		}
		w.src.hw.Store(-1)
		n.p.Notify()
		time.Sleep(time.Minute)
		synctest.Wait()
		if m, _ := w.readMark(); m.TimeMs < at {
			t.Fatalf("mark %d, all is archived", m.TimeMs)
		}
	})
}

func TestMarkThatWasRemovedIsWrittenAnewOnDemand(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.opts.MaxLag = time.Hour
		n := w.lead(TopicConfig{})
		w.append(3)
		time.Sleep(time.Second)
		if err := n.a.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		was, ok := w.readMark()
		if err := n.a.DropMark(t.Context(), 0); err != nil || !ok {
			t.Fatal(ok, err)
		}
		time.Sleep(time.Second) // nothing of it is archived: the mark does not move
		for _, mark := range []func(context.Context) error{n.a.Mark, n.a.Remark} {
			if _, ok := w.readMark(); ok {
				t.Fatal("a mark that has not moved is written anew without being asked for")
			}
			if err := mark(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if is, ok := w.readMark(); !ok || is.TimeMs != was.TimeMs {
			t.Fatalf("%+v, %t; was %+v", is, ok, was)
		}
	})
}

func TestMarkIsWrittenAtTheEndAndOnlyOfWhatIsArchived(t *testing.T) {
	for _, flushed := range []bool{true, false} {
		in(t, func(t *testing.T, w *world) {
			w.opts.MaxLag = time.Hour
			n := w.lead(TopicConfig{})
			if err := n.a.Mark(t.Context()); err != nil {
				t.Fatal(err)
			}
			at := time.Now().UnixMilli()
			w.append(3)
			time.Sleep(time.Minute)
			if flushed {
				if err := n.p.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			n.p.Resign()
			n.stop()
			if m, ok := w.readMark(); !ok || (m.TimeMs >= at) != flushed {
				t.Fatalf("flushed %t: mark %+v, a record of %d", flushed, m, at)
			}
		})
	}
}

func TestMarkWaitsUntilAllReplicasAreKnown(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		var complete atomic.Bool
		w.opts.MaxLag, w.held = time.Second, func(upTo int64, _ bool) (int64, bool) { return upTo, complete.Load() }
		w.lead(TopicConfig{})
		time.Sleep(time.Minute)
		if m, ok := w.readMark(); ok {
			t.Fatalf("mark %+v", m)
		}
		complete.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, ok := w.readMark(); !ok {
			t.Fatal("no mark")
		}
	})
}

func TestMarkThatIsAheadOfTheClockStays(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.opts.MaxLag = time.Second
		n := w.lead(TopicConfig{})
		w.append(1)
		time.Sleep(time.Minute)
		n.stop()
		before, _ := w.readMark()
		later := manifest.Mark{Cluster: "c1", TimeMs: before.TimeMs + 3600_000, Written: 1}
		b, err := later.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.mem.Put(t.Context(), later.Key(), objstore.BytesBody(b), objstore.Cond{}); err != nil {
			t.Fatal(err)
		}
		w.lead(TopicConfig{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if m, _ := w.readMark(); m.TimeMs != later.TimeMs {
			t.Fatalf("mark %d after %d", m.TimeMs, later.TimeMs)
		}
	})
}

// A mark is read back from the bucket, and appends are stamped after it: a wrong one must not send them into another century.
func TestMarkThatNoClockCanHaveWrittenIsReplaced(t *testing.T) {
	for _, ahead := range []time.Duration{25 * time.Hour, 1<<63 - 1} {
		in(t, func(t *testing.T, w *world) {
			var asked atomic.Int64
			w.opts.MaxLag, w.held = time.Second, func(upTo int64, _ bool) (int64, bool) { asked.Store(max(asked.Load(), upTo)); return upTo, true }
			wrong := manifest.Mark{Cluster: "c1", TimeMs: time.Now().Add(ahead).UnixMilli(), Written: 1}
			b, err := wrong.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.mem.Put(t.Context(), wrong.Key(), objstore.BytesBody(b), objstore.Cond{}); err != nil {
				t.Fatal(err)
			}
			w.lead(TopicConfig{})
			time.Sleep(time.Minute)
			synctest.Wait()
			now := time.Now().UnixMilli()
			if m, _ := w.readMark(); m.TimeMs > now || asked.Load() > now {
				t.Fatalf("mark %d, clock passed %d, now %d", m.TimeMs, asked.Load(), now)
			}
		})
	}
}

// The last mark is written after the replicas are closed. The bucket's topics count still.
func TestLastMarkDoesNotPassWhatIsHeldAtTheEnd(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		created := time.Now().Add(time.Minute).UnixMilli()
		w.opts.MaxLag, w.held = time.Hour, func(upTo int64, last bool) (int64, bool) {
			if last {
				return min(upTo, created-1), true
			}
			return upTo, true
		}
		n := w.lead(TopicConfig{})
		if err := n.a.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		n.stop()
		if m, ok := w.readMark(); !ok || m.TimeMs != created-1 {
			t.Fatalf("mark %+v, want %d", m, created-1)
		}
	})
}

// What a follower has got since the mark was written may be older than the mark: another broker's clock stamped it.
func TestMarkGoesBackToWhatAReplicaHolds(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		var since atomic.Int64
		w.opts.MaxLag, w.held = time.Second, func(upTo int64, last bool) (int64, bool) {
			if s := since.Load(); s > 0 && !last {
				return min(upTo, s-1), true
			}
			return upTo, true
		}
		n := w.lead(TopicConfig{})
		time.Sleep(time.Minute)
		synctest.Wait()
		before, ok := w.readMark()
		since.Store(before.TimeMs - 5000)
		time.Sleep(time.Minute)
		synctest.Wait()
		if m, _ := w.readMark(); !ok || m.TimeMs != before.TimeMs-5001 {
			t.Fatalf("mark %d, a replica holds something of %d", m.TimeMs, since.Load())
		}
		n.stop() // what others lead they answer for
		if m, _ := w.readMark(); m.TimeMs < before.TimeMs+50_000 {
			t.Fatalf("mark %d after the end, before it %d", m.TimeMs, before.TimeMs)
		}
	})
}

func TestMarkIsWrittenWhenAsked(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.opts.MaxLag = time.Hour
		n := w.lead(TopicConfig{})
		if err := n.a.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m, ok := w.readMark(); !ok || m.TimeMs > time.Now().UnixMilli() {
			t.Fatalf("mark %+v", m)
		}
	})
}

func TestMarkComesBackAfterAnOutage(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.opts.MaxLag = time.Second
		w.lead(TopicConfig{})
		w.fault.SetRules(fault.Rule{Op: fault.Put, Effect: fault.Fail})
		time.Sleep(time.Minute)
		w.fault.SetRules()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if m, ok := w.readMark(); !ok || time.Now().UnixMilli()-m.TimeMs > 130_000 {
			t.Fatalf("mark %+v", m)
		}
	})
}
