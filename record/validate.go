package record

import (
	"errors"
	"fmt"
	"math"
)

// defaultMaxDecompressed is Kafka's default of max.decompressed.message.bytes.
const defaultMaxDecompressed = math.MaxInt32 - 8

// maxRecordErrors bounds the list of refused records: a hostile batch has millions.
const maxRecordErrors = 1000

// ValidateOptions is what a topic demands of a produced batch. The timestamp bounds are taken literally: zero means that
// only NowMs itself is accepted.
type ValidateOptions struct {
	Codec             Codec // target codec; FromProducer keeps the producer's
	Level             int   // of the target codec where records are compressed anew; 0: its default
	FromProducer      bool
	CompactedTopic    bool // keys required
	LogAppendTime     bool
	NowMs             int64
	TimestampBeforeMs int64 // message.timestamp.before.max.ms
	TimestampAfterMs  int64 // message.timestamp.after.max.ms
	MaxBytes          int64 // max.message.bytes; 0: no limit
	MaxDecompressed   int64 // max.decompressed.message.bytes; 0: Kafka's default, 2147483639
	ClientWrite       bool  // refuse control batches, base offsets other than 0
	AllowZstd         bool  // Produce v7+
}

// RecordError points at one refused record (KIP-467).
type RecordError struct {
	Index  int32
	Reason string
}

// Validated is the outcome: Batch may be b itself, patched in place, or a re-encoded one in fresh memory.
type Validated struct {
	Batch            Batch
	MaxTimestamp     int64
	OffsetOfMaxDelta int32 // of the first record with MaxTimestamp, relative to the base offset; 0 where none has a timestamp
}

// Validate checks one produced batch as Kafka's UnifiedLog.analyzeAndValidateRecords and LogValidator do, in that order:
//
//  1. size field, magic, codec, base offset, size against MaxBytes, CRC, counts, control and idempotence fields;
//  2. every record, decompressed if need be: structure, key, timestamp;
//  3. max timestamp and timestamp type are recomputed and patched, whatever the header said;
//  4. where codec or offset deltas are not what they must be, the batch is encoded anew and its size checked again.
//
// b may alias a pooled frame: it is patched in place, but not before everything has been accepted. Base offset and leader
// epoch are the log's to set.
//
// Errors wrap one of ErrCorrupt, ErrInvalid, ErrUnsupported, ErrTooLarge or ErrTimestamp; where single records are at
// fault recErrs lists the first thousand of them. A batch whose CRC holds but whose records do not decode is ErrInvalid, not ErrCorrupt: sending it again
// would not help.
func Validate(b Batch, o ValidateOptions) (v Validated, recErrs []RecordError, err error) {
	if err := o.checkHeader(b); err != nil {
		return Validated{}, nil, err
	}
	limit := o.MaxDecompressed
	if limit <= 0 {
		limit = defaultMaxDecompressed
	}
	p, buf, err := b.payload(limit, ErrInvalid)
	if err != nil {
		return Validated{}, nil, err
	}
	defer buf.free()
	s, err := o.scan(b, p)
	if err != nil {
		return Validated{}, s.errs, err
	}

	maxTs, at := s.maxTs, s.maxAt
	attrs := b.Attributes() &^ (attrLogAppendTime | attrDeleteHorizon)
	if o.LogAppendTime {
		maxTs, at = o.NowMs, 0 // all records share it: the first has it
		attrs |= attrLogAppendTime
	}
	target := o.target(b)
	if target != b.Codec() || !s.consecutive {
		if b, err = o.recode(b, p, s.consecutive, target, attrs, maxTs); err != nil {
			return Validated{}, nil, err
		}
	} else if attrs != b.Attributes() || maxTs != b.MaxTimestamp() {
		b.setAttributes(attrs)
		b.setMaxTimestamp(maxTs)
		b.seal()
	}
	return Validated{Batch: b, MaxTimestamp: maxTs, OffsetOfMaxDelta: at}, nil, nil
}

