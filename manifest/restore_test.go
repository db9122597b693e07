package manifest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/record"
)

func dead(en Entry, why Reason, at int64) Entry {
	en.State, en.Reason, en.DeadAt = Dead, why, at
	return en
}

func doomed(en Entry, why Reason, at int64) Entry {
	en = dead(en, why, at)
	en.State = Doomed
	return en
}

func ranges(kept []Entry, holes []Gap) string {
	var parts []string
	for _, en := range kept {
		name, _ := ParseSegmentKey(en.Object)
		parts = append(parts, fmt.Sprintf("%d-%d of %d-%d", en.Base, en.End, name.Base, name.Last+1))
	}
	for _, g := range holes {
		parts = append(parts, fmt.Sprintf("hole %d-%d %v", g.From, g.To, g.Reason))
	}
	return strings.Join(parts, ", ")
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		name     string
		entries  []Entry
		gaps     []Gap
		from, to int64
		want     string
	}{
		{"the last entry is trimmed to the cut", []Entry{testEntry(0, 10), testEntry(10, 20)}, nil, 0, 15, "0-10 of 0-10, 10-15 of 10-20"},
		{"the first entry is trimmed to the log start", []Entry{testEntry(0, 10), testEntry(10, 20)}, nil, 5, 20, "5-10 of 0-10, 10-20 of 10-20"},
		{"dead ones come back", []Entry{dead(testEntry(0, 10), RetentionTime, 5), testEntry(10, 20)}, nil, 0, 20, "0-10 of 0-10, 10-20 of 10-20"},
		{"doomed ones are gone", []Entry{doomed(testEntry(0, 10), RetentionTime, 5), testEntry(10, 20)}, nil, 0, 20, "10-20 of 10-20, hole 0-10 missing"},
		{"a live one goes before what it superseded", []Entry{dead(tail(0, 5), Superseded, 5), testEntry(0, 10), dead(tail(5, 10), Superseded, 5)}, nil, 0, 8, "0-8 of 0-10"},
		{"what was superseded serves where the live one is doomed", []Entry{dead(tail(0, 5), Superseded, 5), doomed(testEntry(0, 10), RetentionTime, 6), dead(tail(5, 8), Superseded, 5)}, nil, 0, 10, "0-5 of 0-5, 5-8 of 5-8, hole 8-10 missing"},
		{"a dead one yields to a live one that begins within it", []Entry{dead(tail(0, 8), RetentionTime, 5), testEntry(4, 12)}, nil, 0, 12, "0-4 of 0-8, 4-12 of 4-12"},
		{"holes have the reason of their gap", []Entry{testEntry(0, 10), testEntry(20, 30)}, []Gap{{12, 18, RetentionUpload, 9}}, 0, 40, "0-10 of 0-10, 20-30 of 20-30, hole 10-12 missing, hole 12-18 expired before upload, hole 18-20 missing, hole 30-40 missing"},
		{"an empty range has nothing", []Entry{testEntry(0, 10)}, nil, 5, 5, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			kept, holes := Clip(c.entries, c.gaps, c.from, c.to)
			if got := ranges(kept, holes); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			for _, en := range kept {
				if err := en.check(); err != nil || en.State != Live {
					t.Errorf("%v: %v", en, err)
				}
			}
		})
	}
}

func TestClipCoversWhatAnyEntryHasAndTakesTheBest(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		var list []Entry
		for range r.IntN(12) {
			base := r.Int64N(40)
			en := testEntry(base, base+1+r.Int64N(12))
			en.Tail = r.IntN(2) == 0
			switch r.IntN(4) {
			case 0:
				en = dead(en, RetentionTime, 1)
			case 1:
				en = dead(en, Superseded, 1)
			case 2:
				en = doomed(en, RetentionTime, 1)
			}
			list = append(list, en)
		}
		from, to := r.Int64N(20), 20+r.Int64N(40)
		kept, holes := Clip(list, nil, from, to)
		for off := from; off < to; off++ {
			best := -1
			for i := range list {
				if list[i].State != Doomed && list[i].Contains(off) {
					best = max(best, rank(&list[i]))
				}
			}
			n := 0
			for i := range kept {
				if kept[i].Contains(off) {
					n++
				}
			}
			for _, h := range holes {
				if h.From <= off && off < h.To && best >= 0 {
					t.Fatalf("seed %d: %d is in a hole", seed, off)
				}
			}
			if want := min(best+1, 1); n != want {
				t.Fatalf("seed %d: %d is %d times there, want %d", seed, off, n, want)
			}
		}
	}
}

func timed(base, end, first, last int64) Entry {
	en := testEntry(base, end)
	en.FirstAppend, en.LastAppend = first, last
	return en
}

