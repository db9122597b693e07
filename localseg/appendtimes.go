package localseg

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"sort"

	"github.com/varvelog/varve/record"
)

const (
	appendEntrySize = 20
	// appendsWaitMs is for how long, in append time, entries wait in memory: a process that is killed loses so much of them.
	appendsWaitMs = 1000
	// mtimeSlackMs: the file system's clock may be a tick of the kernel behind.
	mtimeSlackMs = 10
)

// appendEntry is a stretch of batches: those from the end of the entry before it, or the segment's base, up to end were
// appended from first to first+span, ms.
type appendEntry struct {
	first int64
	span  uint32
	end   uint32 // relative to the segment's base; 0: no entry
}

func (e appendEntry) last() int64 { return e.first + int64(e.span) }

// appendTimes is the append time index of a segment. A week of one batch every 20 ms has 30 million entries, so what is in
// the file is not in memory. Changed by the writer, or who loads it; readers hold the lock of the indexes.
type appendTimes struct {
	first     int64         // ms, of the first batch; -1: none
	filed     appendEntry   // the last one in the file
	inFile    int           // entries in the file
	waiting   []appendEntry // for the file
	open      appendEntry   // still grows
	copied    int64         // offset at which the leader's stretch begins that open is a copy of, plus 1; 0: of none
	writtenMs int64         // append time at the last write to the file
}

// note takes batches that end at end. It says whether a stretch was closed.
func (a *appendTimes) note(ms int64, end uint32) (closed bool) {
	ms = max(ms, a.last())
	a.copied = 0
	if a.open.end != 0 && ms-a.open.first < record.AppendResolutionMs {
		a.open.span, a.open.end = uint32(ms-a.open.first), end
		return false
	}
	closed = a.close()
	a.open = appendEntry{first: ms, end: end}
	if a.first < 0 {
		a.first, a.writtenMs = ms, ms
	}
	return closed
}

// copy takes over what a leader's stretches say of batches that a follower appends; they cover them. A stretch that goes on is the same
// one here, whatever parts it comes in. All that was appended before had been by floor.
func (a *appendTimes) copy(batches []record.Batch, base int64, times []AppendTime, floor int64) (closed bool) {
	for _, b := range batches {
		for len(times) > 1 && times[1].Offset <= b.BaseOffset() {
			times = times[1:]
		}
		t, end := times[0], uint32(b.NextOffset()-base)
		if a.open.end != 0 && a.copied == t.Offset+1 {
			a.open.span, a.open.end = max(a.open.span, spanTo(a.open.first, t.LastMs())), end
			continue
		}
		closed = a.close() || closed
		first := max(t.Ms, a.last(), floor)
		a.open, a.copied = appendEntry{first, spanTo(first, t.LastMs()), end}, t.Offset+1
		if a.first < 0 {
			a.first, a.writtenMs = first, first
		}
		floor = a.open.last()
	}
	return closed
}

// spanTo is from first to last, ms, within what an entry can say.
func spanTo(first, last int64) uint32 { return uint32(min(max(last-first, 0), math.MaxUint32)) }

// close ends the open stretch: the next batch begins another one.
func (a *appendTimes) close() bool {
	if a.open.end == 0 {
		return false
	}
	a.waiting = append(a.waiting, a.open)
	a.open = appendEntry{}
	return true
}

// due says whether the entries that wait are to be written. Those of a segment's first second are not: until then the
// file's modification time tells as much to a recovery, and a new partition costs a file less.
func (a *appendTimes) due(nowMs int64) bool {
	return nowMs-a.writtenMs >= appendsWaitMs || len(a.waiting)*appendEntrySize >= persistEvery
}

func (a *appendTimes) count() int { return a.inFile + len(a.waiting) }

// newest is the last entry, or none.
func (a *appendTimes) newest() appendEntry {
	if a.open.end != 0 {
		return a.open
	}
	if n := len(a.waiting); n > 0 {
		return a.waiting[n-1]
	}
	return a.filed
}

