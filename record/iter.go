package record

import "math"

// Record is one decoded record; its slices alias the (decompressed) batch.
type Record struct {
	Offset    int64
	Timestamp int64  // ms; the batch's max timestamp where LogAppendTime
	Key       []byte // nil: null
	Value     []byte // nil: null
	Headers   []Header
}

// Header is one header of a record. Value nil is null.
type Header struct {
	Key   string
	Value []byte
}

// Records walks the records of a batch, decompressing into a pooled buffer of at most limit bytes; limit does not matter
// for an uncompressed batch. Nothing is trusted but the header's HeaderSize bytes being there.
//
//	it := b.Records(limit)
//	for it.Next() { r := it.Record() }
//	it.Err(); it.Close()
//
// Errors: ErrTooLarge beyond the limit, ErrUnsupported for the codec, else ErrCorrupt.
func (b Batch) Records(limit int64) *Iter {
	it := &Iter{b: b, logAppendTime: b.LogAppendTime(), baseOffset: b.BaseOffset(), baseTimestamp: b.BaseTimestamp(), last: -1}
	if at, reason := b.counts(); reason != "" {
		it.err = fail(ErrCorrupt, b, at, "%s", reason)
		return it
	}
	it.p, it.buf, it.err = b.payload(limit, ErrCorrupt)
	return it
}

// Iter is a walk over the records of one batch. Not for concurrent use.
type Iter struct {
	b             Batch
	p             []byte   // the records, decompressed
	buf           *scratch // owns p; nil where p aliases b
	f             fields
	i             int32 // records read
	last          int32 // offset delta of the last record
	baseOffset    int64
	baseTimestamp int64
	timestamp     int64
	logAppendTime bool
	err           error
}

// Next moves to the next record. False at the end, or on an error, which Err tells.
func (it *Iter) Next() bool {
	if it.err != nil || it.b == nil {
		return false
	}
	pos := it.f.end
	if it.i == it.b.Count() {
		if pos != len(it.p) {
			it.err = failRecord(ErrCorrupt, it.b, it.i, pos, "bytes left after the last record")
		}
		return false
	}
	reason := it.f.parse(it.p, pos)
	if reason == "" && (it.f.offDelta <= it.last || it.f.offDelta > it.b.lastDelta()) {
		reason = "offset out of order"
	}
	if reason == "" {
		var ok bool
		if it.timestamp, ok = addDelta(it.baseTimestamp, it.f.tsDelta); !ok {
			reason = "timestamp overflows"
		}
	}
	if reason != "" {
		it.err = failRecord(ErrCorrupt, it.b, it.i, pos, reason)
		return false
	}
	if it.logAppendTime {
		it.timestamp = it.b.MaxTimestamp()
	}
	it.last = it.f.offDelta
	it.i++
	return true
}

// Record decodes the current record, headers too. Its slices are valid until Close and must not be written to. Key
// strings are copies, so a record of nothing but headers costs up to 24 times its bytes.
func (it *Iter) Record() Record {
	return Record{
		Offset:    it.Offset(),
		Timestamp: it.timestamp,
		Key:       it.Key(),
		Value:     it.f.val.of(it.p),
		Headers:   it.f.decodeHeaders(it.p),
	}
}

// Offset is the current record's, without decoding the rest.
func (it *Iter) Offset() int64 { return it.baseOffset + int64(it.f.offDelta) }

// Timestamp is the current record's, in ms, without decoding the rest.
func (it *Iter) Timestamp() int64 { return it.timestamp }

// Key is the current record's, nil for null, without decoding the rest; valid until Close.
func (it *Iter) Key() []byte { return it.f.key.of(it.p) }

// Tombstone says that the current record's value is null.
func (it *Iter) Tombstone() bool { return it.f.val.n < 0 }

// Err is the first error, nil if all records were read.
func (it *Iter) Err() error { return it.err }

// Close gives the buffer back; records read before are invalid from here on. May be called twice.
func (it *Iter) Close() {
	it.buf.free()
	it.buf, it.p, it.b = nil, nil, nil
}

// payload is the decompressed records, and the buffer to free when they are no longer used (nil if they alias b).
// kind is the sentinel of bytes that the codec refuses.
func (b Batch) payload(limit int64, kind error) ([]byte, *scratch, error) {
	c := b.Codec()
	if c == None {
		return b[HeaderSize:], nil, nil
	}
	if len(b) == HeaderSize && b.Count() == 0 {
		return nil, nil, nil // emptied by compaction; the attributes stay
	}
	buf := newScratch()
	p, err := c.decompress(buf.b[:0], b[HeaderSize:], int(min(max(limit, 0), math.MaxInt32)))
	buf.b = p
	if err != nil {
		buf.free()
		return nil, nil, failCodec(kind, b, err)
	}
	return p, buf, nil
}

// addDelta adds a timestamp delta; false if the sum is not an int64.
func addDelta(base, delta int64) (int64, bool) {
	s := base + delta
	return s, (s > base) == (delta > 0)
}
