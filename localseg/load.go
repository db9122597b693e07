package localseg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/varvelog/varve/record"
)

// summary is what is remembered of a closed segment when its indexes are not in memory.
type summary struct {
	maxMs                   int64
	firstAppend, lastAppend int64
}

func (x *indexes) summary() summary {
	ms, _ := x.maxTime()
	first, last := x.appendBounds()
	return summary{ms, first, last}
}

func (l *Log) summary(s *segment) (summary, error) {
	if sum := s.sum.Load(); sum != nil && !s.active.Load() {
		return *sum, nil
	}
	h, x, err := l.open(s)
	if err != nil {
		return summary{}, err
	}
	defer h.release()
	sum := x.summary()
	if !s.active.Load() {
		s.sum.Store(&sum)
	}
	return sum, nil
}

// open gives a segment's file and indexes; the caller releases the file.
func (l *Log) open(s *segment) (*handle, *indexes, error) {
	h, err := l.files.acquire(l.fs, s)
	if err != nil {
		return nil, nil, err
	}
	if x := s.ix.Load(); x != nil {
		return h, x, nil
	}
	l.loads.take()
	defer l.loads.give()
	if x := s.ix.Load(); x != nil {
		return h, x, nil
	}
	x, err := l.load(s, h)
	if err != nil {
		h.release()
		return nil, nil, err
	}
	s.ix.Store(x)
	return h, x, nil
}

// load reads a segment's indexes. They are derived from its batches: if one is missing or not sane, all are made anew.
// Only append times cannot be had again; of those the good beginning is kept.
func (l *Log) load(s *segment, h *handle) (*indexes, error) {
	size, next := s.bounds()
	x, err := l.readIndexes(s, size, next)
	if err == nil {
		return x, l.readAppends(s, x, next)
	}
	l.info("indexes are rebuilt", "segment", s.base, "reason", err)
	if x, err = l.rebuild(s, h, size); err != nil {
		return nil, err
	}
	if err := l.readAppends(s, x, next); err != nil {
		return nil, err
	}
	return x, l.rewriteIndexes(s, x, true)
}

func (l *Log) readIndexes(s *segment, size, next int64) (*indexes, error) {
	x := newIndexes()
	b, err := readSmall(l.fs, s.name(extIndex))
	if err != nil {
		return nil, err
	}
	if x.offsets, err = decodeOffsets(b, next-s.base, size); err != nil {
		return nil, err
	}
	if b, err = readSmall(l.fs, s.name(extTimeIndex)); err != nil {
		return nil, err
	}
	if x.times, err = decodeTimes(b, next-s.base); err != nil {
		return nil, err
	}
	if size > 0 && len(x.times) == 0 {
		return nil, fmt.Errorf("%s is empty: %w", extTimeIndex, errFormat)
	}
	if b, err = readSmall(l.fs, s.name(extTxnIndex)); err != nil {
		return nil, err
	}
	if x.aborted, err = decodeAborted(b, s.base, next); err != nil {
		return nil, err
	}
	if n := len(x.times); n > 0 {
		x.maxMs, x.maxRel = x.times[n-1].ms, x.times[n-1].rel
	}
	x.since = size
	if n := len(x.offsets); n > 0 {
		x.since = size - int64(x.offsets[n-1].pos)
	}
	x.persisted = [4]int{len(x.offsets), len(x.times), 0, len(x.aborted)}
	return x, nil
}

// readAppends fills in the append times, and cuts the file where they stop making sense.
func (l *Log) readAppends(s *segment, x *indexes, next int64) error {
	b, err := readSmall(l.fs, s.name(extAppendTime))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var ok bool
	x.appends, ok = decodeAppends(b, next-s.base)
	x.persisted[2] = len(x.appends)
	if ok && err == nil {
		return nil
	}
	// Durable: entries of batches that a crash took must not come back for others that get their offsets.
	return cutFile(l.fs, s.name(extAppendTime), int64(len(x.appends))*appendEntrySize, true)
}

// rebuild makes the indexes anew from the batches.
func (l *Log) rebuild(s *segment, h *handle, size int64) (*indexes, error) {
	state, err := l.producersAt(s.base)
	if err != nil {
		return nil, err
	}
	x, w := newIndexes(), pending{}
	interval := l.Config().IndexIntervalBytes
	_, err = walk(h.f, 0, size, func(pos int64, b record.Batch) error {
		if err := b.Check(); err != nil {
			return &CorruptError{h.f.Name(), pos, err}
		}
		x.add(b, s.base, pos, interval)
		state.replay(&w, b)
		x.aborted = append(x.aborted, w.aborted...)
		return nil
	})
	x.addTime()
	return x, err
}

// rewriteIndexes writes the three derived files anew. Those of a segment that the checkpoint covers must be whole after a
// crash, old or new: sync. Those of one that a recovery would check again need not.
func (l *Log) rewriteIndexes(s *segment, x *indexes, sync bool) error {
	for i, k := range indexFiles {
		if k.ext == extAppendTime {
			continue
		}
		b, n := x.tail(i, 0)
		name := s.name(k.ext)
		if !sync {
			if err := writeFile(l.fs, name, b, false); err != nil {
				return err
			}
		} else if err := writeFile(l.fs, name+extTmp, b, true); err != nil {
			return err
		} else if err := l.fs.Rename(name+extTmp, name); err != nil {
			return err
		}
		x.persisted[i] = n
	}
	return nil
}

// tail encodes index i (offsets, times, appends, aborted) from entry from on, and says how many entries it has in all.
func (x *indexes) tail(i, from int) ([]byte, int) {
	switch i {
	case 0:
		return encodeOffsets(nil, x.offsets[from:]), len(x.offsets)
	case 1:
		return encodeTimes(nil, x.times[from:]), len(x.times)
	case 2:
		return encodeAppends(nil, x.appends[from:]), len(x.appends)
	}
	return encodeAborted(nil, x.aborted[from:]), len(x.aborted)
}

var indexFiles = [...]struct {
	ext  string
	size int64
}{{extIndex, offsetEntrySize}, {extTimeIndex, timeEntrySize}, {extAppendTime, appendEntrySize}, {extTxnIndex, txnEntrySize}}

// persist appends new entries of index i to its file, which it creates. Called by the writer.
func (l *Log) persist(s *segment, x *indexes, i int) error {
	kind := indexFiles[i]
	f, err := l.fs.OpenFile(s.name(kind.ext), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	b, n := x.tail(i, x.persisted[i])
	if len(b) > 0 {
		_, err = f.WriteAt(b, int64(x.persisted[i])*kind.size)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		x.persisted[i] = n
	}
	return err
}

func (l *Log) persistAll(s *segment, x *indexes) error {
	for i := range indexFiles {
		if err := l.persist(s, x, i); err != nil {
			return err
		}
	}
	return nil
}
