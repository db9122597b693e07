package tier

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"sync"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/record"
)

const (
	indexInterval  = 64 << 10 // bytes of data per index entry at least, ...
	indexEntries   = 8192     // ... and at most so many entries a segment
	appendTimesMax = 1 << 16  // append times a segment carries at most
	readBuffer     = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errNoBatches: the range to upload holds no record.
var errNoBatches = errors.New("no batches in the range")

// part is a range of the local log that becomes one segment object.
type part struct {
	base, end int64
	tail      bool
}

// segment is a segment object ready to be sent, any number of times, without being in memory: its batches stay in the
// local log's files, which its spans keep readable. release it.
type segment struct {
	entry manifest.Entry
	body  objstore.Body
	spans []localseg.Span

	first, last int64 // offsets of its records, inclusive
}

func (s *segment) release() {
	for _, sp := range s.spans {
		sp.Release()
	}
	s.spans = nil
}

// segmentOf is what a footer says beside the batches.
type segmentOf struct {
	cluster     string
	incarnation uint32
	epoch       int32
	topic       string
	partition   manifest.PartitionID
	chunkBytes  int64
	times       []timed // what is known better of append times than the log has it
}

// buildSegment reads the part once, checking every batch, and describes it. The bytes are read a second time when they are
// sent; the store compares them with the checksum of the first reading. A bad local batch is a *localseg.CorruptError: it
// never gets into the archive.
func buildSegment(ctx context.Context, log *localseg.Log, p part, of segmentOf) (_ *segment, err error) {
	s := &segment{}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if s.spans, err = spansOf(log, p.base, p.end); err != nil {
		return nil, err
	}
	sc := newScan(of.chunkBytes, s.spans)
	for i := range s.spans {
		if err := sc.span(ctx, &s.spans[i], p.end); err != nil {
			return nil, err
		}
	}
	if sc.data == 0 {
		return nil, errNoBatches
	}
	if sc.next < p.end && p.tail {
		p.end = sc.next // a batch straddles the end: it goes with the next part
	}
	f, err := sc.footer(log, p, of)
	if err != nil {
		return nil, err
	}
	s.seal(f, sc, p)
	return s, nil
}

// seal encodes the footer, and completes body and entry. The entry covers what was asked for, the footer what is there.
func (s *segment) seal(f *manifest.Footer, sc *scan, p part) {
	tail := f.Encode()
	s.body = objstore.Body{
		R:      newSpanReader(s.spans, sc.data, tail),
		Size:   sc.data + int64(len(tail)),
		CRC32C: crc32.Update(sc.crc, castagnoli, tail),
	}
	s.entry = manifest.Entry{
		Base: p.base, End: p.end, SizeBytes: s.body.Size, DataBytes: sc.data,
		LeaderEpoch: f.LeaderEpoch, MaxTimestamp: f.MaxTimestamp.Ms, Tail: p.tail, SHA256: f.SHA256,
	}
	s.first, s.last = f.Base, f.End-1
	n := len(f.AppendTimes)
	s.entry.FirstAppend, s.entry.LastAppend = f.AppendTimes[0].Ms, f.AppendTimes[n-1].LastMs()
}

// spansOf takes the file ranges of [base, end), oldest first.
func spansOf(log *localseg.Log, base, end int64) ([]localseg.Span, error) {
	var spans []localseg.Span
	for off := base; off < end; {
		sp, err := log.Read(off, end, int(^uint(0)>>1))
		if err != nil {
			for _, sp := range spans {
				sp.Release()
			}
			return nil, fmt.Errorf("read local log from %d: %w", off, err)
		}
		if sp.Size == 0 || sp.Next <= off {
			sp.Release()
			break
		}
		spans = append(spans, sp)
		off = sp.Next
	}
	return spans, nil
}

// scan is the one pass over a segment's batches.
type scan struct {
	chunkBytes int64
	every      int64 // index interval

	data  int64 // bytes so far
	first int64 // base offset of the first batch
	next  int64 // offset after the last batch
	count int64 // records
	crc   uint32
	sum   hash.Hash

	index   []manifest.IndexEntry
	indexed int64 // position of the last index entry
	chunks  []manifest.Chunk
	maxTS   int64
	maxAt   spanPos // the first batch that has maxTS
	maxSize int64
}

type spanPos struct {
	span *localseg.Span
	pos  int64
}

func newScan(chunkBytes int64, spans []localseg.Span) *scan {
	var total int64
	for _, sp := range spans {
		total += sp.Size
	}
	return &scan{chunkBytes: chunkBytes, every: max(indexInterval, total/indexEntries), sum: sha256.New(), maxTS: -1}
}

var readBuffers = sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }}

