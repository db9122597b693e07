package localseg

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/varvelog/varve/internal/vfs"
)

// manyLogs is from how many logs on one sync of the whole file system is taken instead of those of each file. A log has
// some ten; a sync of the file system may have to write what others left in the page cache.
const manyLogs = 16

// flushers is how many logs are flushed at once.
const flushers = 8

// FlushAll is Flush for all logs of one data directory. If many have something to flush, two syncs of the file system
// take the place of those of each file and directory. Appends go on meanwhile. Order:
//  1. of each log write index entries and the producer snapshot, and the epochs and the checkpoint to come as .tmp
//  2. sync the file system
//  3. of each log rename the epochs, then the checkpoint
//  4. sync the file system
//  5. of each log remove the snapshot of the flush before
//
// A crash before 3 leaves the checkpoints of before, which are true. One before 4 leaves of each log the old names or the
// new ones: what the new ones speak of is on disk since 2. The error joins those of the logs; the others are flushed.
func FlushAll(logs []*Log) error {
	var todo []*Log
	for _, l := range logs {
		if !l.closed.Load() && l.changed() {
			todo = append(todo, l)
		}
	}
	if len(todo) < manyLogs {
		return forEach(todo, (*Log).flushOpen)
	}
	fsys, ok := todo[0].fs.(vfs.FSSyncer)
	if !ok {
		return forEach(todo, (*Log).flushOpen)
	}
	// In one order, whoever calls: two callers would wait for each other.
	slices.SortFunc(todo, func(a, b *Log) int { return strings.Compare(a.dir, b.dir) })
	todo = slices.Compact(todo)
	for _, l := range todo {
		defer l.report() // after all turns are given back
	}
	for _, l := range todo {
		l.checkpoints.take()
		defer l.checkpoints.give()
	}
	return flushTogether(fsys, todo)
}

