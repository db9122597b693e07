package localseg

import (
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/record"
)

// timed is a log whose true append times are known.
type timed struct {
	t     *testing.T
	fs    *vfs.Mem
	c     Config
	l     *Log
	truth []timedBatch
	late  int64 // ms by which an exact log may say a record came too late
}

type timedBatch struct{ base, end, ms int64 }

func newTimed(t *testing.T, c Config) *timed {
	w := &timed{t: t, fs: vfs.NewMem(), c: c}
	if err := w.fs.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := w.fs.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	w.open(false)
	return w
}

func (w *timed) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *timed) open(clean bool) {
	w.t.Helper()
	l, err := Open(w.fs, "/data/t-0", Options{Config: w.c, Clean: clean})
	w.do(err)
	w.l = l
	w.trim()
}

// trim forgets what the log has lost.
func (w *timed) trim() {
	leo := w.l.LEO()
	for n := len(w.truth); n > 0 && w.truth[n-1].base >= leo; n-- {
		w.truth = w.truth[:n-1]
	}
	if n := len(w.truth); n > 0 {
		w.truth[n-1].end = min(w.truth[n-1].end, leo)
	}
}

// add appends batches of one record each in one call.
func (w *timed) add(batches int) {
	w.t.Helper()
	var list []record.Batch
	for range batches {
		b, err := record.Build(nil, record.BatchOptions{ProducerID: -1}, []record.Record{{Timestamp: 5, Value: []byte("x")}})
		w.do(err)
		list = append(list, b)
	}
	a, err := w.l.Append(list, 1, OriginClient)
	w.do(err)
	w.truth = append(w.truth, timedBatch{a.First, a.Last + 1, a.AppendTime})
}

func (w *timed) stretches() []AppendTime {
	w.t.Helper()
	list, err := w.l.AppendTimes(w.l.LocalStart(), w.l.LEO())
	w.do(err)
	return list
}

// check compares stretches with the truth. exact: no times were ever lost.
func (w *timed) check(exact bool) {
	w.t.Helper()
	list := w.stretches()
	for i, a := range list {
		if i > 0 && (a.Offset <= list[i-1].Offset || a.Ms < list[i-1].LastMs()) {
			w.t.Fatalf("%+v after %+v", a, list[i-1])
		}
		if exact && a.SpanMs >= record.AppendResolutionMs {
			w.t.Fatalf("stretch %+v is too long", a)
		}
	}
	for _, b := range w.truth {
		i := stretchAt(list, b.base)
		if i < 0 || list[i].LastMs() < b.ms {
			w.t.Fatalf("records [%d, %d) appended at %d are in %d of %v: earlier than they came", b.base, b.end, b.ms, i, list)
		}
		if exact && list[i].Ms > b.ms+w.late {
			w.t.Fatalf("records [%d, %d) appended at %d are in %+v", b.base, b.end, b.ms, list[i])
		}
		one, err := w.l.AppendTimes(b.base, b.base+1)
		if err != nil || len(one) != 1 || one[0].Offset != list[i].Offset {
			w.t.Fatalf("append time of %d: %v, %v, want %+v", b.base, one, err, list[i])
		}
	}
	if n := len(w.truth); exact && n > 0 {
		segs := w.l.Segments()
		last := list[len(list)-1].LastMs() // of a stretch that was cut, the one before
		if last < w.truth[n-1].ms || last >= w.truth[n-1].ms+record.AppendResolutionMs || list[0].Ms > w.truth[0].ms+w.late || segs[0].FirstAppendTime != list[0].Ms {
			w.t.Fatalf("%+v to %+v, segments %+v, want %d to %d", list[0], list[len(list)-1], segs, w.truth[0].ms, w.truth[n-1].ms)
		}
	}
}

func stretchAt(list []AppendTime, off int64) int {
	i := slices.IndexFunc(list, func(a AppendTime) bool { return a.Offset > off })
	if i < 0 {
		i = len(list)
	}
	return i - 1
}

func TestAppendTimesAreTrueWhateverHappens(t *testing.T) {
	for _, lossless := range []bool{true, false} {
		for seed := range uint64(40) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 7))
				w := newTimed(t, Config{SegmentBytes: 3000, IndexIntervalBytes: 200, SegmentMs: 1 << 50, RetentionMs: -1})
				for range 150 {
					time.Sleep(time.Duration([]int{0, 1, 3, 10, 19, 20, 21, 200, 1500}[r.IntN(9)]) * time.Millisecond)
					w.step(r, lossless)
				}
				w.check(lossless)
				w.do(w.l.CloseClean())
				w.open(true)
				w.check(lossless)
			})
		}
	}
}