// last is the time of the last batch, -1: none.
func (a *appendTimes) last() int64 {
	if e := a.newest(); e.end != 0 {
		return e.last()
	}
	return -1
}

// cover adds a stretch up to end of which only bounds are known: it came after what is there, and at latest at the latest.
func (a *appendTimes) cover(end uint32, latest int64) {
	t := record.AppendTime{Ms: max(latest, 1)}
	if last := a.last(); last > 0 {
		t.Ms = last
	}
	t = t.Until(max(latest, t.Ms))
	if a.first < 0 {
		a.first = t.Ms
	}
	a.waiting = append(a.waiting, appendEntry{t.Ms, t.SpanMs, end})
}

func encodeAppends(b []byte, list []appendEntry) []byte {
	for _, e := range list {
		at := len(b)
		b = binary.BigEndian.AppendUint64(b, uint64(e.first))
		b = binary.BigEndian.AppendUint32(b, e.span)
		b = binary.BigEndian.AppendUint32(b, e.end)
		b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
	}
	return b
}

// decodeAppend reads one entry, which follows prev. ok: it is one.
func decodeAppend(b []byte, prev appendEntry) (e appendEntry, ok bool) {
	if len(b) < appendEntrySize || binary.BigEndian.Uint32(b[16:]) != crc32.Checksum(b[:16], castagnoli) {
		return e, false
	}
	e = appendEntry{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])}
	if e.first <= 0 || e.first > math.MaxInt64-math.MaxUint32 || e.end <= prev.end || prev.end != 0 && e.first < prev.last() {
		return appendEntry{}, false
	}
	return e, true
}

// scanAppends reads entries i to n of the file, which follow prev, until fn says stop or one is bad. At the end it says how
// many were good.
func scanAppends(f io.ReaderAt, i, n int, prev appendEntry, fn func(appendEntry) (more bool)) (good int, err error) {
	bp := scanBuffers.Get().(*[]byte)
	defer scanBuffers.Put(bp)
	buf := (*bp)[:len(*bp)/appendEntrySize*appendEntrySize]
	for i < n {
		b := buf[:min(len(buf), (n-i)*appendEntrySize)]
		got, err := f.ReadAt(b, int64(i)*appendEntrySize)
		if err != nil && err != io.EOF {
			return good, err
		}
		for b = b[:got]; len(b) > 0; b = b[appendEntrySize:] {
			e, ok := decodeAppend(b, prev)
			if !ok {
				return good, nil
			}
			good++
			if !fn(e) {
				return good, nil
			}
			prev = e
			i++
		}
		if err == io.EOF {
			break
		}
	}
	return good, nil
}

// loadAppends reads through a segment's append times, keeping none. The file is cut where it stops making sense, or goes on beyond
// the segment's end at next. What it does not cover, because entries were still in memory when the process was killed, or
// are lost, gets bounds: after all that is known, and before latest, or if that is negative before the segment was last written
// to. So a cut by time leaves such records out until all of them had surely been appended.
func (l *Log) loadAppends(s *segment, x *indexes, next, latest int64) error {
	a := appendTimes{first: -1}
	limit := uint32(min(next-s.base, math.MaxInt32+1))
	size, err := l.readAppends(s, &a, limit)
	if err != nil {
		return err
	}
	if keep := int64(a.inFile) * appendEntrySize; size > keep { // synced: they must not come back for other batches
		l.info("append times are cut", "segment", s.base, "bytes", size-keep)
		if err := cutFile(l.fs, s.name(extAppendTime), keep, true); err != nil {
			return err
		}
	}
	if a.newest().end < limit {
		if latest < 0 {
			info, err := l.fs.Stat(s.name(extLog))
			if err != nil {
				return err
			}
			latest = info.ModTime().UnixMilli() + mtimeSlackMs
		}
		a.cover(limit, latest)
	}
	x.appends = a
	if size >= 0 && len(a.waiting) == 0 {
		return nil
	}
	return l.persistAppends(s, x)
}

