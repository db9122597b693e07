package record

import "math"

// The smallest bodies after the size field: of a v0 message, below which nothing Kafka ever wrote can be, and of v2.
const (
	minSizeV0 = 14
	minSizeV2 = HeaderSize - sizeOverhead
)

// Next splits the first batch off b; both results alias b. It looks at size field and magic alone: Check the rest.
//
// ErrShort if b ends before the batch does (also where b is empty), ErrUnsupported for another magic than 2, ErrCorrupt
// if the size field cannot be that of a batch.
func Next(b []byte) (first Batch, rest []byte, err error) {
	size, err := frame(b)
	if err != nil {
		return nil, b, err
	}
	return Batch(b[:size:size]), b[size:], nil
}

// frame is the size in bytes of the batch that b begins with, all of which is there.
func frame(b []byte) (int, error) {
	if len(b) < sizeOverhead {
		return 0, fail(ErrShort, b, len(b), "no size field")
	}
	size := int(int32(Batch(b).u32(atSize)))
	if size < minSizeV0 {
		return 0, fail(ErrCorrupt, b, atSize, "size field is %d", size)
	}
	if len(b) <= atMagic {
		return 0, fail(ErrShort, b, len(b), "no magic")
	}
	if m := Batch(b).Magic(); m != magicV2 {
		return 0, fail(ErrUnsupported, b, atMagic, "magic is %d, want %d", m, magicV2)
	}
	if size < minSizeV2 {
		return 0, fail(ErrCorrupt, b, atSize, "size field is %d, less than a header", size)
	}
	if len(b)-sizeOverhead < size {
		return 0, fail(ErrShort, b, len(b), "size field is %d, %d bytes are there", size, len(b)-sizeOverhead)
	}
	return sizeOverhead + size, nil
}

// Check verifies size field, magic, CRC-32C, codec and counts: structure without decompressing. Batches that compaction
// has thinned out, or emptied, pass.
//
// ErrShort if bytes are missing at the end, ErrUnsupported for another magic or an unknown codec, else ErrCorrupt.
func (b Batch) Check() error {
	size, err := frame(b)
	if err != nil {
		return err
	}
	if size != len(b) {
		return fail(ErrCorrupt, b, atSize, "%d bytes after the batch", len(b)-size)
	}
	if got := b.checksum(); got != b.CRC() {
		return fail(ErrCorrupt, b, atCRC, "CRC is %08x, bytes have %08x", b.CRC(), got)
	}
	if c := b.Codec(); c > Zstd {
		return fail(ErrUnsupported, b, atAttributes, "%s", c)
	}
	if at, reason := b.counts(); reason != "" {
		return fail(ErrCorrupt, b, at, "%s", reason)
	}
	return nil
}

// counts says what contradicts itself in offsets and record count, and where; "" if nothing does.
func (b Batch) counts() (at int, reason string) {
	base, delta, count := b.BaseOffset(), b.lastDelta(), b.Count()
	switch {
	case base < 0:
		return atBaseOffset, "negative base offset"
	case delta < 0:
		return atLastDelta, "negative last offset delta"
	case base > math.MaxInt64-1-int64(delta):
		return atBaseOffset, "last offset overflows"
	case count < 0:
		return atCount, "negative record count"
	case int64(count) > int64(delta)+1:
		return atCount, "more records than offsets"
	case count == 0 && len(b) > HeaderSize && b.Codec() == None:
		return atCount, "no records but bytes for some"
	case b.Codec() == None && int64(count)*minRecord > int64(len(b)-HeaderSize):
		return atCount, "more records than fit in the bytes"
	}
	return 0, ""
}
