package localseg_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/localseg/localsegtest"
	"github.com/varvelog/varve/record"
)

func TestAppendStampsOffsetsAndEpoch(t *testing.T) {
	l := open(t, vfs.NewMem(), localseg.Options{Config: small})
	for _, field := range []int32{-1, 0, 99} { // BUG-090: the client's leader epoch is overwritten
		b := localsegtest.Batch(t, record.BatchOptions{ProducerID: -1, LeaderEpoch: field}, 1, 2)
		add(t, l, 3, b)
		if b.LeaderEpoch() != 3 || b.Check() != nil {
			t.Fatalf("stored epoch %d, check %v", b.LeaderEpoch(), b.Check())
		}
	}
	two := []record.Batch{localsegtest.Plain(t, 1), localsegtest.Plain(t, 2, 3)}
	if a := add(t, l, 3, two...); a.First != 6 || a.Last != 8 || l.LEO() != 9 {
		t.Fatalf("%+v, LEO %d", a, l.LEO())
	}
	together := append(slices.Clone(two[0]), two[1]...)
	n := len(two[0])
	a := add(t, l, 4, record.Batch(together[:n]), record.Batch(together[n:]))
	if a.First != 9 || a.Last != 11 {
		t.Fatalf("batches of one buffer: %+v", a)
	}
	if got := l.Epochs(); !slices.Equal(got, []localseg.Epoch{{Epoch: 3, Start: 0}, {Epoch: 4, Start: 9}}) {
		t.Fatalf("epochs %v", got)
	}
	readAll(t, l, 0, 1)
}

func TestFollowerKeepsOffsetsAndMayHaveGaps(t *testing.T) {
	l := open(t, vfs.NewMem(), localseg.Options{Config: small})
	at := func(base int64) record.Batch {
		return localsegtest.Batch(t, record.BatchOptions{ProducerID: -1, BaseOffset: base, LeaderEpoch: 2}, 1, 2)
	}
	if a, err := l.Append([]record.Batch{at(5), at(10)}, 0, localseg.OriginReplica); err != nil || a.First != 5 || a.Last != 11 {
		t.Fatalf("%+v, %v", a, err)
	}
	if _, err := l.Append([]record.Batch{at(11)}, 0, localseg.OriginReplica); !errors.Is(err, localseg.ErrUnexpectedOffset) {
		t.Fatalf("overlap: %v", err)
	}
	// BUG-014: a read inside a hole goes on to the next batch.
	s, err := l.Read(7, l.LEO(), 1)
	if err != nil || s.Base != 10 || s.Next != 12 {
		t.Fatalf("read in the hole: %+v, %v", s, err)
	}
	s.Release()
	far := int64(math.MaxInt32) * 3
	if _, err := l.Append([]record.Batch{at(far)}, 0, localseg.OriginReplica); err != nil || l.LEO() != far+2 {
		t.Fatalf("far gap: LEO %d, %v", l.LEO(), err)
	}
	if s, err = l.Read(12, l.LEO(), 1); err != nil || s.Base != far {
		t.Fatalf("read over the far gap: %+v, %v", s, err)
	}
	s.Release()
}

func TestReadBounds(t *testing.T) {
	l := open(t, vfs.NewMem(), localseg.Options{Config: small})
	for i := range 100 {
		add(t, l, 0, localsegtest.Plain(t, int64(i), int64(i), int64(i)))
	}
	all := readAll(t, l, 0, 1<<30)
	for _, max := range []int{0, 1, 94, 95, 300, 700, 5000} {
		wantBytes(t, fmt.Sprintf("in steps of %d", max), readAll(t, l, 0, max), all)
	}
	for off := int64(0); off < l.LEO(); off++ {
		for _, end := range []int64{off, off + 1, off + 3, off + 7, off + 40, l.LEO()} {
			s, err := l.Read(off, end, 600)
			if err != nil {
				t.Fatal(err)
			}
			if s.Next > max(end, off) || s.Size > 600 {
				t.Fatalf("read [%d, %d): %+v", off, end, s)
			}
			if whole := off - off%3 + 3; end >= whole && s.Size == 0 {
				t.Fatalf("read [%d, %d) is empty, the batch ends at %d", off, end, whole)
			}
			s.Release()
		}
	}
	if err := l.SetLogStart(50); err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{-1, 49, l.LEO() + 1} {
		if _, err := l.Read(off, l.LEO(), 1); !errors.Is(err, localseg.ErrOffsetOutOfRange) {
			t.Fatalf("read at %d: %v", off, err)
		}
	}
	if s, err := l.Read(50, l.LEO(), 1); err != nil || s.Base != 48 { // mid batch: the whole batch comes
		t.Fatalf("read at a log start inside a batch: %+v, %v", s, err)
	}
	if l.SetLogStart(l.LEO()+1) == nil || l.SetLogStart(3) != nil || l.LogStart() != 50 {
		t.Fatal("the log start only rises, and not above the end")
	}
}

