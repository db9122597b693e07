package localseg_test

import (
	"bytes"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/localseg/localsegtest"
	"github.com/varvelog/varve/record"
)

func TestAReplayEndsWithTheSnapshotThatTheLogHas(t *testing.T) {
	l, err := localseg.Open(vfs.NewMem(), "a-0", localseg.Options{Topic: "a"})
	if err != nil {
		t.Fatal(err)
	}
	batches := []record.Batch{
		localsegtest.Plain(t, 1, 2),
		localsegtest.Idempotent(t, 3, 0, 0, 1, 2, 3),
		localsegtest.Transactional(t, 5, 0, 0, 1, 2),
		localsegtest.Idempotent(t, 3, 0, 3, 1),
		localsegtest.Marker(5, 0, 9, false),
		localsegtest.Transactional(t, 6, 1, 0, 1),
		localsegtest.Transactional(t, 5, 0, 2, 1),
		localsegtest.Marker(6, 1, 9, true),
	}
	states := [][]byte{nil}
	var written []record.Batch
	for _, b := range batches {
		a, err := l.Append([]record.Batch{b}, 0, localseg.OriginInternal)
		if err != nil {
			t.Fatal(err)
		}
		b.SetOffset(a.First)
		written = append(written, b)
		s, err := l.ProducersAt(l.LEO())
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, s)
	}
	for from := range batches {
		r, err := localseg.NewReplay(states[from])
		if err != nil {
			t.Fatal(err)
		}
		for i := from; i < len(written); i++ {
			r.Add(written[i])
			if !bytes.Equal(r.Snapshot(), states[i+1]) {
				t.Fatalf("from %d: the snapshot after batch %d differs from the log's", from, i)
			}
		}
		open := r.Open()
		if len(open) != 1 || open[0].ProducerID != 5 || open[0].First != 11-1 {
			t.Fatalf("from %d: open %+v", from, open)
		}
	}
	if id, err := localseg.LargestProducerID(states[len(states)-1]); err != nil || id != 6 {
		t.Fatalf("largest producer id %d, %v", id, err)
	}
	if id, err := localseg.LargestProducerID(nil); err != nil || id != -1 {
		t.Fatalf("of nothing: %d, %v", id, err)
	}
	if _, err := localseg.NewReplay([]byte("x")); err == nil {
		t.Fatal("a snapshot of one byte")
	}
}
