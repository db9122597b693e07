package localseg

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sort"

	"github.com/varvelog/varve/record"
)

const maxDecompressed = 1 << 30 // bytes of one batch's records that a look-up will unpack

var noTimestamp = TimestampOffset{Timestamp: -1, Offset: -1, LeaderEpoch: -1}

// retryGone repeats a look-up whose segment was deleted after it was chosen, as often as the log has other segments than before.
func retryGone[T any](l *Log, f func() (T, error)) (T, error) {
	for try := 0; ; try++ {
		before := l.segments()
		v, err := f()
		if errors.Is(err, fs.ErrNotExist) && (try < 8 || !slices.Equal(before, l.segments())) {
			continue
		}
		return v, err
	}
}

// OffsetForTime finds the first local record with timestamp >= ts, at or above the log start.
func (l *Log) OffsetForTime(ts int64) (TimestampOffset, error) {
	return retryGone(l, func() (TimestampOffset, error) { return l.offsetForTime(ts) })
}

func (l *Log) offsetForTime(ts int64) (TimestampOffset, error) {
	if err := l.usable(); err != nil {
		return noTimestamp, err
	}
	start := l.logStart.Load()
	for _, s := range l.segments() {
		if _, next := s.bounds(); next <= start {
			continue
		}
		sum, err := l.summary(s)
		if err != nil {
			return noTimestamp, err
		}
		if sum.maxMs < ts {
			continue
		}
		if t, err := l.timeInSegment(s, ts, start); err != nil || t.Offset >= 0 {
			return t, err
		}
	}
	return noTimestamp, nil
}

// timeInSegment finds the first record with timestamp >= ts and offset >= start. Batches whose largest timestamp is too
// small are stepped over by their headers.
func (l *Log) timeInSegment(s *segment, ts, start int64) (TimestampOffset, error) {
	h, x, err := l.open(s)
	if err != nil {
		return noTimestamp, err
	}
	defer h.release()
	pos := x.position(max(x.timeFloor(ts), start-s.base))
	for {
		b, err := s.findFunc(h, pos, func(b head) bool { return b.maxMs >= ts && b.last >= start })
		if err == io.EOF {
			return noTimestamp, nil
		}
		if err != nil {
			return noTimestamp, err
		}
		t, err := recordIn(h, b, func(r record.Record) bool { return r.Timestamp >= ts && r.Offset >= start })
		if err != nil || t.Offset >= 0 {
			return t, err
		}
		pos = b.pos + b.size
	}
}

func (s *segment) findFunc(h *handle, pos int64, ok func(head) bool) (head, error) {
	size, next := s.bounds()
	buf := scanBuffers.Get().(*[]byte)
	defer scanBuffers.Put(buf)
	c := scanner{f: h.f, base: s.base, end: next, size: size, pos: pos, buf: *buf}
	for {
		b, err := c.next()
		if err != nil || ok(b) {
			return b, err
		}
	}
}

// recordIn decodes the batch and returns the first record that is wanted.
func recordIn(h *handle, b head, want func(record.Record) bool) (TimestampOffset, error) {
	buf := make([]byte, b.size)
	if _, err := h.f.ReadAt(buf, b.pos); err != nil {
		return noTimestamp, fmt.Errorf("read batch %d: %w", b.base, err)
	}
	batch := record.Batch(buf)
	if err := batch.Check(); err != nil {
		return noTimestamp, &CorruptError{h.f.Name(), b.pos, err}
	}
	it := batch.Records(maxDecompressed)
	defer it.Close()
	for it.Next() {
		if r := it.Record(); want(r) {
			return TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, LeaderEpoch: batch.LeaderEpoch()}, nil
		}
	}
	if err := it.Err(); err != nil {
		return noTimestamp, &CorruptError{h.f.Name(), b.pos, err}
	}
	return noTimestamp, nil
}

// MaxTimestamp is the first local record, at or above the log start, with the largest timestamp.
func (l *Log) MaxTimestamp() (TimestampOffset, error) { return retryGone(l, l.maxTimestamp) }

func (l *Log) maxTimestamp() (TimestampOffset, error) {
	if err := l.usable(); err != nil {
		return noTimestamp, err
	}
	start, best := l.logStart.Load(), noTimestamp
	for _, s := range l.segments() {
		if _, next := s.bounds(); next <= start {
			continue
		}
		t, err := l.maxInSegment(s, start, best.Timestamp)
		if err != nil {
			return noTimestamp, err
		}
		if t.Timestamp > best.Timestamp {
			best = t
		}
	}
	return best, nil
}

