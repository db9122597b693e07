package localseg_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/localseg/localsegtest"
	"github.com/varvelog/varve/record"
)

// A log truncated at a batch border answers as one that never had more, before and after a restart, and goes on.
func TestTruncateIsAsIfNeverWritten(t *testing.T) {
	for cut := range 100 {
		m := vfs.NewMem()
		w := &workload{t: t, l: open(t, m, localseg.Options{Config: small})}
		w.run()
		if cut >= len(w.ends) || w.ends[cut] <= w.start {
			continue
		}
		if cut%3 == 0 {
			closeClean(t, w.l)
			w.l = open(t, m, localseg.Options{Config: small, Clean: true})
		}
		if err := w.l.Truncate(w.ends[cut]); err != nil {
			t.Fatal(err)
		}
		want := twin(t, w, cut+1, w.start)
		wantBytes(t, "content", readAll(t, w.l, w.start, 500), want.Bytes)
		got := imageOf(t, w.l, w.start)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("cut at %d\n got %+v\nwant %+v", w.ends[cut], got, want)
		}
		m.Kill()
		l := open(t, m, localseg.Options{Config: small})
		if got := imageOf(t, l, w.start); !reflect.DeepEqual(got, want) {
			t.Fatalf("cut at %d, restarted\n got %+v\nwant %+v", w.ends[cut], got, want)
		}
		if a := add(t, l, 99, localsegtest.Plain(t, 1)); a.First != w.ends[cut] {
			t.Fatalf("next offset %d, want %d", a.First, w.ends[cut])
		}
	}
}

func TestTruncateMidBatchDropsTheBatch(t *testing.T) {
	l := open(t, vfs.NewMem(), localseg.Options{Config: small})
	add(t, l, 0, localsegtest.Plain(t, 1, 2, 3))
	add(t, l, 0, localsegtest.Plain(t, 4, 5, 6))
	for _, c := range [][2]int64{{9, 6}, {6, 6}, {5, 3}, {3, 3}, {1, 0}, {0, 0}} {
		if err := l.Truncate(c[0]); err != nil || l.LEO() != c[1] {
			t.Fatalf("truncate to %d: LEO %d, %v", c[0], l.LEO(), err)
		}
	}
	if err := l.Truncate(-1); err == nil {
		t.Fatal("a negative offset is accepted")
	}
}

func TestTruncateBelowTheLogStartsAnew(t *testing.T) {
	l := filled(t, vfs.NewMem(), localseg.Config{})
	if err := l.SetLogStart(50); err != nil {
		t.Fatal(err)
	}
	if err := l.Truncate(20); err != nil || l.LEO() != 20 || l.LogStart() != 20 || l.SizeBytes() != 0 || len(l.Epochs()) != 0 {
		t.Fatalf("[%d, %d), %d bytes, epochs %v, %v", l.LogStart(), l.LEO(), l.SizeBytes(), l.Epochs(), err)
	}
	if a := add(t, l, 5, localsegtest.Plain(t, 1)); a.First != 20 {
		t.Fatalf("%+v", a)
	}
}

func TestStartAtTakesOverAHistory(t *testing.T) {
	src := open(t, vfs.NewMem(), localseg.Options{Config: small})
	add(t, src, 1, localsegtest.Idempotent(t, 7, 0, 0, 1, 2))
	add(t, src, 2, localsegtest.Transactional(t, 8, 0, 0, 3))
	snapshot, err := src.ProducersAt(src.LEO())
	if err != nil {
		t.Fatal(err)
	}
	m := vfs.NewMem()
	tiered := small
	tiered.Tiered = true
	l := open(t, m, localseg.Options{Config: tiered})
	if err := l.StartAt(1, 3, src.Epochs(), snapshot, 77); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if l.LogStart() != 1 || l.LocalStart() != 3 || l.LEO() < 3 || !slices.Equal(l.Producers(), src.Producers()) {
			t.Fatalf("[%d, %d, %d) %v", l.LogStart(), l.LocalStart(), l.LEO(), l.Producers())
		}
		if e, end := l.EndOffset(1); e != 1 || end != 2 {
			t.Fatalf("end of epoch 1: %d, %d", e, end)
		}
	}
	check()
	m.Crash(1)
	l = open(t, m, localseg.Options{Config: tiered})
	check()
	if l.FirstUnstable() != 2 {
		t.Fatalf("first unstable %d", l.FirstUnstable())
	}
	if a := add(t, l, 2, localsegtest.Idempotent(t, 7, 0, 0, 1, 2)); !a.Duplicate || a.First != 0 {
		t.Fatalf("duplicate from before: %+v", a)
	}
	add(t, l, 3, localsegtest.Marker(8, 0, 4, false))
	if got, err := l.Aborted(3, 4); err != nil || len(got) != 1 || got[0].First != 2 {
		t.Fatalf("abort of a transaction that began in the archive: %v, %v", got, err)
	}
	if err := l.StartAt(0, 50, nil, nil, 0); err == nil {
		t.Fatal("a log with records starts anew")
	}
	if err := open(t, vfs.NewMem(), localseg.Options{}).StartAt(0, 5, nil, []byte("garbage"), 0); err == nil {
		t.Fatal("garbage is taken for a snapshot")
	}
}

