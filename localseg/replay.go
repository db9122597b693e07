package localseg

import (
	"fmt"
	"math"
	"slices"

	"github.com/varvelog/varve/record"
)

// Replay computes what a log would know at an offset, from its producer snapshot at an earlier one and the batches
// between: for who has batches but no log, as when an archived log is cut inside a segment object. Not for concurrent use.
type Replay struct {
	state   *producers
	work    pending
	aborted []AbortedTxn
}

// OpenTxn is a transaction that has begun and has no marker yet.
type OpenTxn struct {
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	First            int64 // offset of its first record
}

// NewReplay begins at a snapshot as ProducersAt gives it; nil is the beginning of a log.
func NewReplay(snapshot []byte) (*Replay, error) {
	if snapshot == nil {
		return &Replay{state: newProducers()}, nil
	}
	p, err := decodeSnapshot(snapshot)
	if err != nil {
		return nil, err
	}
	return &Replay{state: p}, nil
}

// Add takes the next batch, which has passed record.Batch.Check.
func (r *Replay) Add(b record.Batch) {
	r.work.reset()
	if r.state.check(&r.work, b, b.BaseOffset(), OriginReplica) != nil {
		return
	}
	r.state.commit(&r.work)
	r.aborted = append(r.aborted, r.work.aborted...)
}

// Snapshot is Kafka's producer snapshot after what was added.
func (r *Replay) Snapshot() []byte { return r.state.encode() }

// Aborted lists the transactions that markers among the added batches have aborted, by marker.
func (r *Replay) Aborted() []AbortedTxn { return slices.Clone(r.aborted) }

// Open lists the transactions without a marker, by first offset.
func (r *Replay) Open() []OpenTxn {
	var out []OpenTxn
	for _, t := range r.state.open {
		t := OpenTxn{ProducerID: t.producerID, First: t.first}
		if e := r.state.byID[t.ProducerID]; e != nil {
			t.ProducerEpoch, t.CoordinatorEpoch = e.epoch, e.coordinatorEpoch
		}
		out = append(out, t)
	}
	return out
}

// LargestProducerID is the largest id in a snapshot, -1 if there is none.
func LargestProducerID(snapshot []byte) (int64, error) {
	if snapshot == nil {
		return -1, nil
	}
	p, err := decodeSnapshot(snapshot)
	if err != nil {
		return -1, fmt.Errorf("largest producer id: %w", err)
	}
	largest := int64(math.MinInt64)
	for id := range p.byID {
		largest = max(largest, id)
	}
	return max(largest, -1), nil
}
