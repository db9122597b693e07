package localseg

import (
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// The bytes of version 1 of every file, written once and kept: whoever changes one has to read both.
func TestGoldenFiles(t *testing.T) {
	p := newProducers()
	a, b := newProducer(), newProducer()
	a.epoch, a.lastMs = 2, 1700000000000
	a.push(sequence{lastSeq: 6, delta: 2, lastOffset: 40})
	b.epoch, b.coordinatorEpoch, b.lastMs, b.txnStart = 1, 5, 1700000000001, 33
	p.byID[4000], p.byID[4001] = &a, &b
	for name, got := range map[string][]byte{
		"snapshot":                p.encode(),
		"partition.checkpoint":    checkpoint{recovery: 100, base: 50, pos: 4711, logStart: 7, lastAppendMs: 1700000000000, snapshot: 100}.encode(),
		"leader-epoch-checkpoint": encodeEpochs([]Epoch{{Epoch: 0, Start: 0}, {Epoch: 3, Start: 120}}),
		"partition.metadata":      encodeMetadata([16]byte{0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}),
		"index":                   encodeOffsets(nil, []offsetEntry{{9, 4200}, {math.MaxInt32, math.MaxInt32}}),
		"timeindex":               encodeTimes(nil, []timeEntry{{1700000000000, 9}, {1700000000001, 12}}),
		"appendtime":              encodeAppends(nil, []appendEntry{{1700000000000, 19, 12}, {1700000001000, 0, 1 << 31}}),
		"txnindex":                encodeAborted(nil, []AbortedTxn{{ProducerID: 4000, First: 10, Last: 20, LastStable: 15}}),
	} {
		file := filepath.Join("testdata", "v1", name+".hex")
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%v; encoded now: %x", err, got)
		}
		if hex.EncodeToString(got) != string(want) {
			t.Fatalf("%s\n got %x\nwant %s", name, got, want)
		}
	}
}

func TestFirstSequenceOfAWrappedBatch(t *testing.T) {
	for _, c := range []struct {
		s    sequence
		want int32
	}{{sequence{lastSeq: 5, delta: 2}, 3}, {sequence{lastSeq: 1, delta: 3}, math.MaxInt32 - 1}, {sequence{lastSeq: math.MaxInt32, delta: 0}, math.MaxInt32}} {
		if got := c.s.firstSeq(); got != c.want {
			t.Fatalf("%+v: first %d, want %d", c.s, got, c.want)
		}
	}
}
