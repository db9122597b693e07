package localseg

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/varvelog/varve/record"
)

// ErrUnexpectedOffset: a follower's batch begins below the LEO, or its batches are not in order.
var ErrUnexpectedOffset = errors.New("offset is not above the end of the log")

// Append stamps the batches (already validated by record.Validate) with offsets, epoch and append time, in place, and
// writes them with one write. Sequences of idempotent producers are checked for OriginClient. The batches of one call
// go into one segment, all or none. Of OriginReplica batches offsets and epochs are kept, and gaps are allowed.
func (l *Log) Append(batches []record.Batch, epoch int32, from Origin) (Appended, error) {
	return l.appendWith(batches, epoch, from, nil)
}

// AppendReplica is Append for a follower, with the leader's append times, which AppendTimes of the leader's log says of the batches:
// the follower's own clock says when it got them, which after an outage may be hours later, and a restore to a time would leave them
// out. Without times its own clock is taken.
func (l *Log) AppendReplica(batches []record.Batch, epoch int32, times []AppendTime) (Appended, error) {
	return l.appendWith(batches, epoch, OriginReplica, times)
}

func (l *Log) appendWith(batches []record.Batch, epoch int32, from Origin, times []AppendTime) (Appended, error) {
	defer l.report()
	l.writer.take()
	a, err := l.append(batches, epoch, from, times)
	due := err == nil && l.flushDue()
	l.writer.give()
	if err != nil {
		return a, err
	}
	if a.Rolled && l.o.OnRoll != nil {
		l.o.OnRoll()
	}
	if due {
		return a, l.Flush()
	}
	return a, nil
}

// flushDue counts flush.ms by the process's own time: append times stand still for as long as a clock has been set back.
func (l *Log) flushDue() bool {
	c := l.cfg.Load()
	return l.unflushed > 0 && (l.unflushed >= c.FlushMessages || c.FlushMs < math.MaxInt64 && time.Since(l.lastFlush).Milliseconds() >= c.FlushMs)
}

func (l *Log) append(batches []record.Batch, epoch int32, from Origin, times []AppendTime) (Appended, error) {
	if err := l.usable(); err != nil {
		return Appended{}, err
	}
	leo := l.leo.Load()
	l.stamping.Store(stampUnknown)
	defer l.stamping.Store(0)
	a := Appended{First: leo, Last: leo - 1, AppendTime: max(l.o.Clock.nowMs(), l.lastAppendMs), LogStart: l.logStart.Load()}
	if len(batches) == 0 {
		return a, nil
	}
	first := a.AppendTime
	if len(times) > 0 {
		first, a.AppendTime = max(times[0].Ms, 1), max(times[len(times)-1].LastMs(), l.lastAppendMs)
	}
	l.stamping.Store(first)
	c := l.cfg.Load()
	total, maxMs, err := measure(batches)
	if err != nil {
		return a, err
	}
	if total > c.SegmentBytes && from != OriginReplica || total > math.MaxInt32 {
		return a, fmt.Errorf("%d bytes in segments of %d: %w", total, c.SegmentBytes, ErrTooLarge)
	}
	if done, err := l.admit(&a, batches, from); done || err != nil {
		return a, err
	}
	if a.Last-a.First > math.MaxInt32 {
		return a, fmt.Errorf("offsets [%d, %d] in one segment: %w", a.First, a.Last, ErrTooLarge)
	}
	if from != OriginReplica {
		stamp(batches, leo, epoch, a.AppendTime, c.LogAppendTime)
	}
	s, x, h, err := l.room(&a, total, maxMs, c)
	if err != nil {
		return a, l.fail("append to", err)
	}
	defer h.release()
	if err := l.write(s, x, h, batches, total, a.AppendTime, times); err != nil {
		return a, l.fail("append to", err)
	}
	if len(times) > 0 {
		a.AppendTime = x.appends.last()
	}
	l.commit(batches, a)
	return a, nil
}

func measure(batches []record.Batch) (total, maxMs int64, err error) {
	maxMs = -1
	for _, b := range batches {
		if len(b) < record.HeaderSize {
			return 0, 0, fmt.Errorf("batch of %d bytes: %w", len(b), record.ErrShort)
		}
		if last := b.LastOffset(); last < b.BaseOffset() || last == math.MaxInt64 {
			return 0, 0, fmt.Errorf("batch ends at %d before it begins: %w", b.LastOffset(), record.ErrCorrupt)
		}
		total += int64(len(b))
		maxMs = max(maxMs, b.MaxTimestamp())
	}
	return total, maxMs, nil
}

