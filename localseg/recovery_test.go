package localseg_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"reflect"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/localseg/localsegtest"
)

const dir = "/data/t-0"

// active is the path of the newest segment's file.
func active(t *testing.T, m vfs.FS) string {
	t.Helper()
	es, err := m.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for _, e := range es {
		if strings.HasSuffix(e.Name(), ".log") {
			last = path.Join(dir, e.Name())
		}
	}
	return last
}

// edit changes a file's bytes.
func edit(t *testing.T, m vfs.FS, name string, f func([]byte) []byte) {
	t.Helper()
	h, err := m.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	n, _ := h.Size()
	b := make([]byte, n)
	h.ReadAt(b, 0)
	b = f(b)
	if err := h.Truncate(int64(len(b))); err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
}

// BUG-034: a torn tail, whatever is in it, costs exactly what is torn.
func TestTornTail(t *testing.T) {
	huge := localsegtest.Plain(t, 1)
	huge[8], huge[9], huge[10], huge[11] = 0x7f, 0xff, 0xff, 0xff
	random := make([]byte, 37)
	for i := range random {
		random[i] = byte(rand.IntN(256))
	}
	flip := func(back int) func([]byte) []byte {
		return func(b []byte) []byte { b[len(b)-back] ^= 0x10; return b }
	}
	for name, c := range map[string]struct {
		damage func([]byte) []byte
		lost   int64
	}{
		"random bytes":        {func(b []byte) []byte { return append(b, random...) }, 0},
		"header of 2 GiB":     {func(b []byte) []byte { return append(b, huge[:61]...) }, 0},
		"zeros":               {func(b []byte) []byte { return append(b, make([]byte, 512)...) }, 0},
		"many zeros":          {func(b []byte) []byte { return append(b, make([]byte, 1<<20)...) }, 0},
		"last batch cut":      {func(b []byte) []byte { return b[:len(b)-10] }, 1},
		"bit flip":            {flip(5), 1},
		"bit flip in its CRC": {flip(72 - 20), 1},
		"old offset again":    {func(b []byte) []byte { return append(b, b[:72]...) }, 0},
	} {
		for _, flushed := range []bool{false, true} {
			m := vfs.NewMem()
			l := open(t, m, localseg.Options{Config: small})
			for i := range 100 {
				add(t, l, 0, localsegtest.Plain(t, int64(i)))
			}
			if flushed {
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			want := readAll(t, l, 0, 1000)
			m.Kill()
			edit(t, m, active(t, m), c.damage)
			l = open(t, m, localseg.Options{Config: small})
			if l.LEO() != 100-c.lost {
				t.Fatalf("%s, flushed %v: LEO %d", name, flushed, l.LEO())
			}
			wantBytes(t, name, readAll(t, l, 0, 1000), want[:len(want)-72*int(c.lost)])
			if a := add(t, l, 0, localsegtest.Plain(t, 7)); a.First != 100-c.lost {
				t.Fatalf("%s: next offset %d", name, a.First)
			}
		}
	}
}

// BUG-095: indexes and snapshots are derived data: zeroed, deleted, cut or flipped, every answer stays the same.
func TestDamagedIndexesAreRebuilt(t *testing.T) {
	derived := func(name string) bool {
		return !strings.HasSuffix(name, ".log") && name != "partition.metadata"
	}
	for how, damage := range map[string]func(*testing.T, vfs.FS, string){
		"zeroed": func(t *testing.T, m vfs.FS, n string) {
			edit(t, m, n, func(b []byte) []byte { return make([]byte, len(b)) })
		},
		"deleted": func(t *testing.T, m vfs.FS, n string) {
			if err := m.Remove(n); err != nil {
				t.Fatal(err)
			}
		},
		"cut to 13": func(t *testing.T, m vfs.FS, n string) {
			edit(t, m, n, func(b []byte) []byte { return append(b, make([]byte, 13)...)[:13] })
		},
		"ones": func(t *testing.T, m vfs.FS, n string) {
			edit(t, m, n, func(b []byte) []byte { return bytes.Repeat([]byte{0xff}, len(b)) })
		},
	} {
		for _, only := range []string{"", ".index", ".timeindex", ".txnindex", ".snapshot", "partition.checkpoint", "leader-epoch-checkpoint"} {
			for _, clean := range []bool{true, false} {
				m := vfs.NewMem()
				w := &workload{t: t, l: open(t, m, localseg.Options{Config: small})}
				w.run()
				want := imageOf(t, w.l, w.start)
				closeClean(t, w.l)
				es, _ := m.ReadDir(dir)
				for _, e := range es {
					if derived(e.Name()) && strings.HasSuffix(e.Name(), only) {
						damage(t, m, path.Join(dir, e.Name()))
					}
				}
				l := open(t, m, localseg.Options{Config: small, Clean: clean})
				name := how + " " + only
				if l.LEO() != w.l.LEO() {
					t.Fatalf("%s: LEO %d, want %d", name, l.LEO(), w.l.LEO())
				}
				if err := l.SetLogStart(w.start); err != nil { // the one thing that only the checkpoint knows
					t.Fatal(err)
				}
				got := imageOf(t, l, w.start)
				wantBytes(t, name, got.Bytes, want.Bytes)
				got.Bytes, want.Bytes = nil, nil
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: answers differ\n got %+v\nwant %+v", name, got, want)
				}
				last := w.batches[len(w.batches)-1]
				if a := add(t, l, 9, last); !a.Duplicate {
					t.Fatalf("%s: duplicate not detected: %+v", name, a)
				}
				want.Bytes = nil
			}
		}
	}
}