// BUG-021
func TestEndOffsetForEpoch(t *testing.T) {
	l := open(t, vfs.NewMem(), localseg.Options{Config: small})
	if e, end := l.EndOffset(0); e != -1 || end != -1 {
		t.Fatalf("no epochs: %d, %d", e, end)
	}
	if err := l.StartAt(0, 5, nil, nil, 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ epoch, n int }{{2, 10}, {3, 10}, {6, 5}} {
		add(t, l, int32(c.epoch), localsegtest.Plain(t, make([]int64, c.n)...))
	}
	for _, c := range [][3]int64{{2, 2, 15}, {3, 3, 25}, {6, 6, 30}, {11, -1, -1}, {-1, -1, -1}, {4, 3, 25}, {1, 1, 5}} {
		if e, end := l.EndOffset(int32(c[0])); int64(e) != c[1] || end != c[2] {
			t.Fatalf("epoch %d: (%d, %d), want (%d, %d)", c[0], e, end, c[1], c[2])
		}
	}
	if err := l.AssignEpoch(9); err != nil {
		t.Fatal(err)
	}
	if e, end := l.EndOffset(8); e != 6 || end != 30 {
		t.Fatalf("epoch 8 with an empty 9 above: (%d, %d)", e, end)
	}
	add(t, l, 10, localsegtest.Plain(t, 1))
	if got := l.Epochs(); len(got) != 4 || got[3] != (localseg.Epoch{Epoch: 10, Start: 30}) {
		t.Fatalf("an epoch without records stays: %v", got)
	}
}

// A follower's log is cut back, or was to be led and never written, and goes on with what a leader has of an older epoch. No epoch that it
// had may claim that: a log that did so agreed with others that had really been written in that epoch, as far as anybody asked.
func TestNoEpochClaimsWhatAnOlderOneHas(t *testing.T) {
	leader := open(t, vfs.NewMem(), localseg.Options{Config: small})
	add(t, leader, 1, localsegtest.Plain(t, 1, 2, 3))
	add(t, leader, 1, localsegtest.Plain(t, 4, 5, 6))
	_, rest, err := record.Next(readAll(t, leader, 0, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	older, _, err := record.Next(rest) // [3, 6)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule    string
		written bool // in epoch 2
		flushed bool
		end     func(m *vfs.Mem)
	}{
		{"truncated, killed", true, true, func(m *vfs.Mem) { m.Kill() }},
		{"truncated, crashed", true, true, func(m *vfs.Mem) { m.Crash(1) }},
		{"truncated, not flushed before", true, false, func(m *vfs.Mem) { m.Kill() }},
		{"never written", false, true, func(m *vfs.Mem) { m.Kill() }},
		{"never written, not flushed", false, false, func(m *vfs.Mem) { m.Kill() }},
	} {
		m := vfs.NewMem()
		l := open(t, m, localseg.Options{Config: small})
		add(t, l, 1, localsegtest.Plain(t, 1, 2, 3))
		if err := l.AssignEpoch(2); err != nil {
			t.Fatal(err)
		}
		if c.written {
			add(t, l, 2, localsegtest.Plain(t, 7, 8, 9, 10))
		}
		if c.flushed {
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if c.written {
			if err := l.Truncate(3); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when string) {
			t.Helper()
			if e, end := l.EndOffset(2); l.LEO() == 6 && (e >= 0 || end >= 0) || e == 2 && end > 3 {
				t.Errorf("%s, %s: epoch 2 ends at %d, epochs %v, end %d", c.rule, when, end, l.Epochs(), l.LEO())
			}
		}
		check("cut")
		if _, err := l.AppendReplica([]record.Batch{older}, 3, nil); err != nil {
			t.Fatal(err)
		}
		check("appended")
		c.end(m)
		l = open(t, m, localseg.Options{Config: small})
		check("restarted")
	}
}