func TestEndAt(t *testing.T) {
	kept := []Entry{timed(0, 10, 1000, 2000), timed(10, 20, 2000, 3000), timed(25, 30, 5000, 9000)}
	for _, c := range []struct{ t, end, straddle int64 }{{999, 0, -1}, {1000, 0, 0}, {1999, 0, 0}, {2000, 10, 10}, {3000, 20, -1}, {4999, 20, -1}, {5000, 25, 25}, {9000, 30, -1}} {
		end, s := EndAt(kept, 0, c.t)
		base := int64(-1)
		if s != nil {
			base = s.Base
		}
		if end != c.end || base != c.straddle {
			t.Errorf("at %d: end %d, straddle %d, want %d, %d", c.t, end, base, c.end, c.straddle)
		}
	}
}

func TestCutOffset(t *testing.T) {
	f := testFooter()
	f.Base, f.End = 0, 100
	f.AppendTimes = []record.AppendTime{{Ms: 1000, Offset: 0, SpanMs: 19}, {Ms: 2000, Offset: 40}, {Ms: 8000, Offset: 60, SpanMs: 5}}
	en := timed(0, 100, 1000, 8005)
	trimmed := en
	trimmed.Base, trimmed.End = 10, 30
	bare := testFooter()
	bare.Base, bare.End, bare.AppendTimes = 0, 100, nil
	for _, c := range []struct {
		name                 string
		f                    *Footer
		en                   Entry
		t, want, left, width int64
	}{
		{"before all", f, en, 999, 0, 0, 0},
		{"a stretch under way is in doubt", f, en, 1000, 0, 40, 19},
		{"to its end", f, en, 1018, 0, 40, 19},
		{"and then in", f, en, 1019, 40, 0, 0},
		{"a batch alone is in at once", f, en, 2000, 60, 0, 0},
		{"a pause between two writes has all before it", f, en, 3000, 60, 0, 0},
		{"and nothing after it", f, en, 7999, 60, 0, 0},
		{"the last stretch is in doubt until the last append", f, en, 8004, 60, 40, 5},
		{"the last append", f, en, 8005, 100, 0, 0},
		{"a trimmed entry bounds the cut", f, trimmed, 7999, 30, 0, 0},
		{"from below too", f, trimmed, 1000, 10, 20, 19},
		{"without times all is in doubt", bare, en, 5000, 0, 100, 7005},
	} {
		if got := CutOffset(c.f, &c.en, c.t); got != c.want {
			t.Errorf("%s: at %d %d, want %d", c.name, c.t, got, c.want)
		}
		if left, width := CutDoubt(c.f, &c.en, c.t); left != c.left || width != c.width {
			t.Errorf("%s: at %d up to %d left out within %d ms, want %d, %d", c.name, c.t, left, width, c.left, c.width)
		}
	}
}

// A log appends batches at random moments and tells stretches apart as localseg does; then the list is coarsened. A cut never
// has a record of later than t, misses less than the resolution, and is exact in a pause as long as it.
func TestCutOffsetAgainstALog(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		type batch struct{ base, end, ms int64 }
		var log []batch
		var times []record.AppendTime
		off, ms := int64(0), int64(10_000)
		for range 1 + r.IntN(60) {
			n := 1 + r.Int64N(5)
			log = append(log, batch{off, off + n, ms})
			if k := len(times); k > 0 && ms-times[k-1].Ms < record.AppendResolutionMs {
				times[k-1] = times[k-1].Until(ms)
			} else {
				times = append(times, record.AppendTime{Ms: ms, Offset: off})
			}
			off += n
			ms += []int64{0, 1, 7, 19, 20, 21, 70, 900}[r.IntN(8)]
		}
		times, resolution := CoarsenAppendTimes(times, []int{100, 20, 5, 1}[seed%4])
		en := timed(0, off, log[0].ms, log[len(log)-1].ms)
		f := &Footer{Base: 0, End: off, AppendTimes: times, AppendResolutionMs: resolution}
		var moments []int64
		for _, b := range log {
			moments = append(moments, b.ms-1, b.ms, b.ms+1, b.ms+resolution/2, b.ms+resolution-1, b.ms+resolution)
		}
		for _, at := range moments {
			cut := CutOffset(f, &en, at)
			left, width := CutDoubt(f, &en, at)
			var exact, atLeast int64
			last, next := int64(math.MinInt64), int64(math.MaxInt64) // the appends around t
			for _, b := range log {
				if b.ms <= at {
					exact, last = b.end, b.ms
				} else {
					next = min(next, b.ms)
				}
				if b.ms <= at-resolution {
					atLeast = b.end
				}
			}
			if cut > exact || cut < atLeast || last > 0 && next-last >= resolution && cut != exact {
				t.Fatalf("seed %d: cut at %d is %d, want in [%d, %d]; resolution %d, appends at %d and %d around", seed, at, cut, atLeast, exact, resolution, last, next)
			}
			if cut+left < exact || width >= resolution || (left == 0) != (width == 0) {
				t.Fatalf("seed %d: cut at %d is %d with %d left out within %d ms, want %d; resolution %d", seed, at, cut, left, width, exact, resolution)
			}
		}
	}
}