func TestRollBySizeTimeAndIndex(t *testing.T) {
	count := func(c localseg.Config, n int, ms func(i int) int64) int {
		l := open(t, vfs.NewMem(), localseg.Options{Config: c})
		rolls := 0
		for i := range n {
			if add(t, l, 0, localsegtest.Plain(t, ms(i))).Rolled {
				rolls++
			}
		}
		if got := len(l.Segments()); got != rolls+1 {
			t.Fatalf("%d segments after %d rolls", got, rolls)
		}
		return rolls
	}
	same := func(int) int64 { return 1000 }
	if n := count(localseg.Config{SegmentBytes: 720}, 30, same); n != 2 {
		t.Fatalf("size: %d rolls", n)
	}
	if n := count(localseg.Config{SegmentMs: 100}, 30, func(i int) int64 { return int64(1000 + 10*i) }); n != 2 {
		t.Fatalf("time: %d rolls", n)
	}
	if n := count(localseg.Config{SegmentIndexBytes: 40, IndexIntervalBytes: 1}, 31, same); n != 5 {
		t.Fatalf("index: %d rolls", n)
	}
	l := open(t, vfs.NewMem(), localseg.Options{Config: localseg.Config{SegmentBytes: 100}})
	if _, err := l.Append([]record.Batch{localsegtest.Plain(t, 1, 2, 3, 4)}, 0, localseg.OriginClient); !errors.Is(err, localseg.ErrTooLarge) {
		t.Fatalf("larger than a segment: %v", err)
	}
	if _, err := l.Append([]record.Batch{[]byte("short")}, 0, localseg.OriginClient); !errors.Is(err, record.ErrShort) {
		t.Fatalf("no batch: %v", err)
	}
	if l.LEO() != 0 || l.SizeBytes() != 0 {
		t.Fatal("refused batches left something")
	}
}