// maxInSegment looks for a timestamp above floor.
func (l *Log) maxInSegment(s *segment, start, floor int64) (TimestampOffset, error) {
	sum, err := l.summary(s)
	if err != nil || sum.maxMs <= floor {
		return noTimestamp, err
	}
	h, x, err := l.open(s)
	if err != nil {
		return noTimestamp, err
	}
	defer h.release()
	if ms, rel := x.maxTime(); s.base >= start {
		b, err := s.find(h.f, x.position(int64(rel)), s.base+int64(rel))
		if err != nil {
			return noTimestamp, err
		}
		return recordIn(h, b, func(r record.Record) bool { return r.Timestamp >= ms })
	}
	return l.maxAbove(s, h, x, start)
}

// maxAbove is maxInSegment where the log start lies inside: its largest timestamp may be one that is deleted.
func (l *Log) maxAbove(s *segment, h *handle, x *indexes, start int64) (TimestampOffset, error) {
	best := noTimestamp
	pos := x.position(start - s.base)
	for {
		b, err := s.findFunc(h, pos, func(b head) bool { return b.last >= start && b.maxMs > best.Timestamp })
		if err == io.EOF {
			return best, nil
		}
		if err != nil {
			return noTimestamp, err
		}
		for { // climb to the largest of this batch
			t, err := recordIn(h, b, func(r record.Record) bool { return r.Offset >= start && r.Timestamp > best.Timestamp })
			if err != nil {
				return noTimestamp, err
			}
			if t.Offset < 0 {
				break
			}
			best = t
		}
		pos = b.pos + b.size
	}
}

// AppendTimes lists the stretches of append times that cover what is local of [from, to), oldest first: each ends before the
// next one begins, in offsets and in time. The first may begin below from, and batches at or above to may be in the last.
func (l *Log) AppendTimes(from, to int64) ([]AppendTime, error) {
	return retryGone(l, func() ([]AppendTime, error) { return l.appendTimes(from, to) })
}

func (l *Log) appendTimes(from, to int64) ([]AppendTime, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	segs := l.segments()
	var out []AppendTime
	for i := max(0, segmentAt(segs, from)); i < len(segs) && segs[i].base < to; i++ {
		h, x, err := l.open(segs[i])
		if err != nil {
			return nil, err
		}
		list, err := l.stretches(segs[i], x, from, to)
		h.release()
		if err != nil {
			return nil, err
		}
		out = joinStretches(out, list)
	}
	return out, nil
}

// joinStretches puts those of the next segment behind. What was lost of a segment's times may have been taken for later than the
// next one begins.
func joinStretches(out, next []AppendTime) []AppendTime {
	if len(next) > 0 {
		for i := len(out) - 1; i >= 0 && out[i].LastMs() > next[0].Ms; i-- {
			out[i] = out[i].Until(next[0].Ms)
		}
	}
	if len(out) == 0 {
		return next
	}
	return append(out, next...)
}

// Aborted lists the aborted transactions that overlap [from, to), searched up to the last stable offset: a marker may
// lie in a later segment than the data.
func (l *Log) Aborted(from, to int64) ([]AbortedTxn, error) {
	return retryGone(l, func() ([]AbortedTxn, error) { return l.abortedIn(from, to) })
}

func (l *Log) abortedIn(from, to int64) ([]AbortedTxn, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	segs := l.segments()
	var out []AbortedTxn
	for i := max(0, segmentAt(segs, from)); i < len(segs); i++ {
		if segs[i].noTxns.Load() && !segs[i].active.Load() {
			continue
		}
		h, x, err := l.open(segs[i])
		if err != nil {
			return nil, err
		}
		var done bool
		out, done = x.overlapping(out, from, to)
		h.release()
		if done {
			break
		}
	}
	return out, nil
}

func (x *indexes) overlapping(out []AbortedTxn, from, to int64) (_ []AbortedTxn, done bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	i := sort.Search(len(x.aborted), func(i int) bool { return x.aborted[i].Last >= from })
	for _, t := range x.aborted[i:] {
		if t.First < to {
			out = append(out, t)
		}
		if t.LastStable >= to {
			return out, true
		}
	}
	return out, false
}