func TestACoarseListIsBounded(t *testing.T) {
	var list []record.AppendTime
	for i := range int64(1000) {
		list = append(list, record.AppendTime{Ms: 1000 + 20*i, Offset: i})
	}
	for _, c := range []struct {
		limit, entries int
		resolution     int64
	}{{1000, 1000, 20}, {999, 500, 40}, {100, 63, 320}, {0, 1, 20 << 10}} {
		got, resolution := CoarsenAppendTimes(slices.Clone(list), c.limit)
		if len(got) != c.entries || resolution != c.resolution || got[0].Ms != 1000 || got[len(got)-1].LastMs() != list[999].Ms {
			t.Errorf("limit %d: %d entries to %d ms, %v", c.limit, len(got), resolution, got[0])
		}
	}
	wide := []record.AppendTime{{Ms: 1, Offset: 0}, {Ms: math.MaxInt64 - 5, Offset: 1}, {Ms: math.MaxInt64 - 4, Offset: 2}}
	if got, _ := CoarsenAppendTimes(wide, 1); len(got) != 1 || got[0].LastMs() != math.MaxInt64-4 {
		t.Errorf("%+v", got)
	}
}

func TestAppendedByIsTheEndOfTheStretch(t *testing.T) {
	f := testFooter()
	f.AppendTimes = []record.AppendTime{{Ms: 1000, Offset: 10, SpanMs: 19}, {Ms: 2000, Offset: 15, SpanMs: 5}}
	for _, c := range []struct{ off, last, want int64 }{{10, 9000, 1019}, {14, 9000, 1019}, {15, 9000, 2005}, {19, 2003, 2003}, {9, 9000, 9000}} {
		if got := f.AppendedBy(c.off, c.last); got != c.want {
			t.Errorf("%d: %d, want %d", c.off, got, c.want)
		}
	}
}

func TestStartAt(t *testing.T) {
	m := testManifest()
	m.Time, m.LogStart, m.Through = 9000, 25, 40
	list := []Entry{doomed(testEntry(0, 5), RetentionTime, 1000), dead(testEntry(5, 10), RetentionTime, 5000), dead(tail(10, 12), Superseded, 8000), dead(testEntry(10, 20), RecordsDeleted, 7000), testEntry(20, 30), testEntry(30, 40)}
	for _, c := range []struct{ t, want int64 }{{500, 5}, {4999, 5}, {5000, 10}, {6999, 10}, {7000, 20}, {8999, 20}, {9000, 25}} {
		if got, ok := m.StartAt(list, c.t); got != c.want || !ok {
			t.Errorf("at %d: %d, %t, want %d", c.t, got, ok, c.want)
		}
	}
	if _, ok := m.StartAt(list[:1], 500); ok {
		t.Error("a doomed entry is a start")
	}
}

// BUG-043, BUG-024: what a restore lists becomes the first manifest of another partition, with its gaps, at the same offsets.
func TestARestoredPartitionListsWhatClipKept(t *testing.T) {
	entries := []Entry{dead(testEntry(0, 100), RetentionTime, 5), testEntry(200, 300)}
	kept, holes := Clip(entries, []Gap{{100, 200, RetentionUpload, 4}}, 20, 260)
	for i := range kept {
		kept[i].Archive = "source"
	}
	p := PartitionID{testTopic(9), 0}
	c, err := Apply(Empty("c2", p, 20), Edit{Incarnation: 1, LeaderEpoch: 3, N: 1, Time: 9, Add: kept, Gaps: holes}, Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := DecodeManifest(c.Manifest.Encode())
	if err != nil || m.LogStart != 20 || m.Through != 260 || len(m.Gaps) != 1 || m.Gaps[0] != (Gap{100, 200, RetentionUpload, 4}) {
		t.Fatalf("%+v, %v", m, err)
	}
	en, ok, err := m.LiveAt(150, nil)
	if !ok || err != nil || en.Base != 200 || en.End != 260 || en.Archive != "source" || en.Object != entries[1].Object {
		t.Fatalf("live at 150: %+v, %t, %v", en, ok, err)
	}
	// It goes on from there, and a second restore takes both generations.
	c, err = Apply(m, Edit{Incarnation: 1, LeaderEpoch: 3, N: 2, Time: 10, Add: []Entry{testEntry(260, 280)}}, Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kept, holes = Clip(c.Manifest.Entries, c.Manifest.Gaps, c.Manifest.LogStart, c.Manifest.Through)
	if got := ranges(kept, holes); got != "20-100 of 0-100, 200-260 of 200-300, 260-280 of 260-280, hole 100-200 expired before upload" {
		t.Fatal(got)
	}
}