func TestCorruptionBelowTheRecoveryPointIsFoundByReaders(t *testing.T) {
	m := vfs.NewMem()
	l := open(t, m, localseg.Options{Config: localseg.Config{RetentionMs: -1}})
	for i := range 100 {
		add(t, l, 0, localsegtest.Plain(t, int64(i)))
	}
	closeClean(t, l)
	edit(t, m, active(t, m), func(b []byte) []byte { b[50*72+8] = 0x7f; return b })
	l = open(t, m, localseg.Options{Clean: true})
	_, err := l.Read(52, 100, 10)
	var bad *localseg.CorruptError
	if !asCorrupt(err, &bad) || bad.Pos != 50*72 || !strings.HasSuffix(bad.File, ".log") {
		t.Fatalf("read: %v", err)
	}
	if _, err := l.OffsetForTime(52); !asCorrupt(err, &bad) {
		t.Fatalf("time look-up: %v", err)
	}
}

// A clean start reads no segment, and opens none.
func TestCleanOpenIsCheap(t *testing.T) {
	m := vfs.NewMem()
	w := &workload{t: t, l: open(t, m, localseg.Options{Config: small})}
	w.run()
	closeClean(t, w.l)
	before := m.Calls()
	files := localseg.NewFileCache(0)
	l := open(t, m, localseg.Options{Config: small, Clean: true, Files: files})
	if n := m.Calls() - before; n > 20 || files.Open() != 0 {
		t.Fatalf("%d calls, %d files open", n, files.Open())
	}
	if l.LEO() != w.l.LEO() || l.SizeBytes() != w.l.SizeBytes() {
		t.Fatalf("LEO %d, want %d", l.LEO(), w.l.LEO())
	}
	// Not clean, but nothing written since: the last batches are looked at, no more.
	l = open(t, m, localseg.Options{Config: small, Files: files})
	if l.LEO() != w.l.LEO() || files.Open() > 1 {
		t.Fatalf("LEO %d, %d files", l.LEO(), files.Open())
	}
}

