package localseg

import (
	"fmt"
	"path"
	"time"
)

// flushJob is what a flush has to make durable, gathered while the writer stood still.
type flushJob struct {
	next      checkpoint
	segs      []*segment
	handles   []*handle
	snapshot  []byte
	made      []int64 // snapshots of rolls
	epochs    []byte
	names     bool
	parent    bool
	noChanges bool
}

// Flush makes everything appended so far durable and advances the recovery point. Appends go on meanwhile. Order:
//  1. sync the data of the segments written to since the last flush
//  2. sync their indexes
//  3. write and sync the producer snapshot at the end
//  4. replace the leader epochs
//  5. sync the directory, and its parent once
//  6. replace the checkpoint, which says all that
//  7. remove the snapshot of the flush before
func (l *Log) Flush() error { return l.flush(false) }

// FlushRolled is Flush for the closed segments only.
func (l *Log) FlushRolled() error { return l.flush(true) }

func (l *Log) flush(rolledOnly bool) error {
	defer l.report()
	l.checkpoints.take()
	defer l.checkpoints.give()
	return l.flushLocked(rolledOnly)
}

// flushLocked needs the turn of checkpoints.
func (l *Log) flushLocked(rolledOnly bool) error {
	l.writer.take()
	job, err := l.prepare(rolledOnly)
	l.writer.give()
	if err != nil {
		return err
	}
	if !job.noChanges {
		err = l.runFlush(job)
	}
	job.release()
	if err != nil {
		return l.fail("flush", err)
	}
	return nil
}

func (l *Log) prepare(rolledOnly bool) (*flushJob, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	job := &flushJob{names: l.namesDirty, parent: l.parentDirty, made: l.snapshotsMade}
	active := l.activeSegment()
	if active == nil || !l.exists {
		job.noChanges = true
		return job, nil
	}
	for _, s := range l.segments() {
		if !s.dirty || rolledOnly && s == active {
			continue
		}
		if err := l.gather(job, s, s == active); err != nil {
			job.release()
			return nil, l.fail("flush", err)
		}
	}
	l.describe(job, active, rolledOnly)
	if job.noChanges {
		return job, nil
	}
	for _, s := range job.segs {
		s.dirty = false
	}
	l.namesDirty, l.parentDirty, l.snapshotsMade = false, false, nil
	if !rolledOnly {
		l.unflushed, l.lastFlush = 0, time.Now()
	}
	return job, nil
}

func (j *flushJob) release() {
	for _, h := range j.handles {
		h.release()
	}
}

// gather takes a segment into the job; of the active one the index entries in memory are written first.
func (l *Log) gather(job *flushJob, s *segment, active bool) error {
	h, x, err := l.open(s)
	if err != nil {
		return err
	}
	job.handles = append(job.handles, h)
	job.segs = append(job.segs, s)
	if !active {
		return nil
	}
	x.mu.Lock()
	x.addTime()
	x.appends.close()
	x.mu.Unlock()
	return l.persistAll(s, x)
}

// describe fills in the checkpoint to come.
func (l *Log) describe(job *flushJob, active *segment, rolledOnly bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, _ := active.bounds()
	c := checkpoint{recovery: l.leo.Load(), base: active.base, pos: size, logStart: l.logStart.Load(), lastAppendMs: l.lastAppendMs, snapshot: -1}
	if rolledOnly {
		c.recovery, c.pos, c.snapshot = active.base, 0, active.base
		if l.haveCP && l.cp.recovery >= c.recovery {
			job.noChanges = true
			return
		}
	} else if len(l.producers.byID) > 0 {
		c.snapshot = c.recovery
		if !l.haveCP || l.cp.snapshot != c.snapshot {
			job.snapshot = l.producers.encode()
		}
	}
	if l.epochs.dirty {
		job.epochs = encodeEpochs(l.epochs.list)
		l.epochs.dirty = false
	}
	job.next = c
	job.noChanges = l.haveCP && c == l.cp && len(job.segs) == 0 && job.epochs == nil && !job.names
}

