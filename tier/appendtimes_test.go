package tier

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/record"
)

// killed replaces the log by what a process finds whose former one was killed: records, but not their newest append times.
func (w *world) killed() {
	w.t.Helper()
	w.fs.Kill()
	l, err := localseg.Open(w.fs, w.dir(), w.logOptions())
	if err != nil {
		w.t.Fatal(err)
	}
	w.src = &source{log: l}
	w.src.hw.Store(-1)
}

// killedWith kills the process of a leader, and leads in the next one.
func (w *world) killedWith(n *node) *node {
	w.t.Helper()
	n.stop()
	w.killed()
	return w.lead(TopicConfig{})
}

// endAt is the end of a restore of the bucket to a time, ms.
func (w *world) endAt(ms int64) int64 {
	w.t.Helper()
	ctx := context.Background()
	r, err := OpenBucket(ctx, w.mem, ReaderOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := r.Tip(ctx, partA)
	if err != nil || m == nil {
		w.t.Fatalf("tip: %v, %v", m, err)
	}
	var entries []manifest.Entry
	for e, err := range r.Entries(ctx, m) {
		if err != nil {
			w.t.Fatal(err)
		}
		entries = append(entries, *e)
	}
	kept, _ := manifest.Clip(entries, m.Gaps, 0, m.Through)
	end, straddle := manifest.EndAt(kept, 0, ms)
	if straddle != nil {
		f, err := r.Footer(ctx, straddle)
		if err != nil {
			w.t.Fatal(err)
		}
		end = max(end, manifest.CutOffset(f, straddle, ms))
	}
	return end
}

// tails writes records in pauses and lets them go up in tails. It returns moments within, and where a restore to them ends.
func (w *world) tails(n *node) map[int64]int64 {
	w.t.Helper()
	want := map[int64]int64{}
	write := func(counts ...int) {
		for _, c := range counts {
			w.append(c)
			time.Sleep(50 * time.Millisecond)
			want[time.Now().UnixMilli()] = w.src.log.LEO()
			time.Sleep(250 * time.Millisecond)
		}
		n.p.Notify()
		time.Sleep(12 * time.Second)
		synctest.Wait()
	}
	write(2, 1, 2) // together in one segment with all that tests add
	write(1, 1)
	w.wantEnds("as tails", want)
	return want
}

func (w *world) wantEnds(when string, want map[int64]int64) {
	w.t.Helper()
	for ms, end := range want {
		if got := w.endAt(ms); got != end {
			w.t.Fatalf("%s: a restore to %d ends at %d, want %d", when, ms, got, end)
		}
	}
}

// archive brings what the log has into the archive: whole segments, or what has waited.
func (w *world) archive(n *node, roll bool) {
	w.t.Helper()
	if roll {
		w.roll()
	} else {
		w.append(6) // so much that all tails before go up with it
	}
	n.p.Notify()
	time.Sleep(12 * time.Second)
	settle(n)
	if got := n.p.Through(); got != w.src.log.LEO() {
		w.t.Fatalf("archived through %d of %d", got, w.src.log.LEO())
	}
}

func TestARestoreToBeforeAKillStaysWhatItWasOnceTheTailIsSuperseded(t *testing.T) {
	for _, roll := range []bool{true, false} {
		in(t, func(t *testing.T, w *world) {
			w.opts.MaxLag = 10 * time.Second
			n := w.lead(TopicConfig{})
			want := w.tails(n)
			n = w.killedWith(n)
			w.append(2)
			w.archive(n, roll)
			if live := entriesOf(n.p.Manifest(), manifest.Live); len(live) != 1 {
				t.Fatalf("live = %v, want one", live)
			}
			w.wantEnds("superseded", want)
			w.check()
			// Once more: what was taken over is in no log.
			n = w.killedWith(n)
			w.append(1)
			w.archive(n, true)
			w.wantEnds("superseded twice", want)
		})
	}
}

func TestAppendTimesThatWereTakenOverAreTakenOverAgainByTheSameLeader(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		want := w.tails(n)
		n = w.killedWith(n)
		w.archive(n, false)
		w.wantEnds("in a larger tail", want)
		w.archive(n, true)
		w.wantEnds("in a segment", want)
	})
}

// The next leader has been in sync, with times of its own for the same records.
func TestAppendTimesOfASupersededTailAreReadOnceAndOnlyAfterAnElection(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.held = nil
		n := w.lead(TopicConfig{})
		w.tails(n)
		before := w.fault.Calls(fault.Get)
		w.append(1)
		w.archive(n, true)
		if got := w.fault.Calls(fault.Get) - before; got != 0 {
			t.Fatalf("%d reads by the leader that had uploaded the tails, want none", got)
		}
		n = w.killedWith(n)
		want := w.tails(n)
		before = w.fault.Calls(fault.Get)
		w.append(1)
		w.archive(n, true)
		if got := w.fault.Calls(fault.Get) - before; got != 0 {
			t.Fatalf("%d reads for tails of this leader's own, want none", got)
		}
		w.wantEnds("superseded", want)
	})
}