func TestNoDirectoryBeforeTheFirstAppend(t *testing.T) {
	m := vfs.NewMem()
	l := open(t, m, localseg.Options{Config: small, TopicID: [16]byte{9}})
	if err := errors.Join(l.Flush(), l.AssignEpoch(3), l.Roll(), l.SetLogStart(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Retain(1<<50, 0); err != nil {
		t.Fatal(err)
	}
	if s, err := l.Read(0, 0, 100); err != nil || s.Size != 0 {
		t.Fatalf("read of an empty log: %+v, %v", s, err)
	}
	if _, err := m.Stat("/data/t-0"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("directory: %v", err)
	}
	add(t, l, 3, localsegtest.Plain(t, 1))
	closeClean(t, l)
	if _, err := localseg.Open(m, "/data/t-0", localseg.Options{TopicID: [16]byte{8}}); !errors.Is(err, localseg.ErrTopicID) {
		t.Fatalf("directory of another topic id: %v", err)
	}
	l = open(t, m, localseg.Options{TopicID: [16]byte{9}, Clean: true})
	if l.LEO() != 1 {
		t.Fatalf("LEO %d", l.LEO())
	}
	if err := l.Remove(); err != nil {
		t.Fatal(err)
	}
	if es, err := m.ReadDir("/data"); err != nil || len(es) != 0 {
		t.Fatalf("after Remove: %v, %v", es, err)
	}
	if _, err := l.Append([]record.Batch{localsegtest.Plain(t, 1)}, 0, localseg.OriginClient); !errors.Is(err, localseg.ErrClosed) {
		t.Fatalf("append after Remove: %v", err)
	}
}

// A disk error takes the log offline, once; the torn bytes are cut at the next start. A full disk is no different.
func TestDiskErrorTakesTheLogOffline(t *testing.T) {
	for name, inject := range map[string]func(*vfs.Mem){
		"write error": func(m *vfs.Mem) { m.FailNth(1, "write", ".log", nil) },
		"full disk":   func(m *vfs.Mem) { m.SetSpace(50) },
		"index error": func(m *vfs.Mem) { m.FailNth(1, "write", ".index", nil) },
		"roll error":  func(m *vfs.Mem) { m.FailNth(1, "write", ".snapshot", nil) },
		"sync error":  func(m *vfs.Mem) { m.FailNth(1, "sync", ".log", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem()
			var told atomic.Int32
			l := open(t, m, localseg.Options{Config: small, OnError: func(err error) {
				if !errors.Is(err, localseg.ErrOffline) {
					t.Errorf("told %v", err)
				}
				told.Add(1)
			}})
			add(t, l, 0, localsegtest.Plain(t, 1, 2))
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			acked := l.LEO()
			inject(m)
			for range 60 {
				_, err := l.Append([]record.Batch{localsegtest.Plain(t, 3, 4)}, 0, localseg.OriginClient)
				if err == nil {
					err = l.Flush()
				} else if name == "full disk" && told.Load() == 0 && !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("cause is hidden: %v", err)
				}
				if err == nil {
					acked = l.LEO()
				} else if !errors.Is(err, localseg.ErrOffline) {
					t.Fatal(err)
				}
			}
			if told.Load() != 1 {
				t.Fatalf("told %d times", told.Load())
			}
			if _, err := l.Read(0, acked, 10); !errors.Is(err, localseg.ErrOffline) {
				t.Fatalf("read: %v", err)
			}
			m.Kill()
			l = open(t, m, localseg.Options{Config: small})
			if l.LEO() < acked {
				t.Fatalf("LEO %d, acknowledged %d", l.LEO(), acked)
			}
			readAll(t, l, 0, 100)
		})
	}
}

// Write, sync data, sync indexes, snapshot, epochs, checkpoint: the order that recovery rests on.
func TestFlushOrder(t *testing.T) {
	m := vfs.NewMem()
	l := open(t, m, localseg.Options{Config: small})
	add(t, l, 1, localsegtest.Idempotent(t, 4, 0, 0, 1))
	m.StartTrace()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range m.Trace() {
		if strings.HasPrefix(s, "sync") || strings.HasPrefix(s, "rename") {
			got = append(got, strings.Replace(s, strings.Repeat("0", 19), "", 1))
		}
	}
	want := []string{"sync 0.log", "sync 0.index", "sync 0.timeindex", "sync 0.appendtime", "sync 0.txnindex", "sync 1.snapshot",
		"sync leader-epoch-checkpoint.tmp", "rename leader-epoch-checkpoint", "syncdir t-0", "syncdir data",
		"sync partition.checkpoint.tmp", "rename partition.checkpoint", "syncdir t-0"}
	if !slices.Equal(got, want) {
		t.Fatalf("order\n got %q\nwant %q", got, want)
	}
	m.StartTrace()
	if err := l.Flush(); err != nil || len(m.Trace()) != 0 {
		t.Fatalf("a flush of nothing does %q, %v", m.Trace(), err)
	}
}

func TestFlushEveryMessages(t *testing.T) {
	m := vfs.NewMem()
	c := small
	c.FlushMessages = 3
	l := open(t, m, localseg.Options{Config: c})
	for i, want := range []int64{0, 0, 3, 3, 3, 6} {
		add(t, l, 0, localsegtest.Plain(t, 1))
		if got := l.RecoveryPoint(); got != want {
			t.Fatalf("recovery point %d after %d records, want %d", got, i+1, want)
		}
	}
}

// BUG-085: a span stays readable when its segment is deleted and the log is closed; then its file is closed.
func TestSpanOutlivesItsSegment(t *testing.T) {
	files := localseg.NewFileCache(2)
	c := small
	c.RetentionMs = 1
	dir := t.TempDir()
	l, err := localseg.Open(vfs.OS{}, path.Join(dir, "t-0"), localseg.Options{Config: c, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		add(t, l, 0, localsegtest.Plain(t, 1, 2))
	}
	if n := files.Open(); n > 2 {
		t.Fatalf("%d files open, bound is 2", n)
	}
	s, err := l.Read(0, l.LEO(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := l.Retain(1<<50, 0); err != nil || n == 0 || l.LogStart() != 200 {
		t.Fatalf("retain: %d, %v, log start %d", n, err, l.LogStart())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, s.Size)
	if _, err := s.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	checkSpan(t, s, p, 0)
	if s.File.OS() == nil || files.Open() != 1 {
		t.Fatalf("open files %d", files.Open())
	}
	s.Release()
	if files.Open() != 0 {
		t.Fatalf("%d files open after the last release", files.Open())
	}
}

// Readers, flushes, rolls and retention beside one appender: every read is whole batches of the right offsets.
func TestConcurrentReaders(t *testing.T) {
	c := small
	c.RetentionBytes = 20000
	l := open(t, vfs.NewMem(), localseg.Options{Config: c, Files: localseg.NewFileCache(3)})
	var done atomic.Bool
	var wg sync.WaitGroup
	reader := func(step func() error) {
		wg.Go(func() {
			for !done.Load() {
				if err := step(); err != nil && !errors.Is(err, localseg.ErrOffsetOutOfRange) {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2 {
		reader(func() error {
			off := l.LogStart()
			s, err := l.Read(off, l.LEO(), 900)
			if err != nil || s.Size == 0 {
				return err
			}
			defer s.Release()
			p := make([]byte, s.Size)
			if _, err := s.ReadAt(p, 0); err != nil {
				return err
			}
			checkSpan(t, s, p, off)
			return nil
		})
	}
	reader(func() error { _, err := l.OffsetForTime(l.LEO() - 10); return err })
	reader(func() error { _, err := l.Aborted(l.LogStart(), l.LEO()); return err })
	reader(func() error { l.Segments(); l.Producers(); l.FirstUnstable(); _, err := l.MaxTimestamp(); return err })
	reader(l.Flush)
	for i := range 1500 {
		add(t, l, 0, localsegtest.Idempotent(t, 3, 0, int32(i), int64(i)))
		if i%50 == 0 {
			if _, err := l.Retain(1<<40, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	done.Store(true)
	wg.Wait()
	if l.LogStart() == 0 {
		t.Fatal("nothing was deleted meanwhile")
	}
}

func TestAppendTimesAreMonotonic(t *testing.T) {
	m := vfs.NewMem()
	l := open(t, m, localseg.Options{Config: small})
	future := int64(4e12)
	if err := l.StartAt(0, 10, []localseg.Epoch{{Epoch: 1, Start: 0}}, nil, future); err != nil {
		t.Fatal(err)
	}
	for range 40 { // the leader before us had a clock that was ahead: max(previous, now)
		if a := add(t, l, 2, localsegtest.Plain(t, 1, 2)); a.AppendTime != future {
			t.Fatalf("append time %d", a.AppendTime)
		}
	}
	closeClean(t, l)
	l = open(t, m, localseg.Options{Config: small, Clean: true})
	if a := add(t, l, 2, localsegtest.Plain(t, 1)); a.AppendTime != future {
		t.Fatalf("append time after a restart %d", a.AppendTime)
	}
	segs := l.Segments()
	times, err := l.AppendTimes(10, l.LEO())
	if err != nil || len(segs) < 2 || len(times) != len(segs)+1 { // one a segment, and a restart begins another one
		t.Fatalf("%d segments, append times %v, %v", len(segs), times, err)
	}
	for i, s := range segs {
		if times[i] != (localseg.AppendTime{Ms: future, Offset: s.Base}) || s.FirstAppendTime != future || s.LastAppendTime != future {
			t.Fatalf("segment %+v, entry %+v", s, times[i])
		}
	}
	if got, err := l.AppendTimes(segs[1].Base+1, segs[1].Base+2); err != nil || len(got) != 1 || got[0].Offset != segs[1].Base {
		t.Fatalf("covering [%d, +1): %v, %v", segs[1].Base+1, got, err)
	}
}

// Killed within its first second, a log still knows when its records came.
func TestFirstAppendTimeSurvivesAKill(t *testing.T) {
	dir := path.Join(t.TempDir(), "t-0")
	l, err := localseg.Open(vfs.OS{}, dir, localseg.Options{Config: small})
	if err != nil {
		t.Fatal(err)
	}
	at := add(t, l, 0, localsegtest.Plain(t, 1)).AppendTime
	add(t, l, 0, localsegtest.Plain(t, 1))
	if l, err = localseg.Open(vfs.OS{}, dir, localseg.Options{Config: small}); err != nil {
		t.Fatal(err)
	}
	times, err := l.AppendTimes(0, 2)
	if err != nil || len(times) != 1 || times[0].Offset != 0 || times[0].Ms < at-1000 || times[0].Ms > at+5000 {
		t.Fatalf("append times %v, %v; appended at %d", times, err, at)
	}
}