// target is the codec to store b with. Control records are not compressed unless they came so.
func (o *ValidateOptions) target(b Batch) Codec {
	if o.FromProducer || b.Control() && b.Codec() == None {
		return b.Codec()
	}
	return o.Codec
}

// checkHeader is all that can be said without looking at the records.
func (o *ValidateOptions) checkHeader(b Batch) error {
	size, err := frame(b)
	switch {
	case errors.Is(err, ErrUnsupported):
		return fail(ErrInvalid, b, atMagic, "magic is not %d", magicV2) // Kafka's answer, for versions 0 and 1 too
	case errors.Is(err, ErrShort):
		return fail(ErrCorrupt, b, len(b), "batch is cut short")
	case err != nil:
		return err
	case size != len(b):
		return fail(ErrCorrupt, b, atSize, "%d bytes after the batch", len(b)-size)
	}
	c, target := b.Codec(), o.target(b)
	switch {
	case c > Zstd || target > Zstd:
		return fail(ErrUnsupported, b, atAttributes, "%s", max(c, target))
	case c == Zstd && !o.AllowZstd:
		return fail(ErrUnsupported, b, atAttributes, "zstd needs Produce version 7")
	case o.ClientWrite && b.BaseOffset() != 0:
		return fail(ErrInvalid, b, atBaseOffset, "base offset is not 0")
	case o.MaxBytes > 0 && int64(len(b)) > o.MaxBytes:
		return fail(ErrTooLarge, b, atSize, "%d bytes, at most %d are accepted", len(b), o.MaxBytes)
	}
	if got := b.checksum(); got != b.CRC() {
		return fail(ErrCorrupt, b, atCRC, "CRC is %08x, bytes have %08x", b.CRC(), got)
	}
	if at, reason := b.counts(); reason != "" {
		return fail(ErrInvalid, b, at, "%s", reason)
	}
	switch {
	case b.Count() == 0:
		return fail(ErrInvalid, b, atCount, "no records")
	case b.lastDelta() != b.Count()-1:
		return fail(ErrInvalid, b, atLastDelta, "last offset delta is %d with %d records", b.lastDelta(), b.Count())
	case o.ClientWrite && b.Control():
		return fail(ErrInvalid, b, atAttributes, "clients may not write control records")
	case b.Control() || b.ProducerID() < 0:
		return nil
	case b.ProducerEpoch() < 0:
		return fail(ErrInvalid, b, atProducerEpoch, "producer id %d with epoch %d", b.ProducerID(), b.ProducerEpoch())
	case b.BaseSequence() < 0:
		return fail(ErrInvalid, b, atBaseSequence, "producer id %d with base sequence %d", b.ProducerID(), b.BaseSequence())
	}
	return nil
}

// scanned is what a walk over the records of a produced batch found.
type scanned struct {
	maxTs       int64
	maxAt       int32 // index of the first record with maxTs
	consecutive bool  // offset deltas are 0, 1, 2, ...
	errs        []RecordError
	refused     int
	timestamps  bool // a timestamp was refused
}