func TestStrayFilesAreRemoved(t *testing.T) {
	m := vfs.NewMem()
	l := open(t, m, localseg.Options{Config: small})
	add(t, l, 0, localsegtest.Plain(t, 1))
	closeClean(t, l)
	for _, n := range []string{"00000000000000000000.log.deleted", "partition.checkpoint.tmp", "notes.txt"} {
		f, err := m.OpenFile(path.Join(dir, n), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	l = open(t, m, localseg.Options{Config: small, Clean: true})
	es, _ := m.ReadDir(dir)
	for _, e := range es {
		if strings.HasSuffix(e.Name(), ".deleted") || strings.HasSuffix(e.Name(), ".tmp") {
			t.Fatalf("left: %s", e.Name())
		}
	}
	if _, err := m.Stat(path.Join(dir, "notes.txt")); err != nil || l.LEO() != 1 {
		t.Fatalf("a file that is not ours: %v, LEO %d", err, l.LEO())
	}
}

// syncHook calls f before a directory is synced.
type syncHook struct {
	vfs.FS
	f func()
}

func (s *syncHook) SyncDir(name string) error {
	s.f()
	return s.FS.SyncDir(name)
}

// Logs that are opened at once share the bound on open files: what one opens must not push the indexes out of memory that another is
// still making. It was a nil pointer.
func TestRecoveryKeepsItsIndexesWhileOtherLogsOpenFiles(t *testing.T) {
	m := vfs.NewMem()
	files := localseg.NewFileCache(1)
	other, err := localseg.Open(m, "/data/u-0", localseg.Options{Config: small, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	add(t, other, 0, localsegtest.Plain(t, 1))
	l := open(t, m, localseg.Options{Config: small})
	for i := range 100 {
		add(t, l, 0, localsegtest.Plain(t, int64(i)))
	}
	segs := l.Segments()
	torn := segs[len(segs)-2]
	edit(t, m, path.Join(dir, fmt.Sprintf("%020d.log", torn.Base)), func(b []byte) []byte { return b[:len(b)-10] })
	fs := &syncHook{m, func() { readAll(t, other, 0, 100) }}
	l = open(t, fs, localseg.Options{Config: small, Files: files})
	if l.LEO() != torn.End-1 {
		t.Fatalf("LEO %d, want %d", l.LEO(), torn.End-1)
	}
	readAll(t, l, 0, 1000)
}

// What a recovery has cut off below the checkpoint is written again, otherwise: a checkpoint that still spoke of the former bytes would have
// the next recovery begin amid a batch, and the log end where that one had.
func TestALogThatWasCutBelowItsCheckpointIsCheckedAgainAfterTheNextKill(t *testing.T) {
	config := localseg.Config{IndexIntervalBytes: 200, RetentionMs: -1}
	for _, deferred := range []bool{false, true} {
		m := vfs.NewMem()
		l := open(t, m, localseg.Options{Config: config})
		for i := range 100 {
			add(t, l, 3, localsegtest.Plain(t, int64(i)))
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		m.Kill()
		edit(t, m, active(t, m), func(b []byte) []byte { b[99*72+70] ^= 1; return b })
		l = open(t, m, localseg.Options{Config: config, DeferSync: deferred})
		if l.LEO() != 99 {
			t.Fatalf("LEO %d after damage at 99", l.LEO())
		}
		if err := localseg.SyncRecovered([]*localseg.Log{l}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			add(t, l, 4, localsegtest.Plain(t, 1, 2, 3))
		}
		want := readAll(t, l, 0, 1000)
		m.Kill()
		l = open(t, m, localseg.Options{Config: config})
		if l.LEO() != 108 {
			t.Fatalf("LEO %d after the kill, want 108", l.LEO())
		}
		wantBytes(t, "after the kill", readAll(t, l, 0, 1000), want)
		if _, end := l.EndOffset(3); end != 99 {
			t.Fatalf("epoch 3 ends at %d, want 99", end)
		}
	}
}

// A log that ends below its start begins anew there, and not where its checkpoint was, however often it is opened before anything comes.
func TestALogThatBeginsAnewAtItsStartStaysThere(t *testing.T) {
	config := localseg.Config{IndexIntervalBytes: 200, RetentionMs: -1, Tiered: true}
	m := vfs.NewMem()
	l := open(t, m, localseg.Options{Config: config})
	for i := range 100 {
		add(t, l, 0, localsegtest.Plain(t, int64(i)))
	}
	if err := l.SetLogStart(50); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	m.Kill()
	edit(t, m, active(t, m), func(b []byte) []byte { return b[:40*72] })
	for range 2 {
		l = open(t, m, localseg.Options{Config: config})
		if l.LogStart() != 50 || l.LEO() != 50 {
			t.Fatalf("log [%d, %d), want [50, 50)", l.LogStart(), l.LEO())
		}
		m.Kill()
	}
}

// Without its checkpoint a log does not know its log start. One that claimed to begin with its oldest local segment would have all below it
// deleted from the archive by who leads it.
func TestATieredLogWithoutItsCheckpointDoesNotTakeWhatIsArchivedForDeleted(t *testing.T) {
	config := localseg.Config{IndexIntervalBytes: 200, SegmentBytes: 2000, RetentionMs: -1, Tiered: true, LocalRetentionBytes: 1000}
	for how, damage := range map[string]func(m vfs.FS, name string) error{
		"damaged": func(m vfs.FS, name string) error {
			edit(t, m, name, func(b []byte) []byte { b[20] ^= 1; return b })
			return nil
		},
		"gone": func(m vfs.FS, name string) error { return m.Remove(name) },
	} {
		m := vfs.NewMem()
		l := open(t, m, localseg.Options{Config: config})
		for i := range 200 {
			add(t, l, 3, localsegtest.Plain(t, int64(i)))
		}
		if err := l.SetLogStart(10); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Retain(1000, 150); err != nil {
			t.Fatal(err)
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		local := l.LocalStart()
		m.Kill()
		if err := damage(m, dir+"/partition.checkpoint"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			l = open(t, m, localseg.Options{Config: config})
			if l.LogStart() != 10 || l.LocalStart() != local || local <= 10 || l.LEO() != 200 {
				t.Fatalf("%s: log [%d, %d), local from %d; want [10, 200), local from %d", how, l.LogStart(), l.LEO(), l.LocalStart(), local)
			}
			if _, err := l.Read(20, 200, 100); !errors.Is(err, localseg.ErrBelowLocal) {
				t.Fatalf("%s: read of what is only archived: %v", how, err)
			}
			closeClean(t, l)
		}
	}
}

// A roll, or a flush that was under way, has written a snapshot; the power went, and with it the batches up to there, not the snapshot.
func TestASnapshotOfWhatIsLostDoesNotCountForWhatComesInItsPlace(t *testing.T) {
	m := vfs.NewMem()
	l := open(t, m, localseg.Options{Config: localseg.Config{RetentionMs: -1}})
	for i := range 100 {
		add(t, l, 0, localsegtest.Plain(t, int64(i)))
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		add(t, l, 0, localsegtest.Idempotent(t, 7, 0, int32(i), int64(i)))
	}
	snapshot, err := l.ProducersAt(103)
	if err != nil {
		t.Fatal(err)
	}
	m.Kill()
	edit(t, m, active(t, m), func(b []byte) []byte { return b[:100*72] })
	f, err := m.OpenFile(dir+"/00000000000000000103.snapshot", os.O_CREATE|os.O_RDWR, 0o644)
	if err == nil {
		_, err = f.WriteAt(snapshot, 0)
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Close(), m.SyncDir(dir))
	}
	if err != nil {
		t.Fatal(err)
	}
	l = open(t, m, localseg.Options{Config: localseg.Config{RetentionMs: -1}})
	if l.LEO() != 100 {
		t.Fatalf("LEO %d", l.LEO())
	}
	for i := range 5 {
		add(t, l, 1, localsegtest.Idempotent(t, 8, 0, int32(i), int64(i)))
	}
	got, err := l.ProducersAt(104)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Truncate(104); err != nil {
		t.Fatal(err)
	}
	want := []localseg.ActiveProducer{{ID: 8, LastSequence: 3, LastTimestamp: 3, CoordinatorEpoch: -1, TxnStart: -1}}
	if p := l.Producers(); !reflect.DeepEqual(p, want) {
		t.Fatalf("producers %+v, want %+v", p, want)
	}
	if whole, err := l.ProducersAt(104); err != nil || !bytes.Equal(got, whole) {
		t.Fatalf("the snapshot at 104 was another one before: %v", err)
	}
}
