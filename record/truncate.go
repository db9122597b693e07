package record

import (
	"encoding/binary"
	"math"
)

// Truncate re-encodes b with only its records below end, same codec, offsets and timestamps, in fresh memory. The result
// covers the offsets up to end - 1 even where compaction has removed the record there, so that the log goes on at end. b
// itself if end is at or past its NextOffset. Nil if none is left.
//
// Errors as those of Records; b's header must have passed Check.
func Truncate(b Batch, end int64) (Batch, error) {
	if end >= b.NextOffset() {
		return b, nil
	}
	if end <= b.BaseOffset() {
		return nil, nil
	}
	it := b.Records(math.MaxInt32)
	defer it.Close()
	count, keep, maxTs := int32(0), 0, int64(math.MinInt64)
	for it.Next() && it.Offset() < end {
		count++
		keep, maxTs = it.f.end, max(maxTs, it.Timestamp())
	}
	if it.Err() != nil {
		return nil, it.Err()
	}
	if count == 0 {
		return nil, nil
	}
	out := Batch(append(make([]byte, 0, len(b)), b[:HeaderSize]...))
	binary.BigEndian.PutUint32(out[atLastDelta:], uint32(end-1-b.BaseOffset()))
	binary.BigEndian.PutUint32(out[atCount:], uint32(count))
	out.setMaxTimestamp(maxTs)
	return finish(out, 0, b.Codec(), 0, it.p[:keep])
}