// span walks the batches of one file range that end at or before end.
func (sc *scan) span(ctx context.Context, sp *localseg.Span, end int64) error {
	pooled := readBuffers.Get().(*[]byte)
	buf := *pooled
	defer func() {
		if len(buf) <= 4*readBuffer {
			*pooled = buf
		}
		readBuffers.Put(pooled)
	}()
	for pos := int64(0); pos < sp.Size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(int64(len(buf)), sp.Size-pos)
		if _, err := io.ReadFull(io.NewSectionReader(sp, pos, n), buf[:n]); err != nil {
			return fmt.Errorf("read local log at byte %d: %w", sp.Pos+pos, err)
		}
		used, err := sc.batches(sp, pos, buf[:n], end)
		if err != nil {
			return err
		}
		if used < 0 {
			return nil // reached a batch that straddles end
		}
		if used == 0 {
			size, err := batchSize(buf[:n], sp.Size-pos)
			if err != nil {
				return sc.corrupt(sp, pos, err)
			}
			if size > int64(len(buf)) {
				buf = make([]byte, size)
			}
			continue
		}
		pos += used
	}
	return nil
}

// batchSize is the whole size of the batch that b begins with, which must be in the left bytes of the span.
func batchSize(b []byte, left int64) (int64, error) {
	if len(b) < 12 {
		return 0, record.ErrShort
	}
	size := 12 + int64(int32(binary.BigEndian.Uint32(b[8:])))
	if size < record.HeaderSize {
		return 0, record.ErrCorrupt
	}
	if size > left || int64(len(b)) >= size {
		return 0, record.ErrShort
	}
	return size, nil
}

// batches takes whole batches from b, which is at byte pos of the span. It returns the bytes used, -1 at the end.
func (sc *scan) batches(sp *localseg.Span, pos int64, b []byte, end int64) (int64, error) {
	used := int64(0)
	for rest := b; len(rest) > 0; {
		batch, after, err := record.Next(rest)
		if errors.Is(err, record.ErrShort) {
			return used, nil
		}
		if err == nil {
			err = batch.Check()
		}
		if err == nil && (batch.BaseOffset() < sc.next || batch.NextOffset() <= batch.BaseOffset()) {
			err = fmt.Errorf("%w: offsets [%d, %d) after %d", record.ErrCorrupt, batch.BaseOffset(), batch.NextOffset(), sc.next)
		}
		if err != nil {
			return 0, sc.corrupt(sp, pos+used, err)
		}
		if batch.NextOffset() > end {
			return -1, nil
		}
		sc.add(batch, spanPos{sp, pos + used})
		used += int64(len(batch))
		rest = after
	}
	return used, nil
}

func (sc *scan) corrupt(sp *localseg.Span, pos int64, err error) error {
	return &localseg.CorruptError{File: sp.File.Name(), Pos: sp.Pos + pos, Reason: err}
}

func (sc *scan) add(b record.Batch, at spanPos) {
	if ts := b.MaxTimestamp(); ts > sc.maxTS || sc.data == 0 {
		sc.maxTS, sc.maxAt, sc.maxSize = ts, at, int64(len(b))
	}
	if len(sc.index) == 0 || sc.data-sc.indexed >= sc.every {
		sc.index = append(sc.index, manifest.IndexEntry{Offset: b.BaseOffset(), Pos: sc.data, MaxTimestamp: sc.maxTS})
		sc.indexed = sc.data
	}
	if sc.data == 0 {
		sc.first = b.BaseOffset()
	}
	if n := len(sc.chunks); n == 0 || sc.chunks[n-1].Size+int64(len(b)) > sc.chunkBytes {
		sc.chunks = append(sc.chunks, manifest.Chunk{Pos: sc.data, First: b.BaseOffset()})
	}
	c := &sc.chunks[len(sc.chunks)-1]
	c.Size += int64(len(b))
	c.CRC32C = crc32.Update(c.CRC32C, castagnoli, b)
	sc.crc = crc32.Update(sc.crc, castagnoli, b)
	sc.sum.Write(b)
	sc.data += int64(len(b))
	sc.next = b.NextOffset()
	sc.count += int64(b.Count())
}

