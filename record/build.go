package record

import (
	"encoding/binary"
	"math"
)

// BatchOptions are the header fields of a batch to build.
type BatchOptions struct {
	BaseOffset    int64
	LeaderEpoch   int32
	Codec         Codec
	Level         int   // of the codec, as in compression.<codec>.level; 0: its default
	ProducerID    int64 // -1: none
	ProducerEpoch int16
	BaseSequence  int32
	Transactional bool
	Control       bool
	LogAppendTime bool
}

func (o BatchOptions) attributes() int16 {
	a := int16(o.Codec)
	if o.Transactional {
		a |= attrTransactional
	}
	if o.Control {
		a |= attrControl
	}
	if o.LogAppendTime {
		a |= attrLogAppendTime
	}
	return a
}

// Build encodes one batch, appended to dst; the Batch is the new part alone, with what capacity is left behind it. Record offsets are taken as given, relative
// to BaseOffset: they must ascend from there on. The base timestamp is the first record's. Without a producer id, epoch
// and sequence are -1.
//
// ErrInvalid for no records or offsets out of order, ErrTooLarge above 2 GiB, ErrUnsupported for the codec.
func Build(dst []byte, o BatchOptions, recs []Record) (Batch, error) {
	if len(recs) == 0 {
		return nil, fail(ErrInvalid, nil, 0, "no records to build a batch of")
	}
	if o.Codec > Zstd {
		return nil, fail(ErrUnsupported, nil, 0, "%s", o.Codec)
	}
	start := len(dst)
	dst = appendHeader(dst, o)
	b := Batch(dst[start:])
	buf := newScratch()
	defer buf.free()
	raw := buf.b[:0]
	base, last, maxTs := recs[0].Timestamp, int64(-1), recs[0].Timestamp
	for i := range recs {
		r := &recs[i]
		delta := r.Offset - o.BaseOffset
		if r.Offset < o.BaseOffset || delta <= last || delta > math.MaxInt32 {
			return nil, failRecord(ErrInvalid, b, int32(i), len(raw), "offset out of order")
		}
		if _, ok := addDelta(base, r.Timestamp-base); !ok {
			return nil, failRecord(ErrInvalid, b, int32(i), len(raw), "timestamps too far apart")
		}
		last, maxTs = delta, max(maxTs, r.Timestamp)
		if r.size(base, delta)+int64(len(raw)) > math.MaxInt32-HeaderSize {
			return nil, failRecord(ErrTooLarge, b, int32(i), len(raw), "more than an int32 can count")
		}
		raw = appendRecord(raw, r, base, delta)
	}
	buf.b = raw
	binary.BigEndian.PutUint32(b[atLastDelta:], uint32(last))
	binary.BigEndian.PutUint64(b[atBaseTimestamp:], uint64(base))
	b.setMaxTimestamp(maxTs)
	binary.BigEndian.PutUint32(b[atCount:], uint32(len(recs)))
	return finish(dst, start, o.Codec, o.Level, raw)
}

// appendHeader appends a header without size, CRC, counts and timestamps.
func appendHeader(dst []byte, o BatchOptions) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	b := Batch(dst[start:])
	b.SetOffset(o.BaseOffset)
	b.SetLeaderEpoch(o.LeaderEpoch)
	b[atMagic] = magicV2
	b.setAttributes(o.attributes())
	if o.ProducerID < 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = -1, -1, -1
	}
	binary.BigEndian.PutUint64(b[atProducerID:], uint64(o.ProducerID))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(o.ProducerEpoch))
	binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(o.BaseSequence))
	return dst
}

// finish compresses the records behind the header at dst[start:], and writes codec, size and CRC.
func finish(dst []byte, start int, c Codec, level int, records []byte) (Batch, error) {
	dst, err := c.compress(dst, records, level)
	b := Batch(dst[start:])
	if err != nil {
		return nil, failCodec(ErrInvalid, b, err)
	}
	if len(b) > math.MaxInt32 {
		return nil, fail(ErrTooLarge, b, atSize, "%d bytes", len(b))
	}
	binary.BigEndian.PutUint32(b[atSize:], uint32(len(b)-sizeOverhead))
	b.setAttributes(b.Attributes()&^attrCodec | int16(c))
	b.seal()
	return b, nil
}

// body is the size of the record after its length.
func (r *Record) body(tsDelta, offDelta int64) int64 {
	n := int64(1 + varintSize(tsDelta) + varintSize(offDelta) + varintSize(int64(len(r.Headers))))
	n += slotSize(r.Key) + slotSize(r.Value)
	for i := range r.Headers {
		h := &r.Headers[i]
		n += int64(varintSize(int64(len(h.Key)))+len(h.Key)) + slotSize(h.Value)
	}
	return n
}

func (r *Record) size(baseTs, offDelta int64) int64 {
	n := r.body(r.Timestamp-baseTs, offDelta)
	return n + int64(varintSize(n))
}

func slotSize(p []byte) int64 {
	if p == nil {
		return 1
	}
	return int64(varintSize(int64(len(p))) + len(p))
}

func appendRecord(dst []byte, r *Record, baseTs, offDelta int64) []byte {
	tsDelta := r.Timestamp - baseTs
	dst = appendVarint(dst, r.body(tsDelta, offDelta))
	dst = append(dst, 0)
	dst = appendVarint(dst, tsDelta)
	dst = appendVarint(dst, offDelta)
	dst = appendSlot(dst, r.Key)
	dst = appendSlot(dst, r.Value)
	dst = appendVarint(dst, int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		dst = appendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendSlot(dst, h.Value)
	}
	return dst
}

func appendSlot(dst, p []byte) []byte {
	if p == nil {
		return append(dst, 1) // -1, null
	}
	dst = appendVarint(dst, int64(len(p)))
	return append(dst, p...)
}
