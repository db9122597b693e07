package localseg

import (
	"crypto/rand"
	"fmt"
	"io"
	"path"
	"slices"
)

// Truncate removes records at and above off: the batch that holds off goes as a whole, and the LEO is then its base
// offset. Epochs and producer state follow. Below LocalStart it is TruncateFully. Order:
//  1. the checkpoint is lowered, so that from here on a crash means a recovery
//  2. the epochs that begin above go from their file: the recovery finds again those that still have batches, and no other may claim what
//     an older epoch, of another leader, has in their place
//  3. later segments and snapshots are removed, the directory synced
//  4. the segment is cut and synced, its indexes are cut
func (l *Log) Truncate(off int64) error {
	defer l.report()
	l.checkpoints.take()
	defer l.checkpoints.give()
	if err := l.usable(); err != nil {
		return err
	}
	if off < 0 {
		return fmt.Errorf("truncate to %d: %w", off, ErrOffsetOutOfRange)
	}
	if off >= l.leo.Load() {
		return nil
	}
	l.writer.take()
	defer l.writer.give()
	segs := l.segments()
	i := segmentAt(segs, off)
	if i < 0 || off < l.logStart.Load() {
		return l.resetTo(checkpoint{recovery: off, base: off, logStart: off, lastAppendMs: l.lastAppendMs, snapshot: -1, reset: resetClear})
	}
	if err := l.truncate(segs, i, off); err != nil {
		return l.fail("truncate", err)
	}
	return nil
}

func (l *Log) truncate(segs []*segment, i int, off int64) error {
	s := segs[i]
	h, x, err := l.open(s)
	if err != nil {
		return err
	}
	defer h.release()
	pos, end := int64(0), off
	if first, err := s.find(h.f, x.position(off-s.base), off); err == nil {
		pos, end = first.pos, min(off, first.base)
	} else if err == io.EOF { // off lies in the gap at its end
		pos, _ = s.bounds()
	} else {
		return err
	}
	if l.haveCP && l.cp.recovery > end {
		c := l.cp
		c.recovery, c.base, c.pos, c.snapshot = end, s.base, pos, 0
		if err := l.writeCheckpoint(c); err != nil {
			return err
		}
	}
	if err := l.cutEpochs(end); err != nil {
		return err
	}
	if err := l.removeSegments(segs[i+1:]); err != nil {
		return err
	}
	if err := l.removeSnapshotsAbove(end); err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	if err := h.f.Truncate(pos); err != nil {
		return err
	}
	if err := h.f.Sync(); err != nil {
		return err
	}
	s.setBounds(pos, end)
	s.active.Store(true)
	l.setSegments(segs[: i+1 : i+1])
	return l.reindex(s, h, x, pos, end)
}

// cutEpochs takes the epochs that begin at or above end out of their file. Those in memory go with the batches.
func (l *Log) cutEpochs(end int64) error {
	l.mu.Lock()
	kept := epochHistory{list: l.epochs.list}
	l.mu.Unlock()
	if kept.truncateEnd(end); !kept.dirty {
		return nil
	}
	return replaceFile(l.fs, path.Join(l.dir, fileEpochs), encodeEpochs(kept.list))
}

// reindex cuts the indexes of the segment that is active now, and the states that hang on the end.
func (l *Log) reindex(s *segment, h *handle, x *indexes, pos, end int64) error {
	x.mu.Lock()
	x.appends.close()
	x.mu.Unlock()
	if err := l.persistAppends(s, x); err != nil {
		return err
	}
	n := newIndexes() // x may be read meanwhile
	x.mu.RLock()
	n.offsets, n.times = slices.Clone(x.offsets), slices.Clone(x.times)
	for _, t := range x.aborted {
		if t.Last < end {
			n.aborted = append(n.aborted, t)
		}
	}
	x.mu.RUnlock()
	n.truncate(end-s.base, pos)
	from := int64(0)
	if k := len(n.offsets); k > 0 {
		from = int64(n.offsets[k-1].pos)
	}
	if _, err := s.findFunc(h, from, func(b head) bool { // the largest timestamp after the last entry
		if b.maxMs > n.maxMs {
			n.maxMs, n.maxRel = b.maxMs, int32(b.last-s.base)
		}
		return false
	}); err != io.EOF {
		return err
	}
	n.addTime()
	if err := l.rewriteIndexes(s, n, true); err != nil {
		return err
	}
	// Synced: entries of what is gone must not come back for what is appended in its place.
	if err := l.loadAppends(s, n, end, l.lastAppendMs); err != nil {
		return err
	}
	if err := syncFile(l.fs, s.name(extAppendTime)); err != nil {
		return err
	}
	s.ix.Store(n)
	s.sum.Store(nil)
	s.noTxns.Store(len(n.aborted) == 0)
	s.firstMs, s.dirty = noFirstMs, true
	state, err := l.producersAt(end)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers = state
	l.epochs.truncateEnd(end)
	l.leo.Store(end)
	l.firstOpen.Store(state.firstOpen())
	l.recovery.Store(min(l.recovery.Load(), end))
	return nil
}