// footer completes the description from what the log knows beside its bytes.
func (sc *scan) footer(log *localseg.Log, p part, of segmentOf) (*manifest.Footer, error) {
	f := &manifest.Footer{
		Cluster: of.cluster, Partition: of.partition, TopicName: of.topic, Base: sc.first, End: sc.next,
		LeaderEpoch: of.epoch, Incarnation: of.incarnation, DataBytes: sc.data, Records: sc.count,
		Index: sc.index, Chunks: sc.chunks, SHA256: [32]byte(sc.sum.Sum(nil)),
	}
	var err error
	if f.MaxTimestamp, err = sc.maxTimestamp(); err != nil {
		return nil, err
	}
	if f.AppendTimes, err = log.AppendTimes(p.base, p.end); err != nil {
		return nil, fmt.Errorf("append times of [%d, %d): %w", p.base, p.end, err)
	}
	f.AppendTimes = within(withArchived(f.AppendTimes, of.times), f.Base, f.End)
	f.AppendTimes, f.AppendResolutionMs = manifest.CoarsenAppendTimes(f.AppendTimes, appendTimesMax)
	if len(f.AppendTimes) == 0 {
		return nil, fmt.Errorf("append times of [%d, %d) are not known", f.Base, f.End)
	}
	// All transactions that touch [base, end) are decided, since end is at most the last stable offset: so the list is
	// complete although some of their markers lie in later segments.
	if f.Aborted, err = log.Aborted(p.base, p.end); err != nil {
		return nil, fmt.Errorf("aborted transactions of [%d, %d): %w", p.base, p.end, err)
	}
	f.Epochs = epochsBelow(log.Epochs(), p.end)
	if f.Producers, err = log.ProducersAt(p.end); err != nil {
		return nil, fmt.Errorf("producer snapshot at %d: %w", p.end, err)
	}
	return f, nil
}

// maxTimestamp finds the first record with the largest timestamp by decoding the one batch that has it.
func (sc *scan) maxTimestamp() (record.AppendTime, error) {
	b := make(record.Batch, sc.maxSize)
	if _, err := io.ReadFull(io.NewSectionReader(sc.maxAt.span, sc.maxAt.pos, sc.maxSize), b); err != nil {
		return record.AppendTime{}, fmt.Errorf("read local log: %w", err)
	}
	out := record.AppendTime{Ms: sc.maxTS, Offset: b.BaseOffset()}
	found, err := firstAtOrAfter(b, sc.maxTS, 0, maxOffset)
	if err != nil {
		return out, sc.corrupt(sc.maxAt.span, sc.maxAt.pos, err)
	}
	if found.Offset >= 0 {
		out.Offset = found.Offset
	}
	return out, nil
}

// within makes the list begin at base: the stretch that covers it, then what follows below end.
func within(list []record.AppendTime, base, end int64) []record.AppendTime {
	out := make([]record.AppendTime, 0, len(list))
	for _, a := range list {
		if a.Offset >= end {
			break
		}
		if a.Offset <= base {
			a.Offset = base
			out = out[:0]
		}
		out = append(out, a)
	}
	return out
}

func epochsBelow(list []record.Epoch, end int64) []record.Epoch {
	n := len(list)
	for n > 0 && list[n-1].Start >= end {
		n--
	}
	return list[:n:n]
}

// spanReader is the object's bytes: the spans one after the other, cut at data bytes, then the footer.
type spanReader struct {
	spans  []localseg.Span
	starts []int64 // of each span in the object
	data   int64
	footer *bytes.Reader
}

func newSpanReader(spans []localseg.Span, data int64, footer []byte) *spanReader {
	r := &spanReader{spans: spans, data: data, footer: bytes.NewReader(footer)}
	var pos int64
	for _, sp := range spans {
		r.starts = append(r.starts, pos)
		pos += sp.Size
	}
	return r
}

// ReadAt implements io.ReaderAt; it may be called concurrently.
func (r *spanReader) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for i := 0; i < len(r.spans) && done < len(p); i++ {
		at := off + int64(done)
		if at >= r.data {
			break
		}
		end := min(r.starts[i]+r.spans[i].Size, r.data)
		if at >= end {
			continue
		}
		n, err := r.spans[i].ReadAt(p[done:done+int(min(int64(len(p)-done), end-at))], at-r.starts[i])
		done += n
		if err != nil && (err != io.EOF || at+int64(n) < end) {
			return done, err
		}
	}
	if done == len(p) {
		return done, nil
	}
	n, err := r.footer.ReadAt(p[done:], off+int64(done)-r.data)
	return done + n, err
}