// scan walks the decompressed records p of b. This is the hot path: it allocates nothing unless a record is refused.
func (o *ValidateOptions) scan(b Batch, p []byte) (scanned, error) {
	s := scanned{maxTs: -1, consecutive: true}
	base, count := b.BaseTimestamp(), b.Count()
	stamped := o.LogAppendTime && b.LogAppendTime() // a producer must not say so
	pos := 0
	var f fields
	for i := range count {
		if reason := f.parse(p, pos); reason != "" {
			return s, failRecord(ErrInvalid, b, i, pos, reason)
		}
		ts, ok := addDelta(base, f.tsDelta)
		if !ok {
			return s, failRecord(ErrInvalid, b, i, pos, "timestamp overflows")
		}
		pos = f.end
		if f.offDelta != i {
			s.consecutive = false
		}
		switch {
		case o.CompactedTopic && f.key.n < 0:
			s.refuse(i, "a record without key in a compacted topic")
		case stamped:
			s.timestamps = true
			s.refuse(i, "producers may not set the timestamp type to LogAppendTime")
		case !o.LogAppendTime && ts != -1 && !o.accepts(ts):
			s.timestamps = true
			s.refuseTimestamp(i, ts, o)
		}
		if ts > s.maxTs {
			s.maxTs, s.maxAt = ts, i
		}
	}
	switch {
	case pos != len(p):
		return s, failRecord(ErrInvalid, b, count, pos, "bytes left after the last record")
	case s.timestamps:
		return s, fail(ErrTimestamp, b, HeaderSize, "%d of %d records refused", s.refused, count)
	case s.refused > 0:
		return s, fail(ErrInvalid, b, HeaderSize, "%d of %d records refused", s.refused, count)
	}
	return s, nil
}

// accepts says whether ts is near enough to now. The differences are unsigned, so that no timestamp overflows them.
func (o *ValidateOptions) accepts(ts int64) bool {
	if ts > o.NowMs {
		return uint64(ts)-uint64(o.NowMs) <= uint64(max(o.TimestampAfterMs, 0))
	}
	return o.TimestampBeforeMs == math.MaxInt64 || uint64(o.NowMs)-uint64(ts) <= uint64(max(o.TimestampBeforeMs, 0))
}

func (s *scanned) refuse(i int32, reason string) {
	s.refused++
	if len(s.errs) < maxRecordErrors {
		s.errs = append(s.errs, RecordError{Index: i, Reason: reason})
	}
}

func (s *scanned) refuseTimestamp(i int32, ts int64, o *ValidateOptions) {
	if len(s.errs) == maxRecordErrors {
		s.refused++
		return
	}
	s.refuse(i, fmt.Sprintf("timestamp %d is more than %d ms before or %d ms after %d",
		ts, o.TimestampBeforeMs, o.TimestampAfterMs, o.NowMs))
}

// recode encodes the records p of b anew, into fresh memory. Records are copied as they are, but for wrong offset deltas.
func (o *ValidateOptions) recode(b Batch, p []byte, consecutive bool, target Codec, attrs int16, maxTs int64) (Batch, error) {
	if !consecutive {
		buf := newScratch()
		defer buf.free()
		buf.b = renumber(buf.b[:0], p, b.Count())
		p = buf.b
	}
	size := int64(HeaderSize)
	if target == None {
		size += int64(len(p))
		if err := o.checkRecoded(b, size); err != nil {
			return nil, err
		}
	}
	out := Batch(append(make([]byte, 0, size), b[:HeaderSize]...))
	out.setAttributes(attrs)
	out.setMaxTimestamp(maxTs)
	out, err := finish(out, 0, target, o.Level, p)
	if err != nil {
		return nil, err
	}
	return out, o.checkRecoded(b, int64(len(out)))
}

func (o *ValidateOptions) checkRecoded(b Batch, size int64) error {
	if o.MaxBytes > 0 && size > o.MaxBytes {
		return fail(ErrTooLarge, b, atSize, "%d bytes as stored, at most %d are accepted", size, o.MaxBytes)
	}
	return nil
}

// renumber appends the count records of p, which have been parsed before, with offset deltas 0, 1, 2, ...
func renumber(dst, p []byte, count int32) []byte {
	var f fields
	for i := range count {
		f.parse(p, f.end)
		delta := int64(i)
		dst = appendVarint(dst, int64(f.end-f.body-(f.offEnd-f.offAt)+varintSize(delta)))
		dst = append(dst, p[f.body:f.offAt]...)
		dst = appendVarint(dst, delta)
		dst = append(dst, p[f.offEnd:f.end]...)
	}
	return dst
}
