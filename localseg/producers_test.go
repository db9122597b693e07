package localseg_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/localseg/localsegtest"
	"github.com/varvelog/varve/record"
)

func TestIdempotentSequences(t *testing.T) {
	type step struct {
		epoch int16
		seq   int32
		n     int
		first int64 // where it lands
		dup   bool
		err   error
	}
	for name, steps := range map[string][]step{
		"in order":                       {{seq: 0, n: 2, first: 0}, {seq: 2, n: 1, first: 2}},
		"gap":                            {{seq: 0, n: 1}, {seq: 2, n: 1, err: localseg.ErrOutOfOrderSequence}},
		"again":                          {{seq: 0, n: 2}, {seq: 2, n: 2, first: 2}, {seq: 0, n: 2, first: 0, dup: true}, {seq: 2, n: 2, first: 2, dup: true}},
		"overlap is no duplicate":        {{seq: 0, n: 2}, {seq: 1, n: 2, err: localseg.ErrOutOfOrderSequence}},
		"old epoch":                      {{epoch: 2, seq: 0, n: 1}, {epoch: 1, seq: 0, n: 1, err: localseg.ErrInvalidEpoch}},
		"new epoch begins at zero":       {{epoch: 1, seq: 0, n: 1}, {epoch: 2, seq: 1, n: 1, err: localseg.ErrOutOfOrderSequence}, {epoch: 2, seq: 0, n: 1, first: 1}},
		"unknown producer, any sequence": {{seq: 3, n: 1}, {seq: 4, n: 1, first: 1}}, // BUG-097, as Kafka up to 4.4
		"wrap between batches":           {{seq: math.MaxInt32, n: 1}, {seq: 0, n: 1, first: 1}},
		"wrap inside a batch":            {{seq: math.MaxInt32 - 1, n: 4}, {seq: 2, n: 1, first: 4}, {seq: math.MaxInt32 - 1, n: 4, first: 0, dup: true}},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, vfs.NewMem(), localseg.Options{Config: small})
			for i, s := range steps {
				leo := l.LEO()
				a, err := l.Append([]record.Batch{localsegtest.Idempotent(t, 1, s.epoch, s.seq, make([]int64, s.n)...)}, 0, localseg.OriginClient)
				if !errors.Is(err, s.err) {
					t.Fatalf("step %d: %v, want %v", i, err, s.err)
				}
				if err == nil && (a.First != s.first || a.Last != s.first+int64(s.n)-1 || a.Duplicate != s.dup) {
					t.Fatalf("step %d: %+v, want %+v", i, a, s)
				}
				if (err != nil || s.dup) && l.LEO() != leo {
					t.Fatalf("step %d stored something", i)
				}
			}
		})
	}
}

func TestFiveBatchesAreRemembered(t *testing.T) {
	l := open(t, vfs.NewMem(), localseg.Options{Config: small})
	for i := range int32(7) {
		add(t, l, 0, localsegtest.Idempotent(t, 1, 0, i, 1))
	}
	for i := range int32(7) {
		a, err := l.Append([]record.Batch{localsegtest.Idempotent(t, 1, 0, i, 1)}, 0, localseg.OriginClient)
		if known := i >= 2; known != (err == nil && a.Duplicate && a.First == int64(i)) {
			t.Fatalf("batch %d: %+v, %v", i, a, err)
		}
	}
}

// BUG-070: a producer outlives its records.
func TestProducerOutlivesItsRecords(t *testing.T) {
	m := vfs.NewMem()
	l := open(t, m, localseg.Options{Config: small})
	add(t, l, 0, localsegtest.Idempotent(t, 1, 0, 0, 1, 2, 3, 4, 5))
	if err := l.SetLogStart(5); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Retain(10, 0); err != nil || n == 0 || l.LocalStart() != 5 || l.LEO() != 5 {
		t.Fatalf("retain: %d, %v, [%d, %d)", n, err, l.LocalStart(), l.LEO())
	}
	closeClean(t, l)
	l = open(t, m, localseg.Options{Config: small, Clean: true})
	next := func() record.Batch { return localsegtest.Idempotent(t, 1, 0, 5, 6, 7, 8, 9, 10) }
	if a := add(t, l, 0, next()); a.First != 5 || l.LEO() != 10 {
		t.Fatalf("%+v", a)
	}
	if a := add(t, l, 0, next()); !a.Duplicate || a.First != 5 || l.LEO() != 10 {
		t.Fatalf("sent again: %+v", a)
	}
	add(t, l, 0, localsegtest.Transactional(t, 2, 0, 0, 11))
	if err := l.SetLogStart(11); err != nil {
		t.Fatal(err)
	}
	if u := l.FirstUnstable(); u != 11 {
		t.Fatalf("first unstable %d, below the log start 11", u)
	}
	add(t, l, 0, localsegtest.Marker(2, 0, 12, true))
	add(t, l, 0, localsegtest.Transactional(t, 2, 0, 1, 13))
	add(t, l, 0, localsegtest.Marker(2, 0, 14, true))
	if l.FirstUnstable() != l.LEO() {
		t.Fatalf("first unstable %d, LEO %d", l.FirstUnstable(), l.LEO())
	}
}

