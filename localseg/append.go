package localseg

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
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
	defer l.report()
	l.writer.take()
	a, err := l.append(batches, epoch, from)
	due := err == nil && l.flushDue(a.AppendTime)
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

func (l *Log) flushDue(nowMs int64) bool {
	c := l.cfg.Load()
	return l.unflushed > 0 && (l.unflushed >= c.FlushMessages || nowMs-l.lastFlushMs >= c.FlushMs)
}

func (l *Log) append(batches []record.Batch, epoch int32, from Origin) (Appended, error) {
	if err := l.usable(); err != nil {
		return Appended{}, err
	}
	leo := l.leo.Load()
	a := Appended{First: leo, Last: leo - 1, AppendTime: max(time.Now().UnixMilli(), l.lastAppendMs), LogStart: l.logStart.Load()}
	if len(batches) == 0 {
		return a, nil
	}
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
	if err := l.write(s, x, h, batches, total, a.AppendTime); err != nil {
		return a, l.fail("append to", err)
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

// room gives the active segment, made or rolled if need be.
func (l *Log) room(a *Appended, total, maxMs int64, c *Config) (*segment, *indexes, *handle, error) {
	s := l.activeSegment()
	if s == nil {
		if err := l.create(a.First); err != nil {
			return nil, nil, nil, err
		}
		s = l.activeSegment()
	}
	h, x, err := l.open(s)
	if err != nil {
		return nil, nil, nil, err
	}
	if size, _ := s.bounds(); size > 0 || a.Last-s.base > math.MaxInt32 {
		full, err := l.full(s, x, h, size, a, total, maxMs, c)
		if err == nil && full {
			if err = l.roll(s, x, l.nextBase(a)); err == nil {
				h.release()
				a.Rolled = true
				s = l.activeSegment()
				h, x, err = l.open(s)
				return s, x, h, err
			}
		}
		if err != nil {
			h.release()
			return nil, nil, nil, err
		}
	}
	return s, x, h, nil
}

// nextBase is the end of the log, not the first offset to come: segments touch, so that a recovery can tell a segment
// that lost its tail. Only a gap that relative offsets cannot bridge lies between segments.
func (l *Log) nextBase(a *Appended) int64 {
	if leo := l.leo.Load(); a.Last-leo <= math.MaxInt32 {
		return leo
	}
	return a.First
}

// full is Kafka's LogSegment.shouldRoll.
func (l *Log) full(s *segment, x *indexes, h *handle, size int64, a *Appended, total, maxMs int64, c *Config) (bool, error) {
	if size+total > c.SegmentBytes || a.Last-s.base > math.MaxInt32 ||
		int64(len(x.offsets)+1)*offsetEntrySize > c.SegmentIndexBytes || int64(len(x.times)+2)*timeEntrySize > c.SegmentIndexBytes {
		return true, nil
	}
	if s.firstMs == noFirstMs {
		first, err := s.find(h.f, 0, s.base)
		if err != nil {
			return false, err
		}
		s.firstMs = first.maxMs
	}
	limit := c.SegmentMs - l.jitter(s, c)
	if s.firstMs >= 0 && maxMs >= 0 {
		return maxMs-s.firstMs > limit, nil
	}
	first, _ := x.appendBounds()
	return first >= 0 && a.AppendTime-first > limit, nil
}

// jitter spreads rolls by time, so that the partitions of a topic do not all roll at once.
func (l *Log) jitter(s *segment, c *Config) int64 {
	if c.SegmentJitterMs <= 0 {
		return 0
	}
	h := uint64(14695981039346656037)
	for _, v := range [...]uint64{uint64(s.base), uint64(l.o.Partition), uint64(len(l.o.Topic))} {
		h = (h ^ v) * 1099511628211
		h ^= h >> 29
	}
	return int64(h % uint64(min(c.SegmentJitterMs, c.SegmentMs)))
}

// create makes the directory if it is not there, and the first segment.
func (l *Log) create(base int64) error {
	if err := l.makeDir(); err != nil {
		return err
	}
	s, err := l.createSegment(base)
	if err != nil {
		return err
	}
	l.setSegments([]*segment{s})
	return nil
}

// makeDir makes the directory if it is not there.
func (l *Log) makeDir() error {
	if l.exists {
		return nil
	}
	if err := l.fs.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	l.exists, l.namesDirty, l.parentDirty = true, true, true
	l.mu.Lock()
	l.epochs.dirty = true // the first flush leaves a file, of no epoch too
	l.mu.Unlock()
	if l.o.TopicID == ([16]byte{}) {
		return nil
	}
	return writeFile(l.fs, path.Join(l.dir, fileMetadata), encodeMetadata(l.o.TopicID), false)
}

func encodeMetadata(id [16]byte) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s", base64.RawURLEncoding.EncodeToString(id[:]))
}

func (l *Log) createSegment(base int64) (*segment, error) {
	s := newSegment(l.dir, base)
	f, err := l.fs.OpenFile(s.name(extLog), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for _, k := range indexFiles { // of an earlier life of this base
		if err := removeFile(l.fs, s.name(k.ext)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	s.active.Store(true)
	s.ix.Store(newIndexes())
	l.files.adopt(s, f).release()
	l.namesDirty = true
	return s, nil
}

// roll closes the active segment s and begins the next one at base.
func (l *Log) roll(s *segment, x *indexes, base int64) error {
	x.mu.Lock()
	x.addTime()
	if l.lastBatch >= s.base {
		x.addAppend(l.lastAppendMs, int32(l.lastBatch-s.base), true)
	}
	x.mu.Unlock()
	if err := l.persistAll(s, x); err != nil {
		return err
	}
	l.mu.Lock()
	snapshot := l.producers.encode()
	l.mu.Unlock()
	if err := writeFile(l.fs, fileName(l.dir, base, extSnapshot), snapshot, false); err != nil {
		return err
	}
	n, err := l.createSegment(base)
	if err != nil {
		return err
	}
	l.snapshotsMade = append(l.snapshotsMade, base)
	sum := x.summary()
	s.sum.Store(&sum)
	s.noTxns.Store(len(x.aborted) == 0)
	segs := l.segments()
	l.setSegments(append(segs[:len(segs):len(segs)], n))
	s.active.Store(false)
	return nil
}

const persistEvery = 4096 // bytes of index entries that may wait in memory

// write puts the bytes after the end of the segment and indexes them, then lets readers see them.
func (l *Log) write(s *segment, x *indexes, h *handle, batches []record.Batch, total, nowMs int64) error {
	size, _ := s.bounds()
	s.dirty = true
	p, pooled := join(batches, total)
	_, err := h.f.WriteAt(p, size)
	if pooled != nil {
		joinBuffers.Put(pooled)
	}
	if err != nil {
		return err
	}
	if size == 0 {
		s.firstMs = batches[0].MaxTimestamp()
	}
	interval := l.cfg.Load().IndexIntervalBytes
	pos := size
	x.mu.Lock()
	for _, b := range batches {
		x.add(b, s.base, pos, interval)
		pos += int64(len(b))
	}
	timed := x.addAppend(nowMs, int32(batches[0].BaseOffset()-s.base), false)
	x.aborted = append(x.aborted, l.w.aborted...)
	x.mu.Unlock()
	// The first entry of a segment waits for the second, a flush or a roll: until then the file's modification time tells
	// as much to a recovery, and a new partition costs a file less.
	if timed && len(x.appends) > 1 {
		if err := l.persist(s, x, 2); err != nil {
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
	s.setBounds(pos, batches[len(batches)-1].NextOffset())
	return nil
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
	l.lastAppendMs = a.AppendTime
	l.lastBatch = batches[len(batches)-1].BaseOffset()
	l.unflushed += a.Last - a.First + 1
	l.mu.Lock()
	l.producers.commit(&l.w)
	for _, b := range batches {
		l.epochs.assign(b.LeaderEpoch(), b.BaseOffset())
	}
	l.publish(a.Last + 1)
	l.mu.Unlock()
}

// Roll closes the active segment if it is not empty.
func (l *Log) Roll() error {
	defer l.report()
	l.writer.take()
	rolled, err := l.rollActive()
	l.writer.give()
	if err == nil && rolled && l.o.OnRoll != nil {
		l.o.OnRoll()
	}
	return err
}

func (l *Log) rollActive() (bool, error) {
	if err := l.usable(); err != nil {
		return false, err
	}
	s := l.activeSegment()
	if s == nil {
		return false, nil
	}
	if size, _ := s.bounds(); size == 0 {
		return false, nil
	}
	h, x, err := l.open(s)
	if err != nil {
		return false, l.fail("roll", err)
	}
	defer h.release()
	if err := l.roll(s, x, l.leo.Load()); err != nil {
		return false, l.fail("roll", err)
	}
	return true, nil
}
