package localseg

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/varvelog/varve/record"
)

// Errors of transactional appends that callers branch on.
var (
	ErrInvalidTxnState   = errors.New("plain batch inside a transaction")  // INVALID_TXN_STATE
	ErrCoordinatorFenced = errors.New("transaction coordinator is fenced") // TRANSACTION_COORDINATOR_FENCED
)

// sequence is one remembered batch of a producer.
type sequence struct {
	lastSeq    int32
	delta      int32 // last offset - first offset
	lastOffset int64
}

func (s sequence) firstSeq() int32 {
	if s.lastSeq >= s.delta {
		return s.lastSeq - s.delta
	}
	return math.MaxInt32 - (s.delta - s.lastSeq) + 1 // the sequence wrapped inside the batch
}

const keptSequences = 5 // as many as a client may have in flight

// producer is the state of one producer id: a value, so that a check can run on a copy.
type producer struct {
	epoch            int16
	n                uint8
	coordinatorEpoch int32
	lastMs           int64 // timestamp of its last batch, or marker
	txnStart         int64
	seqs             [keptSequences]sequence // oldest first, n of them
}

func newProducer() producer {
	return producer{epoch: -1, coordinatorEpoch: -1, lastMs: -1, txnStart: noTxn}
}

func (e *producer) last() sequence {
	if e.n == 0 {
		return sequence{lastSeq: noSequence, lastOffset: -1}
	}
	return e.seqs[e.n-1]
}

func (e *producer) push(s sequence) {
	if e.n == keptSequences {
		copy(e.seqs[:], e.seqs[1:])
		e.n--
	}
	e.seqs[e.n] = s
	e.n++
}

func (e *producer) setEpoch(epoch int16) {
	if e.epoch != epoch {
		e.epoch, e.n = epoch, 0
	}
}

// duplicate finds the remembered batch with exactly these sequences.
func (e *producer) duplicate(b record.Batch) (sequence, bool) {
	if e.epoch != b.ProducerEpoch() {
		return sequence{}, false
	}
	first, last := b.BaseSequence(), b.LastSequence()
	for _, s := range e.seqs[:e.n] {
		if s.firstSeq() == first && s.lastSeq == last {
			return s, true
		}
	}
	return sequence{}, false
}

// checkSequence is Kafka 4.4's rule for clients: the next sequence, or zero in a new epoch; anything of a producer that
// is not known, since its state may have expired.
func (e *producer) checkSequence(epoch int16, first int32) error {
	if e.epoch != epoch {
		if first != 0 && e.epoch != -1 {
			return fmt.Errorf("sequence %d of new epoch %d: %w", first, epoch, ErrOutOfOrderSequence)
		}
		return nil
	}
	last := e.last().lastSeq
	if first == last+1 && last != math.MaxInt32 || first == 0 && last == math.MaxInt32 {
		return nil
	}
	return fmt.Errorf("sequence %d after %d: %w", first, last, ErrOutOfOrderSequence)
}

// txn is a transaction: open, or ended by a marker at last.
type txn struct {
	first, last int64
	producerID  int64
}

// producers is the state of all producer ids of a log up to an offset.
type producers struct {
	byID map[int64]*producer
	open []txn // open transactions by first offset
}

func newProducers() *producers { return &producers{byID: map[int64]*producer{}} }

// firstOpen is the first offset of the oldest open transaction, or MaxInt64.
func (p *producers) firstOpen() int64 {
	if len(p.open) == 0 {
		return math.MaxInt64
	}
	return p.open[0].first
}

func (p *producers) begin(first, id int64) {
	i, _ := slices.BinarySearchFunc(p.open, first, func(t txn, f int64) int {
		if t.first < f {
			return -1
		}
		return 1
	})
	p.open = slices.Insert(p.open, i, txn{first: first, last: -1, producerID: id})
}

func (p *producers) end(id int64) {
	p.open = slices.DeleteFunc(p.open, func(t txn) bool { return t.producerID == id })
}

// expire forgets idle producers without an open transaction.
func (p *producers) expire(nowMs, expiryMs int64) {
	for id, e := range p.byID {
		if e.txnStart == noTxn && nowMs-e.lastMs >= expiryMs {
			delete(p.byID, id)
		}
	}
}

// pending is the outcome of checking one append: what commit will do once the bytes are written. Reused by the log.
type pending struct {
	work    []pendingProducer
	aborted []AbortedTxn
	ended   []int64 // producer ids whose transaction ends
	begun   []txn
}

type pendingProducer struct {
	id    int64
	state producer
}

func (w *pending) reset() {
	w.work, w.aborted, w.ended, w.begun = w.work[:0], w.aborted[:0], w.ended[:0], w.begun[:0]
}