func TestProducersExpire(t *testing.T) {
	c := small
	c.ProducerExpiryMs = 1000
	l := open(t, vfs.NewMem(), localseg.Options{Config: c})
	add(t, l, 0, localsegtest.Idempotent(t, 1, 0, 0, 5000))
	add(t, l, 0, localsegtest.Transactional(t, 2, 0, 0, 5000))
	for _, c := range [][2]int64{{5999, 2}, {6000, 1}} {
		if _, err := l.Retain(c[0], 0); err != nil || len(l.Producers()) != int(c[1]) {
			t.Fatalf("at %d: %v, %v", c[0], l.Producers(), err)
		}
	}
	if ps := l.Producers(); len(ps) != 1 || ps[0].ID != 2 || ps[0].TxnStart != 1 {
		t.Fatalf("left: %v", ps)
	}
}

func TestTransactionsRefuse(t *testing.T) {
	l := open(t, vfs.NewMem(), localseg.Options{Config: small})
	add(t, l, 0, localsegtest.Transactional(t, 1, 3, 0, 1))
	if _, err := l.Append([]record.Batch{localsegtest.Idempotent(t, 1, 3, 1, 1)}, 0, localseg.OriginClient); !errors.Is(err, localseg.ErrInvalidTxnState) {
		t.Fatalf("plain batch in a transaction: %v", err)
	}
	marker := func(epoch int16, coordinator int32) error {
		b := record.BuildMarker(nil, 1, epoch, 5, record.Marker{CoordinatorEpoch: coordinator})
		_, err := l.Append([]record.Batch{b}, 0, localseg.OriginInternal)
		return err
	}
	if err := marker(2, 7); !errors.Is(err, localseg.ErrInvalidEpoch) {
		t.Fatalf("marker of an old epoch: %v", err)
	}
	if err := marker(4, 7); err != nil { // the coordinator fences by a higher one
		t.Fatal(err)
	}
	if err := marker(4, 6); !errors.Is(err, localseg.ErrCoordinatorFenced) {
		t.Fatalf("marker of an old coordinator: %v", err)
	}
	if _, err := l.Append([]record.Batch{localsegtest.Transactional(t, 1, 3, 1, 1)}, 0, localseg.OriginClient); !errors.Is(err, localseg.ErrInvalidEpoch) {
		t.Fatalf("fenced producer: %v", err)
	}
}

// BUG-008 and BUG-002: the aborted list is exact over one producer's transactions, and finds markers in later segments.
func TestAborted(t *testing.T) {
	l := open(t, vfs.NewMem(), localseg.Options{Config: small})
	for i, commit := range []bool{true, false, true} {
		add(t, l, 0, localsegtest.Transactional(t, 5, 0, int32(i), 1))
		if l.FirstUnstable() != l.LEO()-1 {
			t.Fatalf("first unstable %d in an open transaction at %d", l.FirstUnstable(), l.LEO()-1)
		}
		add(t, l, 0, localsegtest.Marker(5, 0, 1, commit))
	}
	entry := localseg.AbortedTxn{ProducerID: 5, First: 2, Last: 3, LastStable: 4}
	for from, want := range map[int64]bool{0: true, 2: true, 3: true, 4: false} {
		got, err := l.Aborted(from, 6)
		if err != nil || slices.Contains(got, entry) != want || len(got) > 1 {
			t.Fatalf("from %d: %v, %v", from, got, err)
		}
	}
	l = open(t, vfs.NewMem(), localseg.Options{Config: small})
	add(t, l, 0, localsegtest.Transactional(t, 1, 0, 0, 1))
	for range 60 {
		add(t, l, 0, localsegtest.Plain(t, 1))
	}
	add(t, l, 0, localsegtest.Transactional(t, 2, 0, 0, 1))
	add(t, l, 0, localsegtest.Marker(1, 0, 1, false))
	if n := len(l.Segments()); n < 3 {
		t.Fatalf("%d segments", n)
	}
	got, err := l.Aborted(0, 2)
	if want := (localseg.AbortedTxn{ProducerID: 1, First: 0, Last: 62, LastStable: 61}); err != nil || !slices.Equal(got, []localseg.AbortedTxn{want}) {
		t.Fatalf("marker in a later segment: %v, %v", got, err)
	}
	if l.FirstUnstable() != 61 {
		t.Fatalf("first unstable %d", l.FirstUnstable())
	}
}

// The snapshot at every batch border is that of a log which ends there.
func TestProducersAtEveryOffset(t *testing.T) {
	w := &workload{t: t, l: open(t, vfs.NewMem(), localseg.Options{Config: small})}
	w.run()
	m := vfs.NewMem()
	twin := open(t, m, localseg.Options{Config: small})
	for i, b := range w.batches {
		if _, err := twin.Append([]record.Batch{slices.Clone(b)}, 0, localseg.OriginReplica); err != nil {
			t.Fatal(err)
		}
		if w.ends[i] < w.l.LocalStart() {
			continue
		}
		want, _ := twin.ProducersAt(w.ends[i])
		got, err := w.l.ProducersAt(w.ends[i])
		if err != nil {
			t.Fatal(err)
		}
		wantBytes(t, "snapshot", got, want)
	}
	if _, err := w.l.ProducersAt(w.l.LEO() + 1); !errors.Is(err, localseg.ErrOffsetOutOfRange) {
		t.Fatalf("above the end: %v", err)
	}
}
