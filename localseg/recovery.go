package localseg

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"path"

	"github.com/varvelog/varve/record"
)

// recoverSegments finds the end of the log. Three cases: nothing was written since the checkpoint; something was, then
// every batch from there on is checked; the checkpoint does not fit, then all are.
func (l *Log) recoverSegments(segs []*segment) error {
	from, pos, off := 0, int64(0), segs[0].base
	last := len(segs) - 1
	if i := segmentAt(segs, l.cp.base); l.trust && i >= 0 && segs[i].base == l.cp.base {
		switch size := segs[i].size; {
		case size == l.cp.pos && i == last:
			segs[i].next = l.cp.recovery
			from, pos, off = i, size, l.cp.recovery
			if !l.o.Clean && size > 0 {
				if at, ok := l.tailCheck(segs[i]); !ok {
					pos, off = at, segs[i].base
				}
			}
		case size >= l.cp.pos:
			from, pos, off = i, l.cp.pos, l.cp.recovery
		default: // bytes that were synced are gone
			from, pos, off = i, 0, segs[i].base
		}
	} else {
		l.trust = false
	}
	clean := l.trust && from == last && pos == segs[last].size
	state, err := l.stateAt(off, pos, segs[from])
	if err != nil {
		return err
	}
	l.producers = state
	if clean {
		l.leo.Store(segs[last].next)
		return nil
	}
	return l.scan(segs, from, pos, off)
}

// tailCheck looks at the last batches of a segment that a crash should not have touched. If one is bad, at is where to
// begin the check of the segment.
func (l *Log) tailCheck(s *segment) (at int64, ok bool) {
	h, x, err := l.open(s)
	if err != nil {
		return 0, false
	}
	defer h.release()
	from := x.position(math.MaxInt32)
	_, err = walk(h.f, from, s.size, func(_ int64, b record.Batch) error { return b.Check() })
	if err != nil {
		s.ix.Store(nil)
	}
	return 0, err == nil
}

// stateAt is the producer state at off, the offset of byte pos of s.
func (l *Log) stateAt(off, pos int64, s *segment) (*producers, error) {
	if l.trust && off == l.cp.recovery && l.cp.snapshot == -1 {
		return newProducers(), nil
	}
	size, next := s.size, s.next
	s.setBounds(pos, off)
	defer s.setBounds(size, next)
	return l.producersAt(off)
}

// scan checks every batch from byte pos of segs[from] on, which has offset off, cuts the log at the first bad one, and
// makes the indexes anew. Steps, so that a crash in between leaves the same log to the next Open:
//  1. segments after the bad batch are removed, last first, and the directory is synced
//  2. the bad bytes are cut off
//  3. data is synced
func (l *Log) scan(segs []*segment, from int, pos, off int64) error {
	next := off
	for i := from; i < len(segs); i++ {
		s := segs[i]
		// A segment that ends before the next begins has lost its tail; what comes after is not to be joined to it. Only
		// compaction leaves such holes.
		if i > from && (s.base < next || s.base > next && !l.cfg.Load().Compact) {
			l.info("segment does not follow the one before", "segment", s.base, "offset", next)
			if err := l.cutAfter(segs, i); err != nil {
				return err
			}
			break
		}
		if i > from {
			pos, next = 0, s.base
		}
		end, at, err := l.scanSegment(s, pos, next)
		if err != nil {
			return err
		}
		if at < s.size {
			l.info("torn tail is cut off", "segment", s.base, "offset", end, "bytes", s.size-at)
			if err := l.cutAfter(segs, i+1); err != nil {
				return err
			}
			segs = l.segments()
		}
		if err := l.finishScan(s, pos, at, end); err != nil {
			return err
		}
		next = end
	}
	l.leo.Store(next)
	if err := l.removeSnapshotsAbove(next); err != nil {
		return err
	}
	if l.o.DeferSync {
		return nil
	}
	return errors.Join(l.fs.SyncDir(l.dir), l.fs.SyncDir(path.Dir(l.dir)))
}

// cutAfter removes the segments from i on.
func (l *Log) cutAfter(segs []*segment, i int) error {
	if i == len(segs) {
		return nil
	}
	if err := l.removeSegments(segs[i:]); err != nil {
		return err
	}
	l.setSegments(segs[:i:i])
	return l.fs.SyncDir(l.dir)
}