func (w *timed) step(r *rand.Rand, lossless bool) {
	w.t.Helper()
	switch n := r.IntN(100); {
	case n < 3:
		w.do(w.l.Roll())
	case n < 6:
		w.do(w.l.Flush())
	case n < 9:
		w.do(w.l.CloseClean())
		w.open(true)
		w.check(lossless)
	case n < 12:
		w.do(w.l.Truncate(max(w.l.LEO()-r.Int64N(30), w.l.LocalStart())))
		w.trim()
		w.check(lossless)
	case n < 15 && !lossless:
		w.fs.Kill()
		time.Sleep(time.Minute)
		w.open(false)
		w.check(false)
	case n < 18 && !lossless:
		w.fs.Crash(r.Uint64())
		time.Sleep(time.Minute)
		w.open(false)
		w.check(false)
	default:
		w.add(1 + r.IntN(3))
	}
}

// A process that is killed loses the times of the second before its last append at most.
func TestAKillLosesASecondOfAppendTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTimed(t, Config{})
		for range 100 {
			w.add(1)
			time.Sleep(30 * time.Millisecond)
		}
		w.fs.Kill()
		time.Sleep(time.Hour)
		w.open(false)
		w.check(false)
		list := w.stretches()
		n := len(list)
		if width := list[n-1].SpanMs; n < 60 || width > appendsWaitMs+60 {
			t.Fatalf("%d stretches, the last %+v", n, list[n-1])
		}
		for i, a := range list[:n-1] {
			if a.Ms != w.truth[i].ms || a.SpanMs != 0 || a.Offset != w.truth[i].base {
				t.Fatalf("stretch %+v of %+v", a, w.truth[i])
			}
		}
	})
}

func TestAppendTimesInTheFileAreNotInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTimed(t, Config{})
		most := 0
		for i := range 20000 {
			w.add(1)
			most = max(most, cap(w.l.activeSegment().ix.Load().appends.waiting))
			if i%1000 == 0 {
				time.Sleep(2 * time.Hour)
			}
			time.Sleep(record.AppendResolutionMs * time.Millisecond)
		}
		if list := w.stretches(); len(list) != 20000 || most > 2*persistEvery/appendEntrySize {
			t.Fatalf("%d stretches, up to %d in memory", len(list), most)
		}
		w.do(w.l.CloseClean())
		w.open(true)
		for _, i := range []int{0, 1, 777, 12345, 19999} {
			b := w.truth[i]
			if one, err := w.l.AppendTimes(b.base, b.end); err != nil || len(one) != 1 || one[0] != (AppendTime{Ms: b.ms, Offset: b.base}) {
				t.Fatalf("append time of %+v: %v, %v", b, one, err)
			}
		}
	})
}

func TestASegmentWhoseAppendTimesAreFullIsRolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTimed(t, Config{SegmentIndexBytes: 2000, SegmentMs: 1 << 50})
		for range 350 {
			w.add(1)
			time.Sleep(time.Second)
		}
		segs := w.l.Segments()
		if len(segs) != 4 {
			t.Fatalf("%d segments, want one for each 2000 bytes of append times", len(segs))
		}
		w.check(true)
	})
}

// Whatever is lost of the file, no record is said to have come before it did, what is left is as it was, and the answer stays.
func TestDamagedAppendTimesNeverClaimTooEarly(t *testing.T) {
	const good = 6 * appendEntrySize
	for _, c := range []struct {
		name   string
		keep   int // entries that are left
		damage func([]byte) []byte
	}{
		{"the last entry is gone", 9, func(b []byte) []byte { return b[:9*appendEntrySize] }},
		{"an entry is torn", 6, func(b []byte) []byte { return b[:good+7] }},
		{"zeroed from the middle on", 6, func(b []byte) []byte { clear(b[good:]); return b }},
		{"zeroed", 0, func(b []byte) []byte { clear(b); return b }},
		{"empty", 0, func([]byte) []byte { return nil }},
		{"a bit has flipped", 6, func(b []byte) []byte { b[good+7] ^= 8; return b }},
		{"a bit of the checksum has flipped", 6, func(b []byte) []byte { b[good+19] ^= 1; return b }},
		{"an entry is there twice", 7, func(b []byte) []byte { return slices.Insert(b, good, b[good:good+appendEntrySize]...) }},
		{"longer than the segment", 10, func(b []byte) []byte {
			return encodeAppends(b, []appendEntry{{1 << 50, 0, 1000}})
		}},
		{"missing", 0, nil},
	} {
		for _, active := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newTimed(t, Config{})
				for range 10 {
					w.add(2)
					time.Sleep(time.Second)
				}
				if !active {
					w.do(w.l.Roll())
					w.add(2)
				}
				want := w.stretches()
				w.do(w.l.CloseClean())
				damageFile(t, w.fs, path.Join("/data/t-0", fileName("", 0, extAppendTime)), c.damage)
				time.Sleep(time.Hour)
				w.open(true)
				w.check(false)
				got := w.stretches()
				if !slices.Equal(got[:c.keep], want[:c.keep]) {
					t.Fatalf("%s: %v, were %v", c.name, got, want)
				}
				end := w.truth[len(w.truth)-1].ms + mtimeSlackMs
				if last := got[len(got)-1].LastMs(); last > end {
					t.Fatalf("%s: %v go on to %d, want %d at most", c.name, got, last, end)
				}
				w.do(w.l.Close())
				w.open(true)
				if again := w.stretches(); !slices.Equal(again, got) {
					t.Fatalf("%s: %v, after a restart %v", c.name, got, again)
				}
				w.add(1)
				w.check(false)
			})
		}
	}
}

