package localseg

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/record"
)

// Open recovers the log in dir; the directory is made at the first append only. Cost: proportional to what the last
// checkpoint has not covered, not to the data. What was recovered is durable before Open returns, so that nothing is
// served that a later crash could take back.
func Open(fsys vfs.FS, dir string, o Options) (*Log, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Files == nil {
		o.Files = NewFileCache(0)
	}
	l := &Log{fs: fsys, dir: path.Clean(dir), o: o, files: o.Files, checkpoints: newTurn(), writer: newTurn(), loads: newTurn(),
		producers: newProducers(), lastBatch: -1, lastFlushMs: time.Now().UnixMilli()}
	l.SetConfig(o.Config)
	l.firstOpen.Store(math.MaxInt64)
	entries, err := fsys.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", dir, err)
	}
	l.exists = true
	if err := l.recover(entries); err != nil {
		for _, s := range l.segments() {
			l.files.forget(s)
		}
		return nil, fmt.Errorf("open log %s: %w", dir, err)
	}
	return l, nil
}

func (l *Log) recover(entries []fs.DirEntry) error {
	if err := l.checkTopicID(); err != nil {
		return err
	}
	segs, err := l.inventory(entries)
	if err != nil {
		return err
	}
	if err := l.readCheckpoint(); err != nil {
		return err
	}
	if l.haveCP && l.cp.reset != resetNone {
		l.setSegments(segs)
		return l.finishReset(l.cp)
	}
	if err := l.readEpochs(); err != nil {
		return err
	}
	l.setSegments(segs)
	if len(segs) > 0 {
		if err := l.recoverSegments(segs); err != nil {
			return err
		}
	} else {
		l.leo.Store(max(l.cp.recovery, l.cp.logStart))
	}
	return l.settle()
}

// inventory finds the segments, with their sizes, and removes left-overs.
func (l *Log) inventory(entries []fs.DirEntry) ([]*segment, error) {
	var segs []*segment
	emptyTxns := map[int64]bool{}
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, extDeleted) || strings.HasSuffix(name, extTmp) {
			if err := removeFile(l.fs, path.Join(l.dir, name)); err != nil {
				return nil, err
			}
			continue
		}
		base, ext, ok := parseName(name)
		if !ok || ext != extLog && ext != extTxnIndex {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if ext == extTxnIndex {
			emptyTxns[base] = info.Size() == 0
			continue
		}
		s := newSegment(l.dir, base)
		s.size, s.mtimeMs = info.Size(), info.ModTime().UnixMilli()
		segs = append(segs, s)
	}
	slices.SortFunc(segs, func(a, b *segment) int {
		if a.base < b.base {
			return -1
		}
		return 1
	})
	for i, s := range segs {
		s.noTxns.Store(emptyTxns[s.base])
		if i+1 < len(segs) {
			s.next = segs[i+1].base
		}
	}
	return segs, nil
}

func (l *Log) checkTopicID() error {
	if l.o.TopicID == ([16]byte{}) {
		return nil
	}
	name := path.Join(l.dir, fileMetadata)
	b, err := readSmall(l.fs, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	want := string(encodeMetadata(l.o.TopicID))
	if got := strings.TrimRight(string(b), "\n"); got == want {
		return nil
	} else if len(got) == len(want) && strings.HasPrefix(got, "version: 0\ntopic_id: ") {
		return fmt.Errorf("%s has %q, want %q: %w", name, got, want, ErrTopicID)
	}
	return writeFile(l.fs, name, []byte(want), true) // missing or torn: it was never synced
}

func (l *Log) readCheckpoint() error {
	b, err := readSmall(l.fs, path.Join(l.dir, fileCheckpoint))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if l.cp, err = decodeCheckpoint(b); err != nil {
		l.info("checkpoint is not usable, the whole log is checked", "err", err)
		l.cp = checkpoint{}
		return nil
	}
	l.haveCP, l.trust = true, true
	return nil
}

func (l *Log) readEpochs() error {
	b, err := readSmall(l.fs, path.Join(l.dir, fileEpochs))
	if errors.Is(err, fs.ErrNotExist) {
		l.trust = false // every flush leaves one
		l.epochs.dirty = true
		return nil
	}
	if err != nil {
		return err
	}
	if l.epochs.list, err = decodeEpochs(b); err != nil {
		l.info("leader epochs are taken from the batches", "err", err)
		l.trust, l.epochs.dirty = false, true
	}
	return nil
}

// settle ends Open: everything is known, now it is made consistent.
func (l *Log) settle() error {
	leo, start := l.leo.Load(), l.cp.logStart
	segs := l.segments()
	if len(segs) > 0 && (!l.cfg.Load().Tiered || !l.haveCP) {
		start = max(start, segs[0].base)
	}
	if start > leo { // the data that the log start stood on is gone
		l.info("log ends below its start and begins anew there", "offset", start, "end", leo)
		if err := l.removeSegments(segs); err != nil {
			return err
		}
		l.setSegments(nil)
		l.producers = newProducers()
		leo = start
		l.leo.Store(leo)
	}
	l.logStart.Store(start)
	l.epochs.truncateEnd(leo + 1) // one that begins at the end is a leader that has not written yet
	l.epochs.truncateStart(start)
	l.lastAppendMs = max(l.lastAppendMs, l.cp.lastAppendMs)
	l.firstOpen.Store(l.producers.firstOpen())
	l.recovery.Store(leo)
	if s := l.activeSegment(); s != nil {
		s.active.Store(true)
	}
	return nil
}

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
		if err := l.finishScan(s, at, end); err != nil {
			return err
		}
		next = end
	}
	l.leo.Store(next)
	if err := l.removeSnapshotsAbove(next); err != nil {
		return err
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
	if err != nil {
		return l.rebuild(s, h, pos)
	}
	return x, nil
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
	return writeFile(l.fs, s.name(ext), b[:keep], false)
}

// finishScan cuts the segment at a byte, makes it durable and writes its indexes.
func (l *Log) finishScan(s *segment, at, end int64) error {
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
	if err := h.f.Sync(); err != nil {
		return err
	}
	s.setBounds(at, end)
	x := s.ix.Load()
	if err := l.readAppends(s, x, end); err != nil {
		return err
	}
	if at > 0 && len(x.appends) == 0 { // it was not written yet, see write
		x.addAppend(max(s.mtimeMs, l.lastAppendMs, l.cp.lastAppendMs, 1), 0, true)
	}
	if err := l.rewriteIndexes(s, x); err != nil {
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

// removeSegments deletes the files of segments, the last one first.
func (l *Log) removeSegments(segs []*segment) error {
	for _, s := range slices.Backward(segs) {
		l.files.forget(s)
		for _, ext := range segmentExts {
			if err := removeFile(l.fs, s.name(ext)); err != nil {
				return err
			}
		}
	}
	return nil
}
