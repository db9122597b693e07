package tier

import (
	"errors"
	"fmt"
	"math"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/record"
)

const maxOffset = math.MaxInt64

// maxDecoded bounds what one batch may decompress to when a look-up by time has to decode it.
const maxDecoded = 128 << 20

var noTimestamp = localseg.TimestampOffset{Timestamp: -1, Offset: -1, LeaderEpoch: -1}

// firstAtOrAfter finds the first record of the batch with timestamp >= ts and offset in [from, end). Offset -1: none.
func firstAtOrAfter(b record.Batch, ts, from, end int64) (localseg.TimestampOffset, error) {
	if b.MaxTimestamp() < ts || b.NextOffset() <= from || b.BaseOffset() >= end {
		return noTimestamp, nil
	}
	it := b.Records(maxDecoded)
	defer it.Close()
	for it.Next() {
		r := it.Record()
		if r.Timestamp >= ts && r.Offset >= from && r.Offset < end {
			return localseg.TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, LeaderEpoch: b.LeaderEpoch()}, nil
		}
	}
	return noTimestamp, it.Err()
}

// maxOf finds the first record with the largest timestamp among those with offset in [from, end). Offset -1: none.
func maxOf(b record.Batch, from, end int64) (localseg.TimestampOffset, error) {
	best := noTimestamp
	it := b.Records(maxDecoded)
	defer it.Close()
	for it.Next() {
		r := it.Record()
		if r.Offset >= from && r.Offset < end && (best.Offset < 0 || r.Timestamp > best.Timestamp) {
			best = localseg.TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, LeaderEpoch: b.LeaderEpoch()}
		}
	}
	return best, it.Err()
}

// skipTo drops the batches of b that end at or before off.
func skipTo(b []byte, off int64) ([]byte, error) {
	for len(b) > 0 {
		batch, rest, err := nextBatch(b)
		if err != nil {
			return nil, err
		}
		if batch.NextOffset() > off {
			return b, nil
		}
		b = rest
	}
	return b, nil
}

// taken is what take cut off.
type taken struct {
	whole []byte       // batches that end at or before the limit
	cut   record.Batch // the batch that straddles it, re-encoded without what is at or above it, or nil
	next  int64        // offset after the last record of both, -1 if there is none
	more  bool         // stopped by size: batches below the limit follow
}

// take cuts whole batches that lie below end, of at most size bytes but at least one if atLeastOne.
func take(b []byte, end int64, size int, atLeastOne bool) (t taken, err error) {
	t.next = -1
	used := 0
	for rest := b; len(rest) > 0; {
		batch, after, err := nextBatch(rest)
		if err != nil {
			return t, err
		}
		if batch.NextOffset() <= batch.BaseOffset() || batch.BaseOffset() < t.next {
			// Who goes on at the end of the last one would come by again.
			return t, fmt.Errorf("%w: offsets [%d, %d) after %d", record.ErrCorrupt, batch.BaseOffset(), batch.NextOffset(), t.next)
		}
		if batch.BaseOffset() >= end {
			break
		}
		if used+len(batch) > size && (used > 0 || !atLeastOne) {
			t.more = true
			break
		}
		if batch.NextOffset() > end {
			if t.cut, err = record.Truncate(batch, end); err != nil {
				return t, fmt.Errorf("cut batch at %d: %w", end, err)
			}
			if t.cut != nil {
				t.next = end
			}
			break
		}
		used += len(batch)
		t.next = batch.NextOffset()
		rest = after
	}
	t.whole = b[:used]
	return t, nil
}

// nextBatch is record.Next for bytes whose checksum held: a batch that is not whole is damage.
func nextBatch(b []byte) (record.Batch, []byte, error) {
	batch, rest, err := record.Next(b)
	if errors.Is(err, record.ErrShort) {
		return nil, nil, fmt.Errorf("%w: batch cut short", record.ErrCorrupt)
	}
	if err == nil && len(batch) < record.HeaderSize {
		err = fmt.Errorf("%w: batch of %d bytes", record.ErrCorrupt, len(batch))
	}
	return batch, rest, err
}
