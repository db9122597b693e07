package localseg

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
)

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

// full is Kafka's LogSegment.shouldRoll; append times are one more index that can be full.
func (l *Log) full(s *segment, x *indexes, h *handle, size int64, a *Appended, total, maxMs int64, c *Config) (bool, error) {
	if size+total > c.SegmentBytes || a.Last-s.base > math.MaxInt32 ||
		int64(len(x.offsets)+1)*offsetEntrySize > c.SegmentIndexBytes || int64(len(x.times)+2)*timeEntrySize > c.SegmentIndexBytes ||
		int64(x.appends.count()+2)*appendEntrySize > c.SegmentIndexBytes {
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
	x.appends.close()
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
