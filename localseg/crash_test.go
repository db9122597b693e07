package localseg_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/localseg/localsegtest"
	"github.com/varvelog/varve/record"
)

// workload appends every kind of batch, rolls, flushes and changes epochs, until a call fails.
type workload struct {
	t       *testing.T
	l       *localseg.Log
	batches []record.Batch // as they are in the log; the last may not have been acknowledged
	ends    []int64        // LEO after each
	flushed int64
	start   int64 // durable log start
	failed  bool
	retain  bool // delete segments as well
}

func (w *workload) append(epoch int32, b record.Batch) {
	if w.failed {
		return
	}
	from := localseg.OriginClient
	if b.Control() {
		from = localseg.OriginInternal
	}
	_, err := w.l.Append([]record.Batch{b}, epoch, from)
	w.check(err)
	w.batches = append(w.batches, b)
	w.ends = append(w.ends, b.NextOffset())
}

func (w *workload) check(err error) bool {
	if err != nil && !errors.Is(err, localseg.ErrOffline) {
		w.t.Fatalf("unexpected error: %v", err)
	}
	w.failed = w.failed || err != nil
	return !w.failed
}

func (w *workload) run() {
	epoch := int32(1)
	for i := range 40 {
		if w.failed {
			return
		}
		ms := int64(1000 + 10*((i*7)%40))
		w.append(epoch, localsegtest.Plain(w.t, ms, ms+5, ms+1))
		w.append(epoch, localsegtest.Idempotent(w.t, 5, 0, int32(2*i), ms, ms+2))
		if i%4 == 0 {
			w.append(epoch, localsegtest.Transactional(w.t, 6, 0, int32(i/4), ms))
		}
		if i%4 == 2 {
			w.append(epoch, localsegtest.Marker(6, 0, ms, i%8 == 2))
		}
		if i%9 == 8 && !w.failed {
			epoch++
			w.check(w.l.AssignEpoch(epoch))
		}
		if i%11 == 10 && !w.failed && w.check(w.l.Flush()) {
			w.flushed = w.l.LEO()
		}
		if i%13 == 12 && !w.failed {
			w.check(w.l.FlushRolled())
			w.flushed = max(w.flushed, w.l.RecoveryPoint())
		}
		if w.retain && i%5 == 4 && !w.failed {
			_, err := w.l.Retain(0, 0)
			w.check(err)
		}
		if i%17 == 16 && !w.failed && w.check(w.l.SetLogStart(int64(i))) {
			w.start = int64(i)
		}
	}
}

// image is every answer that must survive.
type image struct {
	Bytes     []byte
	Producers []localseg.ActiveProducer
	Aborted   []localseg.AbortedTxn
	Epochs    []localseg.Epoch
	Unstable  int64
	Max       localseg.TimestampOffset
	Times     []localseg.TimestampOffset
}

func imageOf(t *testing.T, l *localseg.Log, start int64) (m image) {
	t.Helper()
	var err error
	m.Bytes = readAll(t, l, start, 700)
	m.Producers = l.Producers()
	if m.Aborted, err = l.Aborted(start, l.LEO()); err != nil {
		t.Fatal(err)
	}
	for _, e := range l.Epochs() {
		if e.Start < l.LEO() {
			m.Epochs = append(m.Epochs, e)
		}
	}
	m.Unstable = l.FirstUnstable()
	if m.Max, err = l.MaxTimestamp(); err != nil {
		t.Fatal(err)
	}
	for ts := int64(990); ts < 1420; ts += 17 {
		o, err := l.OffsetForTime(ts)
		if err != nil {
			t.Fatal(err)
		}
		m.Times = append(m.Times, o)
	}
	return m
}

// twin is a log that never crashed, with the first n batches.
func twin(t *testing.T, w *workload, n int, start int64) image {
	t.Helper()
	l := open(t, vfs.NewMem(), localseg.Options{Config: small})
	for _, b := range w.batches[:n] {
		if _, err := l.Append([]record.Batch{slices.Clone(b)}, 0, localseg.OriginReplica); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SetLogStart(start); err != nil {
		t.Fatal(err)
	}
	return imageOf(t, l, start)
}

func verifyRecovered(t *testing.T, name string, l *localseg.Log, w *workload) {
	t.Helper()
	if l.LEO() < w.flushed {
		t.Fatalf("%s: LEO %d, %d was flushed", name, l.LEO(), w.flushed)
	}
	if l.LogStart() < w.start {
		t.Fatalf("%s: log start %d, %d was durable", name, l.LogStart(), w.start)
	}
	n := slices.Index(w.ends, l.LEO()) + 1
	if n == 0 && l.LEO() != l.LogStart() {
		t.Fatalf("%s: LEO %d is no end of a batch", name, l.LEO())
	}
	if l.LEO() == l.LogStart() {
		return // all that was above the durable start is lost; nothing to compare
	}
	got, want := imageOf(t, l, l.LogStart()), twin(t, w, n, l.LogStart())
	wantBytes(t, name+" content", got.Bytes, want.Bytes)
	got.Bytes, want.Bytes = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: answers differ at LEO %d\n got %+v\nwant %+v", name, l.LEO(), got, want)
	}
}