// readAppends takes what is good of the file, up to limit. size is that of the file, -1: it is not there.
func (l *Log) readAppends(s *segment, a *appendTimes, limit uint32) (size int64, err error) {
	f, err := l.fs.OpenFile(s.name(extAppendTime), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if size, err = f.Size(); err != nil {
		return 0, err
	}
	_, err = scanAppends(f, 0, int(size/appendEntrySize), appendEntry{}, func(e appendEntry) bool {
		if a.first < 0 {
			a.first = e.first
		}
		if e.end > limit { // the log was cut inside the stretch
			if a.filed.end < limit {
				e.end = limit
				a.waiting = append(a.waiting, e)
			}
			return false
		}
		a.filed = e
		a.inFile++
		return true
	})
	if limit == 0 {
		a.first = -1
	}
	return size, err
}

// persistAppends writes the entries that wait, and makes the file if it is not there. Called by the writer, or who loads.
func (l *Log) persistAppends(s *segment, x *indexes) error {
	a := &x.appends
	f, err := l.fs.OpenFile(s.name(extAppendTime), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	n := len(a.waiting)
	if n > 0 {
		_, err = f.WriteAt(encodeAppends(make([]byte, 0, n*appendEntrySize), a.waiting), int64(a.inFile)*appendEntrySize)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil || n == 0 {
		return err
	}
	x.mu.Lock()
	a.writtenMs = a.last()
	a.filed = a.waiting[n-1]
	a.inFile += n
	a.waiting = a.waiting[:0]
	x.mu.Unlock()
	return nil
}

// stretches lists what covers [from, to) of one segment.
func (l *Log) stretches(s *segment, x *indexes, from, to int64) ([]AppendTime, error) {
	x.mu.RLock()
	a := x.appends
	a.waiting = append([]appendEntry(nil), a.waiting...)
	x.mu.RUnlock()
	c := collector{base: s.base, from: from, to: to}
	if a.inFile > 0 && s.base+int64(a.filed.end) > from {
		if err := l.readStretches(s, &a, &c); err != nil {
			return nil, err
		}
	}
	c.begin = a.filed.end
	for _, e := range a.waiting {
		c.add(e)
	}
	if a.open.end != 0 {
		c.add(a.open)
	}
	return c.out, nil
}

// collector makes stretches with absolute offsets of entries.
type collector struct {
	base, from, to int64
	begin          uint32 // of the next entry
	out            []AppendTime
}

// add says whether more is wanted.
func (c *collector) add(e appendEntry) (more bool) {
	begin := c.base + int64(c.begin)
	c.begin = e.end
	if begin >= c.to {
		return false
	}
	if c.base+int64(e.end) > c.from {
		c.out = append(c.out, AppendTime{Ms: e.first, Offset: begin, SpanMs: e.span})
	}
	return true
}

// readStretches reads those in the file. Entries that have been good when the segment was loaded and are not any more, or are
// gone since the log is being truncated, are one stretch with bounds.
func (l *Log) readStretches(s *segment, a *appendTimes, c *collector) error {
	f, err := l.fs.OpenFile(s.name(extAppendTime), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [appendEntrySize]byte
	at := func(i int) appendEntry { // bad: end 0
		if n, err := f.ReadAt(b[:], int64(i)*appendEntrySize); n < len(b) && err != nil {
			return appendEntry{}
		}
		e, _ := decodeAppend(b[:], appendEntry{})
		return e
	}
	i := sort.Search(a.inFile, func(i int) bool {
		e := at(i)
		return e.end == 0 || c.base+int64(e.end) > c.from
	})
	prev := appendEntry{first: a.first}
	if i > 0 {
		prev = at(i - 1)
	}
	c.begin = prev.end
	more := true
	good, err := scanAppends(f, i, a.inFile, prev, func(e appendEntry) bool {
		prev, more = e, c.add(e)
		return more
	})
	if err != nil || !more || i+good == a.inFile {
		return err
	}
	t := record.AppendTime{Ms: max(prev.last(), a.first)}.Until(a.filed.last())
	c.add(appendEntry{t.Ms, t.SpanMs, a.filed.end})
	return nil
}