// scanSegment returns the offset and byte at which the good batches end. Indexes are left in s.ix.
func (l *Log) scanSegment(s *segment, pos, next int64) (end, at int64, err error) {
	h, err := l.files.acquire(l.fs, s)
	if err != nil {
		return 0, 0, err
	}
	defer h.release()
	x, err := l.indexesBelow(s, h, pos, next)
	if err != nil {
		return 0, 0, err
	}
	interval := l.cfg.Load().IndexIntervalBytes
	at, err = walk(h.f, pos, s.size, func(pos int64, b record.Batch) error {
		if err := b.Check(); err != nil {
			return &CorruptError{h.f.Name(), pos, err}
		}
		last := b.LastOffset()
		if b.BaseOffset() < next || last < b.BaseOffset() || last-s.base > math.MaxInt32 || pos > math.MaxInt32 {
			return &CorruptError{h.f.Name(), pos, ErrUnexpectedOffset}
		}
		x.add(b, s.base, pos, interval)
		l.epochs.assign(b.LeaderEpoch(), b.BaseOffset())
		l.producers.replay(&l.w, b)
		x.aborted = append(x.aborted, l.w.aborted...)
		next = last + 1
		return nil
	})
	var bad *CorruptError
	if err != nil && !errors.As(err, &bad) {
		return 0, 0, err
	}
	x.addTime()
	s.ix.Store(x)
	return next, at, nil
}

// indexesBelow are the indexes of what is not scanned: nothing, or what the files have below pos.
func (l *Log) indexesBelow(s *segment, h *handle, pos, next int64) (*indexes, error) {
	if pos == 0 {
		return newIndexes(), nil
	}
	size, end := s.bounds()
	s.setBounds(pos, next)
	defer s.setBounds(size, end)
	for _, ext := range [...]string{extIndex, extTimeIndex, extTxnIndex} { // entries of unflushed batches may be there, good or torn
		if err := l.clipIndex(s, ext, pos, next); err != nil {
			return nil, err
		}
	}
	x, err := l.readIndexes(s, pos, next)
	if err == nil {
		return x, nil
	}
	if x, err = l.rebuild(s, h, pos); err != nil {
		return nil, err
	}
	return x, l.rewriteIndexes(s, x, true)
}

// clipIndex cuts entries at or above a position from an index file, so that the rest can be judged as a whole.
func (l *Log) clipIndex(s *segment, ext string, pos, next int64) error {
	b, err := readSmall(l.fs, s.name(ext))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // load makes it anew
		}
		return err
	}
	keep := clip(b, ext, next-s.base, pos, next)
	if keep == len(b) {
		return nil
	}
	return cutFile(l.fs, s.name(ext), int64(keep), false)
}

// timeTail gives a time to batches whose own entry a crash took: they follow the last entry by a second or more, which without an
// entry would mean less. When they were appended is not known, but not after the segment was written last: a restore to a time in
// between leaves them out rather than take in what came later.
func (s *segment) timeTail(h *handle, x *indexes) error {
	n := len(x.appends)
	if n == 0 || s.mtimeMs-x.appends[n-1].ms < appendEveryMs {
		return nil
	}
	last := x.appends[n-1]
	b, err := s.findFunc(h, x.position(int64(last.rel)), func(b head) bool { return b.base > s.base+int64(last.rel) })
	if err == io.EOF {
		return nil
	}
	if err != nil {
		return err
	}
	x.addAppend(s.mtimeMs, int32(b.base-s.base), true)
	return nil
}

// finishScan cuts the segment at byte at, makes it durable and writes its indexes: anew if all of it was checked, else
// behind those of what lies below byte from.
func (l *Log) finishScan(s *segment, from, at, end int64) error {
	h, err := l.files.acquire(l.fs, s)
	if err != nil {
		return err
	}
	defer h.release()
	if at < s.size {
		if err := h.f.Truncate(at); err != nil {
			return err
		}
	}
	if !l.o.DeferSync {
		if err := h.f.Sync(); err != nil {
			return err
		}
	}
	s.setBounds(at, end)
	x := s.ix.Load()
	if err := l.readAppends(s, x, end); err != nil {
		return err
	}
	if at > 0 && len(x.appends) == 0 { // it was not written yet, see write
		x.addAppend(max(s.mtimeMs, l.lastAppendMs, l.cp.lastAppendMs, 1), 0, true)
	}
	if err := s.timeTail(h, x); err != nil {
		return err
	}
	if from == 0 {
		if err := l.rewriteIndexes(s, x, false); err != nil {
			return err
		}
	}
	if err := l.persistAll(s, x); err != nil {
		return err
	}
	if _, last := x.appendBounds(); last > l.lastAppendMs {
		l.lastAppendMs = last
	}
	s.noTxns.Store(len(x.aborted) == 0)
	s.dirty = true // its indexes are not synced
	l.namesDirty = true
	return nil
}
