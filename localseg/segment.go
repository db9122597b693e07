package localseg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/record"
)

// segment is one file of batches and its indexes. The last segment of a log is the active one.
type segment struct {
	dir  string
	base int64
	ix   atomic.Pointer[indexes] // nil: not in memory. Dropped with the file of a closed segment.

	mu   sync.Mutex
	size int64 // guarded by mu: bytes of whole batches
	next int64 // guarded by mu: offset after the last record

	active  atomic.Bool
	dirty   bool                    // owned by the writer: bytes since the last flush
	firstMs int64                   // owned by the writer: timestamp of the first batch; noFirstMs: not read yet
	mtimeMs int64                   // owned by Open: when the file was last written
	noTxns  atomic.Bool             // its transaction index is known to be empty
	sum     atomic.Pointer[summary] // of a closed segment, once known

	handle *handle // guarded by the FileCache
	gone   bool    // guarded by the FileCache: closed or deleted, not to be opened again
}

const noFirstMs = -2

func newSegment(dir string, base int64) *segment {
	return &segment{dir: dir, base: base, next: base, firstMs: noFirstMs}
}

func (s *segment) name(ext string) string { return fileName(s.dir, s.base, ext) }

// bounds are the bytes and the offset that the segment ends at, as a pair.
func (s *segment) bounds() (size, next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size, s.next
}

func (s *segment) setBounds(size, next int64) {
	s.mu.Lock()
	s.size, s.next = size, next
	s.mu.Unlock()
}

// Positions of fields in a batch's header.
const (
	lengthEnd    = 12 // base offset and length; the length counts what follows
	epochPos     = 12
	magicPos     = 16
	deltaPos     = 23 // last offset delta
	baseMsPos    = 27
	maxMsPos     = 35
	minBatchSize = record.HeaderSize
)

var errBatchSize = errors.New("batch length is not possible")

// head is what look-ups need of a batch.
type head struct {
	pos, size  int64
	base, last int64
	baseMs     int64
	maxMs      int64
}

// parseHead reads the header at pos of a segment that begins at base and ends at end and size. It trusts no field.
func parseHead(b []byte, pos, base, end, size int64) (head, error) {
	h := head{
		pos:    pos,
		size:   lengthEnd + int64(int32(binary.BigEndian.Uint32(b[8:]))),
		base:   int64(binary.BigEndian.Uint64(b)),
		baseMs: int64(binary.BigEndian.Uint64(b[baseMsPos:])),
		maxMs:  int64(binary.BigEndian.Uint64(b[maxMsPos:])),
	}
	delta := int32(binary.BigEndian.Uint32(b[deltaPos:]))
	h.last = h.base + int64(delta)
	if h.size < minBatchSize || h.size > size-pos {
		return h, errBatchSize
	}
	if b[magicPos] != 2 || delta < 0 || h.base < base || h.last >= end {
		return h, record.ErrCorrupt
	}
	return h, nil
}

// scanner steps over batch headers of a segment, reading no more than it must.
type scanner struct {
	f               vfs.File
	base, end, size int64
	pos             int64
	buf             []byte
	at              int64 // file position of buf[0]
	have            int
}

const scanBytes = 4096

var scanBuffers = sync.Pool{New: func() any { b := make([]byte, scanBytes); return &b }}

// next returns the header at the scanner's position and steps over it; io.EOF at the end.
func (c *scanner) next() (head, error) {
	if c.pos >= c.size {
		return head{}, io.EOF
	}
	if c.size-c.pos < minBatchSize {
		return head{}, &CorruptError{c.f.Name(), c.pos, record.ErrShort}
	}
	if c.pos < c.at || c.pos+minBatchSize > c.at+int64(c.have) {
		n := min(int64(len(c.buf)), c.size-c.pos)
		got, err := c.f.ReadAt(c.buf[:n], c.pos)
		if int64(got) < n {
			if err == nil || err == io.EOF {
				err = &CorruptError{c.f.Name(), c.pos + int64(got), io.ErrUnexpectedEOF}
			}
			return head{}, err
		}
		c.at, c.have = c.pos, got
	}
	h, err := parseHead(c.buf[c.pos-c.at:], c.pos, c.base, c.end, c.size)
	if err != nil {
		return h, &CorruptError{c.f.Name(), c.pos, err}
	}
	c.pos += h.size
	return h, nil
}

// find returns the first batch from pos on whose last offset is at least off; io.EOF if there is none.
func (s *segment) find(f vfs.File, pos, off int64) (head, error) {
	size, next := s.bounds()
	buf := scanBuffers.Get().(*[]byte)
	defer scanBuffers.Put(buf)
	c := scanner{f: f, base: s.base, end: next, size: size, pos: pos, buf: *buf}
	for {
		h, err := c.next()
		if err != nil || h.last >= off {
			return h, err
		}
	}
}

const (
	walkBytes     = 256 << 10
	walkBytesKept = 1 << 20
)

var walkBuffers = sync.Pool{New: func() any { b := make([]byte, walkBytes); return &b }}

var errStop = errors.New("stop")

// walk calls fn with each whole batch in the bytes [pos, size) of f, until fn returns an error; errStop ends it without
// one. at is where it stopped. Bytes that are no batch give a *CorruptError; b is valid during fn only.
func walk(f vfs.File, pos, size int64, fn func(pos int64, b record.Batch) error) (at int64, err error) {
	bp := walkBuffers.Get().(*[]byte)
	buf := *bp
	defer func() {
		if len(buf) <= walkBytesKept {
			*bp = buf
			walkBuffers.Put(bp)
		}
	}()
	for have := 0; pos < size; {
		n := min(int64(len(buf)), size-pos)
		got, err := f.ReadAt(buf[have:n], pos+int64(have))
		if have += got; int64(have) < n {
			if err == nil || err == io.EOF {
				err = &CorruptError{f.Name(), pos + int64(have), io.ErrUnexpectedEOF}
			}
			return pos, err
		}
		rest := buf[:have]
		for len(rest) >= lengthEnd {
			want := lengthEnd + int64(int32(binary.BigEndian.Uint32(rest[8:])))
			if want < minBatchSize || want > size-pos {
				return pos, &CorruptError{f.Name(), pos, errBatchSize}
			}
			if want > int64(len(rest)) {
				if want > int64(len(buf)) { // bounded by the file, as checked above
					grown := make([]byte, want)
					copy(grown, rest)
					buf, rest = grown, grown[:len(rest)]
				}
				break
			}
			if err := fn(pos, record.Batch(rest[:want:want])); err != nil {
				if errors.Is(err, errStop) {
					err = nil
				}
				return pos, err
			}
			pos, rest = pos+want, rest[want:]
		}
		if size-pos > 0 && size-pos < lengthEnd {
			return pos, &CorruptError{f.Name(), pos, record.ErrShort}
		}
		have = copy(buf, rest)
	}
	return pos, nil
}

func (s *segment) String() string { return fmt.Sprintf("segment %d", s.base) }
