package localseg

import (
	"fmt"
	"io"

	"github.com/varvelog/varve/internal/vfs"
)

// Span is a refcounted file range of whole batches. Release must be called once; until then the file stays readable even
// if its segment is deleted. The zero Span is empty and needs no Release. Truncate takes bytes away from under a Span.
type Span struct {
	File vfs.File
	Pos  int64
	Size int64
	Base int64 // base offset of the first batch
	Next int64 // offset after the last record in it

	h *handle
}

// ReadAt reads from the span's bytes, off counted from its beginning; io.EOF at its end.
func (s Span) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= s.Size {
		return 0, io.EOF
	}
	var eof error
	if rest := s.Size - off; int64(len(p)) > rest {
		p, eof = p[:rest], io.EOF
	}
	n, err := s.File.ReadAt(p, s.Pos+off)
	if err == nil {
		err = eof
	}
	return n, err
}

// Release lets the file go.
func (s Span) Release() {
	if s.h != nil {
		s.h.release()
	}
}

// Read returns a file range that begins with the batch holding off, or the next one after it, ends before end, and has at most
// max bytes but always one whole batch. Empty if off == end or off == LEO, or if the batch reaches beyond end. It never
// crosses a segment. ErrOffsetOutOfRange, ErrBelowLocal, *CorruptError.
func (l *Log) Read(off, end int64, max int) (Span, error) {
	return retryGone(l, func() (Span, error) { return l.read(off, end, int64(max)) })
}

func (l *Log) read(off, end, max int64) (Span, error) {
	if err := l.usable(); err != nil {
		return Span{}, err
	}
	leo := l.leo.Load() // before the segments: they reach at least as far
	start := l.logStart.Load()
	if off < start || off > leo {
		return Span{}, fmt.Errorf("read at %d of [%d, %d]: %w", off, start, leo, ErrOffsetOutOfRange)
	}
	if end = min(end, leo); off >= end {
		return Span{Base: off, Next: off}, nil
	}
	segs := l.segments()
	i := segmentAt(segs, off)
	if i < 0 && off < l.logStart.Load() { // deleted since we looked
		return Span{}, fmt.Errorf("read at %d: %w", off, ErrOffsetOutOfRange)
	}
	if i < 0 {
		return Span{}, fmt.Errorf("read at %d: %w", off, ErrBelowLocal)
	}
	for ; i < len(segs) && segs[i].base < end; i++ {
		s, err := l.readSegment(segs[i], off, end, max)
		if err != io.EOF {
			return s, err
		}
	}
	return Span{Base: off, Next: off}, nil
}

// readSegment gives io.EOF if the segment has no batch at or after off.
func (l *Log) readSegment(s *segment, off, end, max int64) (Span, error) {
	h, x, err := l.open(s)
	if err != nil {
		return Span{}, err
	}
	first, err := s.find(h.f, x.position(off-s.base), off)
	if err != nil {
		h.release()
		return Span{}, err
	}
	if first.last >= end {
		h.release()
		return Span{Base: off, Next: off}, nil
	}
	span := Span{File: h.f, Pos: first.pos, Base: first.base, h: h}
	size, next := s.bounds()
	if next <= end && size-first.pos <= max {
		span.Size, span.Next = size-first.pos, next
		return span, nil
	}
	stop, next, err := s.fit(h.f, x, first, size, end, first.pos+max)
	if err != nil {
		h.release()
		return Span{}, err
	}
	span.Size, span.Next = stop-first.pos, next
	return span, nil
}

// fit finds the byte and the offset at which the batches from first on end, not above limit nor end.
func (s *segment) fit(f vfs.File, x *indexes, first head, size, end, limit int64) (stop, next int64, err error) {
	stop, next = first.pos+first.size, first.last+1
	buf := scanBuffers.Get().(*[]byte)
	defer scanBuffers.Put(buf)
	_, segEnd := s.bounds()
	c := scanner{f: f, base: s.base, end: segEnd, size: size, pos: stop, buf: *buf}
	jumped := false
	if p := x.lastBelow(limit, end-s.base); p > stop && p < size {
		c.pos, stop, jumped = p, p, true
	}
	for stop < size {
		h, err := c.next()
		if err != nil {
			return 0, 0, err
		}
		if jumped {
			next, jumped = h.base, false
		}
		if h.pos+h.size > limit || h.last >= end {
			break
		}
		stop, next = h.pos+h.size, h.last+1
	}
	return stop, next, nil
}
