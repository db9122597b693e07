package localseg

import (
	"errors"
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
		if n := len(l.found); n == 0 || l.found[n-1] <= segs[last].next {
			return nil
		}
		return l.endSnapshots(segs[last].next)
	}
	return l.scan(segs, from, pos, off)
}

// endSnapshots removes, durably, the snapshots of what the log has not: they would be taken for those of what comes in its place.
func (l *Log) endSnapshots(end int64) error {
	if err := l.removeSnapshotsAbove(end); err != nil {
		return err
	}
	if l.o.DeferSync {
		l.unsynced = true
		return nil
	}
	return errors.Join(l.fs.SyncDir(l.dir), l.fs.SyncDir(path.Dir(l.dir)))
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
		end, err := l.scanOne(segs, i, pos, next)
		if err != nil {
			return err
		}
		segs = l.segments()
		next = end
	}
	l.leo.Store(next)
	return l.endSnapshots(next)
}

// scanOne scans segs[i] and makes what is good of it the log's. It returns the offset at which that ends.
func (l *Log) scanOne(segs []*segment, i int, pos, next int64) (end int64, err error) {
	s := segs[i]
	h, err := l.files.acquire(l.fs, s) // all the while: another log that is opened now could push its indexes out of memory
	if err != nil {
		return 0, err
	}
	defer h.release()
	end, at, err := l.scanSegment(s, h, pos, next)
	if err != nil {
		return 0, err
	}
	if at < s.size {
		l.info("torn tail is cut off", "segment", s.base, "offset", end, "bytes", s.size-at)
		if err := l.cutAfter(segs, i+1); err != nil {
			return 0, err
		}
	}
	return end, l.finishScan(s, h, pos, at, end, i+1 == len(l.segments()))
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
func (l *Log) scanSegment(s *segment, h *handle, pos, next int64) (end, at int64, err error) {
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
		l.epochs.saw(b.LeaderEpoch(), next, b.BaseOffset(), b.NextOffset())
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

// finishScan cuts the segment at byte at, makes it durable and writes its indexes: anew if all of it was checked, else
// behind those of what lies below byte from. Those of the active segment stay in memory, as those of batches just
// appended do: a start after a crash then makes no files, where thousands of partitions would make four each.
func (l *Log) finishScan(s *segment, h *handle, from, at, end int64, active bool) error {
	torn := at < s.size
	if torn {
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
	latest := max(s.mtimeMs+mtimeSlackMs, l.lastAppendMs)
	if s == l.activeSegment() {
		latest = max(latest, l.cp.lastAppendMs)
	}
	if err := l.loadAppends(s, x, end, latest); err != nil {
		return err
	}
	if err := l.persistScanned(s, x, from == 0, active); err != nil {
		return err
	}
	if torn { // the file's modification time says no more when its first batch came
		if err := l.persist(s, x, 2); err != nil {
			return err
		}
	}
	if _, last := x.appendBounds(); last > l.lastAppendMs {
		l.lastAppendMs = last
	}
	s.noTxns.Store(len(x.aborted) == 0)
	s.dirty = true // its indexes are not synced
	l.namesDirty = true
	return nil
}

func (l *Log) persistScanned(s *segment, x *indexes, whole, active bool) error {
	if active {
		s.active.Store(true) // so that its indexes are kept
		if !whole {
			return nil
		}
		for _, ext := range [...]string{extIndex, extTimeIndex, extTxnIndex} { // what they have may be torn
			if err := removeFile(l.fs, s.name(ext)); err != nil {
				return err
			}
		}
		return nil
	}
	if whole {
		if err := l.rewriteIndexes(s, x, false); err != nil {
			return err
		}
	}
	return l.persistAll(s, x)
}