// A crash at any call of a workload, with what was not synced torn by sectors, leaves a prefix that has all that was
// flushed, and that answers every question as a log that never crashed. What was served after recovery is never lost.
func TestCrashAnywhere(t *testing.T) {
	deleting := small
	deleting.RetentionBytes = 3000
	for _, c := range []localseg.Config{small, deleting} {
		probe := vfs.NewMem()
		w := &workload{t: t, l: open(t, probe, localseg.Options{Config: c}), retain: c.RetentionBytes > 0}
		w.run()
		if w.failed || w.retain && w.l.LogStart() < 100 {
			t.Fatal("the workload does not do what it should")
		}
		total, step := probe.Calls(), 3
		if testing.Short() {
			step = 17
		}
		for k := 1; k < total; k += step {
			crashAt(t, c, k, uint64(k))
		}
	}
}

func crashAt(t *testing.T, c localseg.Config, k int, seed uint64) {
	t.Helper()
	name := fmt.Sprintf("crash at call %d", k)
	m := vfs.NewMem()
	w := &workload{t: t, l: open(t, m, localseg.Options{Config: c}), retain: c.RetentionBytes > 0}
	m.StopAfter(k)
	w.run()
	if seed%4 == 0 {
		m.Kill()
	} else {
		m.Crash(seed)
	}
	later := seed%3 == 0
	l := open(t, m, localseg.Options{Config: small, DeferSync: later})
	if later {
		if err := m.SyncFS("/data"); err != nil {
			t.Fatal(err)
		}
	}
	verifyRecovered(t, name, l, w)
	served := l.LEO()
	m.Crash(seed + 1)
	l = open(t, m, localseg.Options{Config: small})
	if l.LEO() < served {
		t.Fatalf("%s: LEO %d after a second crash, %d was served", name, l.LEO(), served)
	}
	verifyRecovered(t, name+", twice", l, w)
	add(t, l, 99, localsegtest.Plain(t, 5000))
	closeClean(t, l)
	l = open(t, m, localseg.Options{Config: small, Clean: true})
	if o, err := l.OffsetForTime(5000); err != nil || o.Offset != l.LEO()-1 {
		t.Fatalf("%s: record appended after recovery: %+v, %v", name, o, err)
	}
}

// Truncation to a batch border, crashed anywhere: the log is as before or as after, never a mixture with later appends.
func TestCrashDuringTruncate(t *testing.T) {
	for k := 0; k < 200; k++ {
		m := vfs.NewMem()
		w := &workload{t: t, l: open(t, m, localseg.Options{Config: small})}
		w.run()
		if err := w.l.Flush(); err != nil {
			t.Fatal(err)
		}
		before := readAll(t, w.l, w.start, 1<<20)
		cut := len(w.batches) * (k%5 + 1) / 7
		m.StopAfter(k)
		done := w.l.Truncate(w.ends[cut]) == nil
		m.Crash(uint64(k))
		l := open(t, m, localseg.Options{Config: small})
		if done && l.LEO() != w.ends[cut] {
			t.Fatalf("k %d: LEO %d after a truncation to %d", k, l.LEO(), w.ends[cut])
		}
		if l.LEO() < w.ends[cut] {
			t.Fatalf("k %d: LEO %d, below the truncation to %d", k, l.LEO(), w.ends[cut])
		}
		if got := readAll(t, l, w.start, 1<<20); !bytes.HasPrefix(before, got) {
			t.Fatalf("k %d: what is left is not a prefix", k)
		}
		w.flushed = 0
		verifyRecovered(t, fmt.Sprintf("truncate, k %d", k), l, w)
		if done && k > 100 {
			return
		}
	}
}

// TruncateFully and StartAt, crashed anywhere, are done wholly or not at all.
func TestCrashDuringReset(t *testing.T) {
	snapshot := func() []byte {
		l := open(t, vfs.NewMem(), localseg.Options{Config: small})
		add(t, l, 1, localsegtest.Idempotent(t, 9, 2, 0, 1))
		b, err := l.ProducersAt(l.LEO())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}()
	for k := 0; ; k++ {
		m := vfs.NewMem()
		w := &workload{t: t, l: open(t, m, localseg.Options{Config: small})}
		w.run()
		closeClean(t, w.l)
		l := open(t, m, localseg.Options{Config: small})
		old := l.LEO()
		m.StopAfter(k)
		full := l.TruncateFully(70) == nil
		started := full && l.StartAt(20, 500, []localseg.Epoch{{Epoch: 3, Start: 20}}, snapshot, 12345) == nil
		m.Crash(uint64(k))
		l = open(t, m, localseg.Options{Config: localseg.Config{Tiered: true}})
		switch leo := l.LEO(); {
		case started && leo != 500, full && leo != 70 && leo != 500, leo != old && leo != 70 && leo != 500:
			t.Fatalf("k %d: LEO %d (truncated %v, started %v)", k, leo, full, started)
		case leo == 500:
			if ps := l.Producers(); len(ps) != 1 || ps[0].ID != 9 || l.LogStart() != 20 || l.LocalStart() != 500 || !slices.Equal(l.Epochs(), []localseg.Epoch{{Epoch: 3, Start: 20}}) {
				t.Fatalf("k %d: history %v %v, log start %d, local %d", k, ps, l.Epochs(), l.LogStart(), l.LocalStart())
			}
			if a := add(t, l, 4, localsegtest.Plain(t, 1)); a.AppendTime < 12345 || a.First != 500 {
				t.Fatalf("k %d: %+v", k, a)
			}
		case leo == 70:
			if l.LogStart() != 70 || len(l.Producers()) != 0 {
				t.Fatalf("k %d: log start %d, producers %v", k, l.LogStart(), l.Producers())
			}
		}
		if started {
			return
		}
	}
}
