package localseg

import (
	"errors"
	"io/fs"
	"math"
)

// trash is a file that was renamed and waits to be removed.
type trash struct {
	name string
	due  int64 // ms
}

// Retain deletes what retention allows now: for a Tiered log local segments below archivedThrough by local.retention.*, without
// moving the log start; else, and where copying is off, by retention.*, moving it. Also rolls by segment.ms, deletes what is below the log start,
// forgets idle producers and flushes by flush.ms. nowMs is the broker's clock. Of a log that is not Tiered
// archivedThrough is not looked at.
//
// Files are renamed to .deleted and removed by a Retain that is file.delete.delay.ms later, or by the next Open. An
// expired active segment is rolled first, durably, so that the LEO never goes back.
func (l *Log) Retain(nowMs, archivedThrough int64) (deletedBytes int64, err error) {
	var rolled bool
	defer func() {
		l.report()
		if rolled && l.o.OnRoll != nil {
			l.o.OnRoll()
		}
	}()
	l.checkpoints.take()
	defer l.checkpoints.give()
	if err := l.usable(); err != nil {
		return 0, err
	}
	c := l.cfg.Load()
	l.mu.Lock()
	l.producers.expire(nowMs, c.ProducerExpiryMs)
	l.mu.Unlock()
	l.writer.take()
	due := l.flushDue()
	l.writer.give()
	if due {
		if err := l.flushLocked(false); err != nil {
			return 0, err
		}
	}
	l.writer.take()
	defer l.writer.give()
	if err := l.emptyTrash(nowMs); err != nil {
		return 0, l.fail("retain", err)
	}
	if rolled, err = l.rollByTime(nowMs, c); err != nil {
		return 0, err
	}
	n, err := l.expired(nowMs, archivedThrough, c)
	if err != nil || n == 0 {
		return 0, err
	}
	if n == len(l.segments()) {
		if rolled, err = l.rollActive(); err != nil {
			return 0, err
		}
	}
	return l.deleteFirst(n, nowMs, c)
}

// rollByTime rolls an active segment whose first batch was appended segment.ms ago by the broker's clock.
func (l *Log) rollByTime(nowMs int64, c *Config) (bool, error) {
	s := l.activeSegment()
	if s == nil {
		return false, nil
	}
	if size, _ := s.bounds(); size == 0 {
		return false, nil
	}
	sum, err := l.summary(s)
	if err != nil {
		return false, l.fail("retain", err)
	}
	if sum.firstAppend < 0 || nowMs-sum.firstAppend <= c.SegmentMs-l.jitter(s, c) {
		return false, nil
	}
	return l.rollActive()
}

// expired counts the oldest segments that may go. The active one counts if it has records.
func (l *Log) expired(nowMs, archivedThrough int64, c *Config) (int, error) {
	segs := l.segments()
	retentionMs, retentionBytes, limit := c.RetentionMs, c.RetentionBytes, int64(math.MaxInt64)
	if c.Tiered {
		retentionMs, retentionBytes = c.localRetention()
		limit = archivedThrough
	}
	if c.moves() { // of a tiered log too: what is not archived now never will be (KIP-950)
		retentionMs, retentionBytes, limit = c.RetentionMs, c.RetentionBytes, math.MaxInt64
	}
	if !c.Delete {
		retentionMs, retentionBytes = -1, -1
	}
	surplus := int64(-1)
	if retentionBytes >= 0 {
		surplus = l.SizeBytes() - retentionBytes
	}
	start := l.logStart.Load()
	for i, s := range segs {
		size, end := s.bounds()
		if i+1 < len(segs) {
			end = segs[i+1].base
		}
		if size == 0 && i == len(segs)-1 {
			return i, nil
		}
		surplus -= size
		if end <= start || end <= limit && retentionBytes >= 0 && surplus >= 0 {
			continue
		}
		if retentionMs < 0 || end > limit {
			return i, nil
		}
		old, err := l.olderThan(s, nowMs-retentionMs)
		if err != nil {
			return 0, err
		}
		if !old {
			return i, nil
		}
	}
	return len(segs), nil
}

// olderThan compares a segment's largest timestamp, or the time of its last append if it has none.
func (l *Log) olderThan(s *segment, ms int64) (bool, error) {
	sum, err := l.summary(s)
	if err != nil {
		return false, l.fail("retain", err)
	}
	last := sum.maxMs
	if last < 0 {
		last = sum.lastAppend
	}
	return last < ms, nil
}

// deleteFirst takes the first n segments away from readers and renames their files. Steps:
//  1. what says where the log begins and ends is made durable: names of segments, and for a tiered log its start
//  2. the segments leave the view
//  3. their files are renamed, oldest first, so that no hole can come back; Open removes renamed files
//  4. the directory is synced
func (l *Log) deleteFirst(n int, nowMs int64, c *Config) (deleted int64, err error) {
	segs := l.segments()
	if c.moves() && segs[n].base > l.logStart.Load() {
		l.logStart.Store(segs[n].base)
		l.mu.Lock()
		l.epochs.truncateStart(segs[n].base)
		l.mu.Unlock()
	}
	if err := l.anchor(c); err != nil {
		return 0, l.fail("retain", err)
	}
	l.setSegments(segs[n:len(segs):len(segs)]) // after the start: a reader below must hear of that first
	for _, s := range segs[:n] {
		size, _ := s.bounds()
		if err := l.discard(s, nowMs+c.FileDeleteDelayMs); err != nil {
			return deleted, l.fail("delete segment of", err)
		}
		deleted += size
	}
	l.info("segments deleted", "segments", n, "bytes", deleted, "offset", segs[n].base)
	err = l.removeSnapshots(func(o int64) bool { return o < segs[n].base })
	if err == nil {
		err = l.fs.SyncDir(l.dir)
	}
	if err != nil {
		return deleted, l.fail("delete segment of", err)
	}
	return deleted, nil
}

// anchor needs both turns.
func (l *Log) anchor(c *Config) error {
	if l.namesDirty {
		if err := l.fs.SyncDir(l.dir); err != nil {
			return err
		}
	}
	start := l.logStart.Load()
	if !c.Tiered || l.haveCP && l.cp.logStart == start {
		return nil
	}
	cp := l.cp
	if !l.haveCP { // nothing flushed yet: the recovery begins where the log does
		cp = checkpoint{base: l.segments()[0].base, recovery: l.segments()[0].base, snapshot: -1}
	}
	cp.logStart = start
	return l.writeCheckpoint(cp)
}

func (l *Log) discard(s *segment, due int64) error {
	l.files.forget(s)
	for _, ext := range segmentExts {
		name := s.name(ext)
		if err := l.fs.Rename(name, name+extDeleted); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return err
		}
		l.trash = append(l.trash, trash{name + extDeleted, due})
	}
	return nil
}

func (l *Log) emptyTrash(nowMs int64) error {
	for len(l.trash) > 0 && l.trash[0].due <= nowMs {
		if err := removeFile(l.fs, l.trash[0].name); err != nil {
			return err
		}
		l.trash = l.trash[1:]
	}
	return nil
}
