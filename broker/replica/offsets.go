package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// Special timestamps of ListOffsets.
const (
	Latest           = -1
	Earliest         = -2
	MaxTimestamp     = -3
	EarliestLocal    = -4
	LatestTiered     = -5
	EarliestUntiered = -6
)

// none is the answer where nothing is found (BUG-019).
var none = localseg.TimestampOffset{Timestamp: -1, Offset: -1, LeaderEpoch: -1}

// OffsetFor answers ListOffsets for a timestamp >= 0 and the special ones -1 (latest), -2 (earliest), -3 (max timestamp), -4 (earliest
// local), -5 (latest tiered), -6 (earliest not tiered yet), over archive and local log (KIP-79, 405, 734, 1005, 1023). Offset -1 and
// timestamp -1 for none.
func (p *Partition) OffsetFor(ctx context.Context, ts int64, iso Isolation) (localseg.TimestampOffset, error) {
	if err := p.stopped(); err != nil {
		return none, err
	}
	v := p.view()
	switch {
	case ts >= 0:
		return p.forTime(ctx, ts, v, iso)
	case ts == Latest:
		if err := p.unsettled(); err != nil {
			return none, err
		}
		return localseg.TimestampOffset{Timestamp: -1, Offset: v.end(iso), LeaderEpoch: p.LeaderEpoch()}, nil
	case ts == Earliest:
		return p.at(v.start), nil
	case ts == MaxTimestamp:
		return p.maxTimestamp(ctx, v, iso)
	case ts == EarliestLocal:
		return p.at(max(v.start, p.log.LocalStart())), nil
	case ts == LatestTiered:
		if through, ok := p.through(); ok && through > v.start {
			return p.at(through - 1), nil
		}
		return none, nil
	case ts == EarliestUntiered:
		if through, ok := p.through(); ok {
			return p.at(max(v.start, through)), nil
		}
		return none, nil
	}
	return none, fmt.Errorf("timestamp %d has no meaning", ts)
}

// unsettled is an error while the high watermark may be lower than one that the last leader told (KIP-207).
func (p *Partition) unsettled() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.core.Settled() {
		return nil
	}
	return fmt.Errorf("high watermark %d, epoch began at %d: %w", p.core.hw, p.core.epochStart, ErrUnsettled)
}

// orUnsettled keeps what was found, but does not say "none" of what may have been readable already.
func (p *Partition) orUnsettled(found localseg.TimestampOffset) (localseg.TimestampOffset, error) {
	if found.Offset >= 0 {
		return found, nil
	}
	return none, p.unsettled()
}

// through is the committed archived-through offset; not ok where nothing is archived.
func (p *Partition) through() (int64, bool) {
	a := p.archive.Load()
	if a == nil {
		return 0, false
	}
	through := a.Through()
	return through, through > 0
}

// at is an offset with the epoch of its record, -1 where the history does not reach.
func (p *Partition) at(off int64) localseg.TimestampOffset {
	return localseg.TimestampOffset{Timestamp: -1, Offset: off, LeaderEpoch: epochAt(p.log.Epochs(), off)}
}

func epochAt(history []record.Epoch, off int64) int32 {
	epoch := int32(-1)
	for _, e := range history {
		if e.Start > off {
			break
		}
		epoch = e.Epoch
	}
	return epoch
}

// cold returns the archive if records below the local log are to be searched; an error if they are and it cannot be asked.
func (p *Partition) cold(v view) (*tier.Partition, error) {
	if p.log.LocalStart() <= v.start {
		return nil, nil
	}
	a := p.archive.Load()
	if a == nil {
		return nil, fmt.Errorf("records below %d are in the archive, which is not reached yet: %w", p.log.LocalStart(), ErrArchive)
	}
	return a, nil
}