func TestAnUploadWaitsForTheAppendTimesOfWhatItSupersedes(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		want := w.tails(n)
		n = w.killedWith(n)
		w.fault.SetRules(fault.Rule{Op: fault.Get, Effect: fault.Fail})
		w.append(2)
		w.roll()
		n.p.Notify()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := n.p.Through(); got != w.src.log.LEO()-2 {
			t.Fatalf("archived through %d while tails cannot be read, want %d", got, w.src.log.LEO()-2)
		}
		w.fault.SetRules()
		time.Sleep(2 * time.Minute)
		settle(n)
		w.wantArchived(n.p, 0, w.src.log.LEO())
		w.wantEnds("superseded", want)
	})
}

func TestATailThatIsDamagedOrGoneDoesNotStopTheArchive(t *testing.T) {
	for _, gone := range []bool{true, false} {
		in(t, func(t *testing.T, w *world) {
			n := w.lead(TopicConfig{})
			want := w.tails(n)
			victim := n.p.Manifest().Entries[len(n.p.Manifest().Entries)-1]
			n.stop()
			ctx := t.Context()
			b, _, err := objstore.ReadAll(ctx, w.mem, victim.Object, 1<<20)
			if err := errors.Join(err, w.mem.Delete(ctx, victim.Object)); err != nil {
				t.Fatal(err)
			}
			if !gone {
				b[victim.DataBytes+40] ^= 1
				if _, err := w.mem.Put(ctx, victim.Object, objstore.BytesBody(b), objstore.Cond{}); err != nil {
					t.Fatal(err)
				}
			}
			w.killed()
			n = w.lead(TopicConfig{})
			w.append(2)
			w.roll()
			settle(n)
			w.wantArchived(n.p, 0, w.src.log.LEO())
			for ms, end := range want {
				if got := w.endAt(ms); got > end {
					t.Fatalf("a restore to %d ends at %d, at most %d had been appended", ms, got, end)
				} else if end <= victim.Base && got != end {
					t.Fatalf("a restore to %d ends at %d, want %d: the tail before is whole", ms, got, end)
				}
			}
		})
	}
}

func TestWhatTailsSayStandsInThePlaceOfWhatALogSays(t *testing.T) {
	at := func(off, ms, last int64) record.AppendTime { return record.AppendTime{Ms: ms, Offset: off}.Until(last) }
	list := func(a ...record.AppendTime) []record.AppendTime { return a }
	for _, c := range []struct {
		name  string
		log   []record.AppendTime
		tails []timed
		want  []record.AppendTime
	}{
		{"no tails", list(at(0, 100, 900)), nil, list(at(0, 100, 900))},
		{"a bound goes on behind the tail", list(at(0, 100, 900), at(8, 950, 950)), []timed{{0, 5, list(at(0, 100, 110), at(3, 400, 410))}},
			list(at(0, 100, 110), at(3, 400, 410), at(5, 410, 900), at(8, 950, 950))},
		{"a damaged tail between two", list(at(0, 100, 900)), []timed{{0, 2, list(at(0, 100, 110))}, {4, 6, list(at(4, 500, 510))}},
			list(at(0, 100, 110), at(2, 110, 510), at(4, 510, 510), at(6, 510, 900))},
		{"bounds before a tail end no later than it", list(at(0, 100, 900)), []timed{{4, 6, list(at(4, 500, 505))}}, list(at(0, 100, 505), at(4, 505, 505), at(6, 505, 900))},
		{"tails of two leaders overlap", list(at(0, 1, 9)), []timed{{0, 2, list(at(0, 100, 400))}, {2, 4, list(at(2, 390, 395))}},
			list(at(0, 100, 395), at(2, 395, 395), at(4, 395, 395))},
		{"a clock was set back", list(at(0, 50, 60), at(4, 70, 80)), []timed{{0, 2, list(at(0, 100, 110))}}, list(at(0, 100, 110), at(2, 110, 110), at(4, 110, 110))},
		{"the log begins behind the tail's beginning", list(at(3, 100, 900)), []timed{{0, 5, list(at(0, 10, 20))}}, list(at(0, 10, 20), at(5, 100, 900))},
	} {
		got := withArchived(slices.Clone(c.log), c.tails)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		for i := 1; i < len(got); i++ {
			if got[i].Offset <= got[i-1].Offset || got[i].Ms < got[i-1].LastMs() {
				t.Errorf("%s: %v does not follow %v", c.name, got[i], got[i-1])
			}
		}
	}
}