// flushOpen is Flush, but nothing for a log that was closed meanwhile.
func (l *Log) flushOpen() error {
	if err := l.Flush(); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// CloseAll is CloseClean for all logs of one data directory, see FlushAll. Nobody may append any more. Every log is
// closed, whatever the error.
func CloseAll(logs []*Log) error {
	err := FlushAll(logs)
	for _, l := range logs {
		if cerr := l.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

// staged is a log between the steps of FlushAll.
type staged struct {
	l   *Log
	job *flushJob
	err error
}

// flushTogether needs the turn of checkpoints of each log.
func flushTogether(fsys vfs.FSSyncer, logs []*Log) error {
	all := make([]*staged, len(logs))
	for i, l := range logs {
		all[i] = &staged{l: l}
	}
	sync := func() error { return fsys.SyncFS(path.Dir(logs[0].dir)) }
	step(all, (*staged).write)
	err := sync()
	if errors.Is(err, errors.ErrUnsupported) {
		step(all, (*staged).syncFiles)
		step(all, (*staged).rename)
		step(all, func(s *staged) error { return s.l.fs.SyncDir(s.l.dir) })
	} else {
		step(all, func(*staged) error { return err })
		step(all, (*staged).rename)
		err = sync()
		step(all, func(*staged) error { return err })
	}
	step(all, (*staged).finish)
	var errs []error
	for _, s := range all {
		errs = append(errs, s.err)
	}
	return errors.Join(errs...)
}

// step does f for each log that has a job and no error yet; an error takes that log offline.
func step(all []*staged, f func(*staged) error) {
	forEach(all, func(s *staged) error {
		if s.err != nil || s.job != nil && s.job.noChanges {
			return nil
		}
		if err := f(s); err != nil {
			s.err = s.l.fail("flush", err)
		}
		return nil
	})
}

// write is step 1. What it encoded is let go: thousands of logs may wait for the sync together.
func (s *staged) write() error {
	l := s.l
	l.writer.take()
	job, err := l.prepare(false)
	l.writer.give()
	if errors.Is(err, ErrClosed) { // it was removed meanwhile
		s.job = &flushJob{noChanges: true}
		return nil
	}
	if err != nil {
		return err
	}
	s.job = job
	job.release()
	job.handles = nil
	if job.noChanges {
		return nil
	}
	if job.snapshot != nil {
		if err := writeFile(l.fs, fileName(l.dir, job.next.recovery, extSnapshot), job.snapshot, false); err != nil {
			return err
		}
		job.snapshot = []byte{}
	}
	if job.epochs != nil {
		if err := writeFile(l.fs, path.Join(l.dir, fileEpochs+extTmp), job.epochs, false); err != nil {
			return err
		}
		job.epochs = []byte{}
	}
	return writeFile(l.fs, path.Join(l.dir, fileCheckpoint+extTmp), job.next.encode(), false)
}

// syncFiles is step 2 for a file system that cannot be synced as a whole.
func (s *staged) syncFiles() error {
	l, job := s.l, s.job
	var names []string
	for _, seg := range job.segs {
		for _, ext := range segmentExts {
			names = append(names, seg.name(ext))
		}
	}
	for _, o := range job.made {
		names = append(names, fileName(l.dir, o, extSnapshot))
	}
	if job.snapshot != nil {
		names = append(names, fileName(l.dir, job.next.recovery, extSnapshot))
	}
	if job.epochs != nil {
		names = append(names, path.Join(l.dir, fileEpochs+extTmp))
	}
	names = append(names, path.Join(l.dir, fileMetadata), path.Join(l.dir, fileCheckpoint+extTmp))
	for _, name := range names {
		if err := syncFile(l.fs, name); err != nil {
			return err
		}
	}
	if err := l.fs.SyncDir(l.dir); err != nil || !job.parent {
		return err
	}
	return l.fs.SyncDir(path.Dir(l.dir))
}

// rename is step 3.
func (s *staged) rename() error {
	if s.job.epochs != nil {
		name := path.Join(s.l.dir, fileEpochs)
		if err := s.l.fs.Rename(name+extTmp, name); err != nil {
			return err
		}
	}
	name := path.Join(s.l.dir, fileCheckpoint)
	return s.l.fs.Rename(name+extTmp, name)
}

// finish is step 5.
func (s *staged) finish() error {
	old := s.l.cp
	s.l.adoptCheckpoint(s.job.next)
	return s.l.dropSnapshot(old.snapshot, s.job.next.snapshot)
}

// changed says that a flush has something to do, or an error to tell.
func (l *Log) changed() bool {
	if l.offline.Load() != nil {
		return true
	}
	l.writer.take()
	defer l.writer.give()
	if !l.exists || l.activeSegment() == nil {
		return false
	}
	if l.namesDirty || l.parentDirty || len(l.snapshotsMade) > 0 {
		return true
	}
	for _, s := range l.segments() {
		if s.dirty {
			return true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epochs.dirty
}

// SyncRecovered makes durable what Open with DeferSync has recovered, of all logs of one data directory: if many have
// anything, by one sync of the file system. Nothing may be served or appended before it returns. A log in whose place
// nobody knows what the disk holds is offline afterwards; the error joins what happened.
func SyncRecovered(logs []*Log) error {
	var todo []*Log
	for _, l := range logs {
		if l.unsynced {
			todo = append(todo, l)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	fsys, ok := todo[0].fs.(vfs.FSSyncer)
	err := errors.ErrUnsupported
	if ok && len(todo) >= manyLogs {
		err = fsys.SyncFS(path.Dir(todo[0].dir))
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return forEach(todo, (*Log).syncRecovered)
	}
	for _, l := range todo {
		if l.unsynced = false; err != nil {
			l.fail("recover", err)
			l.report()
		}
	}
	if err != nil {
		return fmt.Errorf("sync %d recovered logs: %w", len(todo), err)
	}
	return nil
}

// syncRecovered syncs file by file. A flush covers every file that Open has written to, but for a log without segments.
func (l *Log) syncRecovered() error {
	l.unsynced = false
	defer l.report()
	err := l.syncMetadata()
	if err == nil {
		err = errors.Join(l.fs.SyncDir(l.dir), l.fs.SyncDir(path.Dir(l.dir)))
	}
	if err != nil {
		return l.fail("recover", err)
	}
	return l.Flush()
}

// forEach calls f for all, several at once, and joins the errors.
func forEach[T any](items []T, f func(T) error) error {
	errs := make([]error, len(items))
	var g sync.WaitGroup
	next := make(chan int)
	for range min(flushers, len(items)) {
		g.Go(func() {
			for i := range next {
				errs[i] = f(items[i])
			}
		})
	}
	for i := range items {
		next <- i
	}
	close(next)
	g.Wait()
	return errors.Join(errs...)
}