// forTime finds the first record with timestamp >= ts: the archive has the lower offsets, so that what it finds is first.
func (p *Partition) forTime(ctx context.Context, ts int64, v view, iso Isolation) (localseg.TimestampOffset, error) {
	a, err := p.cold(v)
	if err != nil {
		return none, err
	}
	if a != nil {
		found, err := p.coldForTime(ctx, a, ts, v)
		if err != nil || found.Offset >= 0 {
			return readable(found, v, iso), err
		}
	}
	found, err := p.log.OffsetForTime(ts)
	if err != nil {
		return none, p.closedMeans(err)
	}
	return p.orUnsettled(readable(found, v, iso))
}

// readable hides what a reader of this isolation must not see yet.
func readable(t localseg.TimestampOffset, v view, iso Isolation) localseg.TimestampOffset {
	if t.Offset < v.start || t.Offset >= v.end(iso) {
		return none
	}
	return t
}

func (p *Partition) coldForTime(ctx context.Context, a *tier.Partition, ts int64, v view) (localseg.TimestampOffset, error) {
	found, err := a.OffsetForTime(ctx, ts)
	if err != nil {
		return none, p.lookupError(ctx, err)
	}
	if found.Offset < 0 || found.Offset >= v.start {
		return found, nil
	}
	return p.scan(ctx, a, ts, v.start)
}

func (p *Partition) lookupError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, ErrArchive) {
		return err
	}
	return fmt.Errorf("look-up in the archive: %w: %w", ErrArchive, err)
}

// scanBytes is how much of the archive is read at a time by scan.
const scanBytes = 1 << 20

// maxRecordBytes bounds what a batch may decompress to while its timestamps are read.
const maxRecordBytes = 256 << 20

// scan looks at every record from off on: the rare case that the log start lies inside a segment and what the index finds lies below
// it.
func (p *Partition) scan(ctx context.Context, a *tier.Partition, ts, off int64) (localseg.TimestampOffset, error) {
	for off < a.Through() {
		data, err := a.Read(ctx, off, scanBytes)
		if err != nil {
			return none, p.lookupError(ctx, err)
		}
		found, err := scanParts(data.Parts, ts, off)
		next := data.Next
		data.Release()
		if err != nil || found.Offset >= 0 {
			return found, err
		}
		if next <= off {
			break
		}
		off = next
	}
	return none, nil
}

func scanParts(parts [][]byte, ts, from int64) (localseg.TimestampOffset, error) {
	for _, rest := range parts {
		for len(rest) > 0 {
			b, after, err := record.Next(rest)
			if err != nil {
				return none, fmt.Errorf("archived batch: %w: %w", ErrArchive, err)
			}
			rest = after
			if b.MaxTimestamp() < ts || b.LastOffset() < from || b.Control() {
				continue
			}
			if found, err := scanBatch(b, ts, from); err != nil || found.Offset >= 0 {
				return found, err
			}
		}
	}
	return none, nil
}

func scanBatch(b record.Batch, ts, from int64) (localseg.TimestampOffset, error) {
	it := b.Records(maxRecordBytes)
	defer it.Close()
	for it.Next() {
		if r := it.Record(); r.Timestamp >= ts && r.Offset >= from {
			return localseg.TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, LeaderEpoch: b.LeaderEpoch()}, nil
		}
	}
	if err := it.Err(); err != nil {
		return none, fmt.Errorf("records of the archived batch at %d: %w: %w", b.BaseOffset(), ErrArchive, err)
	}
	return none, nil
}

// maxTimestamp finds the first record with the largest timestamp, over both tiers (BUG-039): of two alike the archive's comes first.
func (p *Partition) maxTimestamp(ctx context.Context, v view, iso Isolation) (localseg.TimestampOffset, error) {
	a, err := p.cold(v)
	if err != nil {
		return none, err
	}
	hot, err := p.log.MaxTimestamp()
	if err != nil {
		return none, p.closedMeans(err)
	}
	if err := p.unsettled(); err != nil {
		return none, err
	}
	best := readable(hot, v, iso)
	if a == nil {
		return best, nil
	}
	cold, err := a.MaxTimestamp(ctx)
	if err != nil {
		return none, p.lookupError(ctx, err)
	}
	if cold = readable(cold, v, iso); cold.Offset >= 0 && cold.Timestamp >= best.Timestamp {
		best = cold
	}
	return best, nil
}