// damageFile writes what damage makes of a file, nil: it is removed.
func damageFile(t *testing.T, fs vfs.FS, name string, damage func([]byte) []byte) {
	t.Helper()
	b, err := readSmall(fs, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.Remove(name); err != nil {
		t.Fatal(err)
	}
	if damage == nil {
		return
	}
	f, err := fs.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(damage(b), 0); err != nil {
		t.Fatal(err)
	}
}

// Bytes that go bad under an open log widen one stretch.
func TestEntriesThatGoBadWhileTheLogIsOpenAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTimed(t, Config{})
		for range 10 {
			w.add(2)
			time.Sleep(time.Second)
		}
		damageFile(t, w.fs, path.Join("/data/t-0", fileName("", 0, extAppendTime)), func(b []byte) []byte {
			clear(b[4*appendEntrySize:])
			return b
		})
		list := w.stretches()
		if len(list) != 4+1+1 || list[4].Offset != w.truth[4].base || list[4].LastMs() != w.truth[8].ms {
			t.Fatalf("%v of %v", list, w.truth)
		}
	})
}

// pull appends up to max bytes of what w has beyond the end of f, as a follower does.
func (w *timed) pull(f *Log, max int) {
	w.t.Helper()
	from := f.LEO()
	if from == w.l.LEO() {
		return
	}
	span, err := w.l.Read(from, w.l.LEO(), max)
	w.do(err)
	b := make([]byte, span.Size)
	_, err = span.ReadAt(b, 0)
	w.do(err)
	times, err := w.l.AppendTimes(span.Base, span.Next)
	w.do(err)
	span.Release()
	var list []record.Batch
	for len(b) > 0 {
		batch, rest, err := record.Next(b)
		w.do(err)
		list, b = append(list, batch), rest
	}
	if _, err := f.AppendReplica(list[:len(list)-len(list)/3], 1, times); err != nil { // the leader told of more than is taken
		w.t.Fatal(err)
	}
}

// A follower's own clock says when records came to it. Who restores to a time wants to know when they came to the leader.
func TestAFollowerHasTheLeadersAppendTimes(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			c := Config{SegmentBytes: 3000, IndexIntervalBytes: 200, SegmentMs: 1 << 50, RetentionMs: -1}
			w := newTimed(t, c)
			c.SegmentBytes = 2000 + r.Int64N(3000)
			fs := vfs.NewMem()
			w.do(fs.MkdirAll("/data", 0o755))
			open := func(clean bool) *Log {
				l, err := Open(fs, "/data/t-0", Options{Config: c, Clean: clean})
				w.do(err)
				return l
			}
			f := open(false)
			check := func() {
				t.Helper()
				// Where a log was cut inside a stretch, that still ends when it did, and what comes in its place begins then.
				as := &timed{t: t, l: f, truth: slices.Clone(w.truth), late: record.AppendResolutionMs}
				as.trim()
				as.check(true)
			}
			for range 200 {
				time.Sleep(time.Duration([]int{0, 1, 3, 10, 19, 20, 21, 200, 1500}[r.IntN(9)]) * time.Millisecond)
				switch n := r.IntN(100); {
				case n < 60:
					w.add(1 + r.IntN(3))
				case n < 62:
					time.Sleep(time.Hour) // the follower is away
				case n < 64:
					w.do(w.l.Roll())
				case n < 67 && f.LEO() > f.LocalStart():
					w.do(f.Truncate(max(f.LEO()-r.Int64N(20), f.LocalStart())))
					check()
				case n < 70:
					w.do(f.CloseClean())
					f = open(true)
					check()
				default:
					w.pull(f, 1+r.IntN(2000))
				}
			}
			for f.LEO() < w.l.LEO() {
				w.pull(f, 1000)
			}
			check()
		})
	}
}