func (l *Log) runFlush(job *flushJob) error {
	for _, h := range job.handles {
		if err := h.f.Sync(); err != nil {
			return err
		}
	}
	for _, s := range job.segs {
		for _, k := range indexFiles {
			if err := syncFile(l.fs, s.name(k.ext)); err != nil {
				return err
			}
		}
	}
	for _, o := range job.made {
		if err := syncFile(l.fs, fileName(l.dir, o, extSnapshot)); err != nil {
			return err
		}
	}
	if job.snapshot != nil {
		if err := writeFile(l.fs, fileName(l.dir, job.next.recovery, extSnapshot), job.snapshot, true); err != nil {
			return err
		}
	}
	if job.epochs != nil {
		if err := replaceFile(l.fs, path.Join(l.dir, fileEpochs), job.epochs); err != nil {
			return err
		}
	} else if job.names || job.snapshot != nil {
		if err := l.fs.SyncDir(l.dir); err != nil {
			return err
		}
	}
	if job.parent {
		if err := l.syncMetadata(); err != nil {
			return err
		}
		if err := l.fs.SyncDir(path.Dir(l.dir)); err != nil {
			return err
		}
	}
	old := l.cp
	if err := l.writeCheckpoint(job.next); err != nil {
		return err
	}
	return l.dropSnapshot(old.snapshot, job.next.snapshot)
}

func (l *Log) syncMetadata() error { return syncFile(l.fs, path.Join(l.dir, fileMetadata)) }

// writeCheckpoint needs the turn of checkpoints.
func (l *Log) writeCheckpoint(c checkpoint) error {
	if err := replaceFile(l.fs, path.Join(l.dir, fileCheckpoint), c.encode()); err != nil {
		return err
	}
	l.adoptCheckpoint(c)
	return nil
}

func (l *Log) adoptCheckpoint(c checkpoint) {
	l.cp, l.haveCP = c, true
	l.recovery.Store(max(c.recovery, 0))
}

// dropSnapshot removes a snapshot that a flush made and a later one replaced; those at segment bases stay.
func (l *Log) dropSnapshot(old, now int64) error {
	if old < 0 || old == now {
		return nil
	}
	segs := l.segments()
	if i := segmentAt(segs, old); i >= 0 && segs[i].base == old {
		return nil
	}
	return removeFile(l.fs, fileName(l.dir, old, extSnapshot))
}

// SetLogStart raises the log start (DeleteRecords, total retention); durable when it returns. An offset at or below the
// log start changes nothing, one above the LEO is ErrOffsetOutOfRange. Files are deleted by the next Retain.
func (l *Log) SetLogStart(off int64) error {
	defer l.report()
	l.checkpoints.take()
	defer l.checkpoints.give()
	if err := l.usable(); err != nil {
		return err
	}
	if off <= l.logStart.Load() {
		return nil
	}
	if leo := l.leo.Load(); off > leo {
		return fmt.Errorf("log start %d, end is %d: %w", off, leo, ErrOffsetOutOfRange)
	}
	l.mu.Lock()
	l.epochs.truncateStart(off)
	l.mu.Unlock()
	return l.raiseStart(off)
}

// raiseStart needs the turn of checkpoints. The rest of the checkpoint stays as it was, true as ever; if there was none,
// the flush that makes one carries the new start.
func (l *Log) raiseStart(off int64) error {
	l.logStart.Store(off)
	if !l.haveCP {
		return l.flushLocked(false)
	}
	c := l.cp
	c.logStart = off
	if err := l.writeCheckpoint(c); err != nil {
		return l.fail("raise log start of", err)
	}
	return nil
}

// Close flushes nothing; call Flush before for a clean shutdown. Spans that were handed out stay readable.
func (l *Log) Close() error {
	l.checkpoints.take()
	defer l.checkpoints.give()
	l.writer.take()
	defer l.writer.give()
	l.closed.Store(true)
	for _, s := range l.segments() {
		l.files.forget(s)
	}
	return nil
}

// CloseClean is Flush, which writes snapshots too, and Close.
func (l *Log) CloseClean() error {
	if l.closed.Load() {
		return nil
	}
	err := l.Flush()
	if cerr := l.Close(); err == nil {
		err = cerr
	}
	return err
}