func (w *pending) get(p *producers, id int64) *producer {
	for i := range w.work {
		if w.work[i].id == id {
			return &w.work[i].state
		}
	}
	s := newProducer()
	if e := p.byID[id]; e != nil {
		s = *e
	}
	w.work = append(w.work, pendingProducer{id, s})
	return &w.work[len(w.work)-1].state
}

// check judges one batch, whose first record will be at offset base, and notes its effects in w.
func (p *producers) check(w *pending, b record.Batch, base int64, from Origin) error {
	id := b.ProducerID()
	if id < 0 {
		return nil
	}
	e := w.get(p, id)
	epoch := b.ProducerEpoch()
	if b.Control() {
		return p.checkMarker(w, e, b, id, base, from)
	}
	if epoch < e.epoch && from != OriginReplica {
		return fmt.Errorf("producer %d epoch %d, last was %d: %w", id, epoch, e.epoch, ErrInvalidEpoch)
	}
	if from == OriginClient {
		if err := e.checkSequence(epoch, b.BaseSequence()); err != nil {
			return fmt.Errorf("producer %d: %w", id, err)
		}
	}
	if e.txnStart != noTxn && !b.Transactional() && from != OriginReplica {
		return fmt.Errorf("producer %d at offset %d: %w", id, base, ErrInvalidTxnState)
	}
	lastSeq := noSequence
	if b.BaseSequence() != noSequence {
		lastSeq = b.LastSequence()
	}
	delta := int32(b.LastOffset() - b.BaseOffset())
	e.setEpoch(epoch)
	e.push(sequence{lastSeq: lastSeq, delta: delta, lastOffset: base + int64(delta)})
	e.lastMs = b.MaxTimestamp()
	if b.Transactional() && e.txnStart == noTxn {
		e.txnStart = base
		w.begun = append(w.begun, txn{first: base, last: -1, producerID: id})
	}
	return nil
}

func (p *producers) checkMarker(w *pending, e *producer, b record.Batch, id, base int64, from Origin) error {
	m, err := record.ParseMarker(b)
	if err != nil {
		if from == OriginReplica {
			return nil // a control record that ends no transaction, or an emptied one
		}
		return fmt.Errorf("producer %d at offset %d: %w", id, base, err)
	}
	if from != OriginReplica {
		if b.ProducerEpoch() < e.epoch {
			return fmt.Errorf("marker of producer %d epoch %d, last was %d: %w", id, b.ProducerEpoch(), e.epoch, ErrInvalidEpoch)
		}
		if m.CoordinatorEpoch < e.coordinatorEpoch {
			return fmt.Errorf("marker of producer %d coordinator epoch %d, last was %d: %w", id, m.CoordinatorEpoch, e.coordinatorEpoch, ErrCoordinatorFenced)
		}
	}
	if e.txnStart != noTxn {
		if !m.Commit {
			w.aborted = append(w.aborted, AbortedTxn{ProducerID: id, First: e.txnStart, Last: base, LastStable: p.stableWithout(w, id, base)})
		}
		w.ended = append(w.ended, id)
		w.begun = slices.DeleteFunc(w.begun, func(t txn) bool { return t.producerID == id })
	}
	e.setEpoch(b.ProducerEpoch())
	e.coordinatorEpoch = m.CoordinatorEpoch
	e.lastMs = b.MaxTimestamp()
	e.txnStart = noTxn
	return nil
}

// stableWithout is the last stable offset once the transaction of id has ended with a marker at offset.
func (p *producers) stableWithout(w *pending, id, offset int64) int64 {
	stable := offset + 1
	for _, t := range p.open {
		if t.producerID != id && !slices.Contains(w.ended, t.producerID) {
			stable = min(stable, t.first)
		}
	}
	for _, t := range w.begun {
		if t.producerID != id {
			stable = min(stable, t.first)
		}
	}
	return stable
}

// commit applies what check has noted. The caller appends w.aborted to the transaction index.
func (p *producers) commit(w *pending) {
	for i := range w.work {
		u := &w.work[i]
		if e := p.byID[u.id]; e != nil {
			*e = u.state
		} else {
			s := u.state
			p.byID[u.id] = &s
		}
	}
	for _, id := range w.ended {
		p.end(id)
	}
	for _, t := range w.begun {
		p.begin(t.first, t.producerID)
	}
}

// replay takes a batch that is already in the log.
func (p *producers) replay(w *pending, b record.Batch) {
	w.reset()
	if err := p.check(w, b, b.BaseOffset(), OriginReplica); err == nil {
		p.commit(w)
	}
}