// TruncateFully empties the log; the next offset is off, and so is the log start.
func (l *Log) TruncateFully(off int64) error {
	defer l.report()
	l.checkpoints.take()
	defer l.checkpoints.give()
	if err := l.usable(); err != nil {
		return err
	}
	if off < 0 {
		return fmt.Errorf("truncate to %d: %w", off, ErrOffsetOutOfRange)
	}
	l.writer.take()
	defer l.writer.give()
	return l.resetTo(checkpoint{recovery: off, base: off, logStart: off, lastAppendMs: l.lastAppendMs, snapshot: -1, reset: resetClear})
}

// StartAt makes an empty log begin at off with this history: a replica or a restored partition whose past is in the archive.
// logStart is the first offset that the archive has. A log that has records is an error. Durable when it returns.
func (l *Log) StartAt(logStart, off int64, epochs []Epoch, producers []byte, lastAppendMs int64) error {
	defer l.report()
	l.checkpoints.take()
	defer l.checkpoints.give()
	if err := l.usable(); err != nil {
		return err
	}
	l.writer.take()
	defer l.writer.give()
	if l.SizeBytes() > 0 {
		return fmt.Errorf("start at %d: log has records [%d, %d)", off, l.LocalStart(), l.leo.Load())
	}
	if logStart < 0 || logStart > off {
		return fmt.Errorf("start at %d with log start %d: %w", off, logStart, ErrOffsetOutOfRange)
	}
	if _, err := decodeEpochs(encodeEpochs(epochs)); err != nil {
		return fmt.Errorf("start at %d: %w", off, err)
	}
	state := newProducers()
	if len(producers) > 0 {
		var err error
		if state, err = decodeSnapshot(producers); err != nil {
			return fmt.Errorf("start at %d: %w", off, err)
		}
	}
	c := checkpoint{recovery: off, base: off, logStart: logStart, lastAppendMs: max(lastAppendMs, l.lastAppendMs), snapshot: off, reset: resetStart}
	if err := l.writeHistory(off, epochs, state); err != nil {
		return l.fail("start", err)
	}
	return l.resetTo(c)
}

func (l *Log) writeHistory(off int64, epochs []Epoch, state *producers) error {
	if err := l.makeDir(); err != nil {
		return err
	}
	if err := writeFile(l.fs, fileName(l.dir, off, extSnapshot), state.encode(), true); err != nil {
		return err
	}
	return replaceFile(l.fs, path.Join(l.dir, fileEpochs), encodeEpochs(epochs))
}

// resetTo needs both turns. Open does it again if a crash comes between:
//  1. the checkpoint says what is being done
//  2. segments, snapshots, and for resetClear the epochs, are removed
//  3. an empty segment is made, the directory and its parent are synced
//  4. the checkpoint says that it is done
func (l *Log) resetTo(c checkpoint) error {
	err := l.makeDir()
	if err == nil {
		err = l.writeCheckpoint(c)
	}
	if err == nil {
		err = l.finishReset(c)
	}
	if err != nil {
		return l.fail("reset", err)
	}
	return nil
}

func (l *Log) finishReset(c checkpoint) error {
	segs := l.segments()
	l.setSegments(nil)
	if err := l.removeSegments(segs); err != nil {
		return err
	}
	keep := c.recovery
	if c.reset == resetClear {
		keep = -1
		if err := replaceFile(l.fs, path.Join(l.dir, fileEpochs), encodeEpochs(nil)); err != nil {
			return err
		}
	}
	if err := l.removeSnapshots(func(o int64) bool { return o != keep }); err != nil {
		return err
	}
	s, err := l.createSegment(c.recovery)
	if err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	if err := l.fs.SyncDir(path.Dir(l.dir)); err != nil {
		return err
	}
	if err := l.adopt(c); err != nil {
		return err
	}
	c.reset = resetNone
	if err := l.writeCheckpoint(c); err != nil {
		return err
	}
	l.setSegments([]*segment{s})
	l.namesDirty, l.parentDirty, l.snapshotsMade, l.unflushed = false, false, nil, 0
	return nil
}

// adopt takes the states that a reset has left in the files.
func (l *Log) adopt(c checkpoint) error {
	if err := l.readEpochs(); err != nil {
		return err
	}
	state := newProducers()
	if c.snapshot >= 0 {
		var err error
		if state, err = l.readSnapshot(c.snapshot); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers, l.epochs.dirty = state, false
	l.lastAppendMs = c.lastAppendMs
	l.logStart.Store(c.logStart)
	l.leo.Store(c.recovery)
	l.firstOpen.Store(state.firstOpen())
	l.recovery.Store(c.recovery)
	return nil
}

// Remove closes the log and deletes its directory (renamed to <name>.<uuid>-delete first, as Kafka does).
func (l *Log) Remove() error {
	if err := l.Close(); err != nil {
		return err
	}
	if !l.exists {
		return nil
	}
	gone := fmt.Sprintf("%s.%x-delete", l.dir, randomID())
	if err := l.fs.Rename(l.dir, gone); err != nil {
		return fmt.Errorf("remove log: %w", err)
	}
	if err := l.fs.SyncDir(path.Dir(l.dir)); err != nil {
		return fmt.Errorf("remove log: %w", err)
	}
	if err := l.fs.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove log: %w", err)
	}
	return nil
}

func randomID() (id [16]byte) {
	rand.Read(id[:])
	return id
}