// admit checks offsets and sequences and fills in a.First and a.Last. done: a duplicate, nothing to write.
func (l *Log) admit(a *Appended, batches []record.Batch, from Origin) (done bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.reset()
	next := a.First
	for i, b := range batches {
		base := next
		if from == OriginReplica {
			if base = b.BaseOffset(); base < next {
				return false, fmt.Errorf("batch at %d, end is %d: %w", base, next, ErrUnexpectedOffset)
			}
			if i == 0 {
				a.First = base
			}
		} else if from == OriginClient && b.ProducerID() >= 0 && !b.Control() {
			if e := l.producers.byID[b.ProducerID()]; e != nil {
				if s, ok := e.duplicate(b); ok {
					a.First, a.Last, a.Duplicate = s.lastOffset-int64(s.delta), s.lastOffset, true
					return true, nil
				}
			}
		}
		if err := l.producers.check(&l.w, b, base, from); err != nil {
			return false, err
		}
		next = base + (b.LastOffset() - b.BaseOffset()) + 1
	}
	a.Last = next - 1
	return false, nil
}

func stamp(batches []record.Batch, next int64, epoch int32, nowMs int64, logAppendTime bool) {
	for _, b := range batches {
		delta := b.LastOffset() - b.BaseOffset()
		b.SetOffset(next)
		b.SetLeaderEpoch(epoch)
		if logAppendTime && !b.LogAppendTime() {
			b.SetMaxTimestamp(nowMs, true)
		}
		next += delta + 1
	}
}

const persistEvery = 4096 // bytes of index entries that may wait in memory

// write puts the bytes after the end of the segment and indexes them, then lets readers see them.
func (l *Log) write(s *segment, x *indexes, h *handle, batches []record.Batch, total, nowMs int64, times []AppendTime) error {
	size, _ := s.bounds()
	floor, err := l.appendedBefore(s, x, times)
	if err != nil {
		return err
	}
	s.dirty = true
	p, pooled := join(batches, total)
	_, err = h.f.WriteAt(p, size)
	if pooled != nil {
		joinBuffers.Put(pooled)
	}
	if err != nil {
		return err
	}
	if size == 0 {
		s.firstMs = batches[0].MaxTimestamp()
	}
	// The bounds first: an index entry must not lead a look-up to what lies outside of them.
	s.setBounds(size+total, batches[len(batches)-1].NextOffset())
	interval := l.cfg.Load().IndexIntervalBytes
	pos := size
	x.mu.Lock()
	for _, b := range batches {
		x.add(b, s.base, pos, interval)
		pos += int64(len(b))
	}
	closed := false
	if len(times) == 0 {
		closed = x.appends.note(nowMs, uint32(batches[len(batches)-1].NextOffset()-s.base))
	} else {
		closed = x.appends.copy(batches, s.base, times, floor)
	}
	x.aborted = append(x.aborted, l.w.aborted...)
	x.mu.Unlock()
	if closed && x.appends.due(nowMs) {
		if err := l.persistAppends(s, x); err != nil {
			return err
		}
	}
	if len(l.w.aborted) > 0 {
		if err := l.persist(s, x, 3); err != nil {
			return err
		}
	}
	if (len(x.offsets)-x.persisted[0])*offsetEntrySize >= persistEvery {
		if err := l.persist(s, x, 0); err != nil {
			return err
		}
		if err := l.persist(s, x, 1); err != nil {
			return err
		}
	}
	return nil
}

// appendedBefore is when all that lies below the first of a follower's batches in segment s had been appended, as far as the log knows.
// Not lastAppendMs: that may be of batches which were cut off since.
func (l *Log) appendedBefore(s *segment, x *indexes, times []AppendTime) (int64, error) {
	segs := l.segments()
	n := len(segs)
	if len(times) == 0 || n < 2 || segs[n-1] != s || x.appends.last() >= 0 {
		return 0, nil
	}
	h, prev, err := l.open(segs[n-2])
	if err != nil {
		return 0, err
	}
	defer h.release()
	_, last := prev.appendBounds()
	return last, nil
}

var joinBuffers = sync.Pool{New: func() any { b := make([]byte, 0, walkBytesKept); return &b }}

// join gives the batches as one slice: their own memory if they lie side by side, as those of one request do.
func join(batches []record.Batch, total int64) (p []byte, pooled *[]byte) {
	first := batches[0]
	if len(batches) == 1 {
		return first, nil
	}
	if int64(cap(first)) >= total {
		all, at := first[:total], len(first)
		for _, b := range batches[1:] {
			if &all[at] != &b[0] {
				all = nil
				break
			}
			at += len(b)
		}
		if all != nil {
			return all, nil
		}
	}
	bp := joinBuffers.Get().(*[]byte)
	p = (*bp)[:0]
	for _, b := range batches {
		p = append(p, b...)
	}
	if cap(p) > walkBytesKept {
		return p, bp // grown: p goes, the kept one returns
	}
	*bp = p
	return p, bp
}

// commit makes the append visible.
func (l *Log) commit(batches []record.Batch, a Appended) {
	l.lastAppendMs = max(l.lastAppendMs, a.AppendTime)
	l.unflushed += a.Last - a.First + 1
	l.mu.Lock()
	l.producers.commit(&l.w)
	from := l.leo.Load()
	for _, b := range batches {
		l.epochs.saw(b.LeaderEpoch(), from, b.BaseOffset(), b.NextOffset())
		from = b.NextOffset()
	}
	l.publish(a.Last + 1)
	l.mu.Unlock()
}
