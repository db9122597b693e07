package localseg

import (
	"encoding/base64"
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
)

// Open recovers the log in dir; the directory is made at the first append only. Cost: proportional to what the last
// checkpoint has not covered, not to the data. What was recovered is durable before Open returns, so that nothing is
// served that a later crash could take back.
func Open(fsys vfs.FS, dir string, o Options) (*Log, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = new(Clock)
	}
	if o.Files == nil {
		o.Files = NewFileCache(0)
	}
	l := &Log{fs: fsys, dir: path.Clean(dir), o: o, files: o.Files, checkpoints: newTurn(), writer: newTurn(), loads: newTurn(),
		producers: newProducers(), lastFlush: time.Now()}
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
	defer func() { l.found = nil }()
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

// inventory finds the segments, with their sizes, and the snapshots, and removes left-overs.
func (l *Log) inventory(entries []fs.DirEntry) ([]*segment, error) {
	var segs []*segment
	l.found = []int64{}
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
		if ok && ext == extSnapshot {
			l.found = append(l.found, base)
		}
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
	l.unsynced = l.o.DeferSync
	return writeFile(l.fs, name, []byte(want), !l.o.DeferSync) // missing or torn: it was never synced
}

// TopicIDOf is the topic id that a log's directory says it belongs to; not ok: it does not say, or is not there.
func TopicIDOf(fsys vfs.FS, dir string) (id [16]byte, ok bool, err error) {
	b, err := readSmall(fsys, path.Join(dir, fileMetadata))
	if errors.Is(err, fs.ErrNotExist) {
		return id, false, nil
	}
	if err != nil {
		return id, false, err
	}
	text, named := strings.CutPrefix(strings.TrimRight(string(b), "\n"), "version: 0\ntopic_id: ")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if !named || err != nil || len(raw) != len(id) {
		return id, false, nil
	}
	return [16]byte(raw), true, nil
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
	if tiered := l.cfg.Load().Tiered; len(segs) > 0 && !(tiered && l.haveCP) {
		first := segs[0].base
		if tiered && len(l.epochs.list) > 0 {
			// The checkpoint is lost. What was deleted here only is in the archive, and would be deleted there, too, if the log said that it
			// begins here. The oldest epoch begins at the log start, or below: then the archive knows better.
			first = min(first, l.epochs.list[0].Start)
		}
		start = max(start, first)
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
	if err := l.lowerCheckpoint(leo); err != nil {
		return err
	}
	l.recovery.Store(leo)
	if s := l.activeSegment(); s != nil {
		s.active.Store(true)
	}
	return nil
}

// lowerCheckpoint makes the checkpoint one of a log that ends at leo, where what it spoke of was damaged or lost: what comes in its place is
// of another size, and has other bytes at the checkpoint's position. What is left of that segment is checked again by the next recovery.
func (l *Log) lowerCheckpoint(leo int64) error {
	if !l.haveCP || l.cp.recovery <= leo {
		return nil
	}
	c := l.cp
	c.recovery, c.base, c.pos, c.snapshot, c.logStart = leo, leo, 0, 0, l.logStart.Load()
	if segs := l.segments(); len(segs) > 0 {
		c.base = segs[max(0, segmentAt(segs, l.cp.base))].base
		c.recovery = c.base
	}
	return l.writeCheckpoint(c)
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
