package tier

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

// OffsetForTime finds the first archived record, at or above the log start, with timestamp >= ts (ms). Offset -1: none.
func (p *Partition) OffsetForTime(ctx context.Context, ts int64) (localseg.TimestampOffset, error) {
	return retryGone(ctx, p.a, p.view.Load(), p.reread, func(m *manifest.Manifest) (localseg.TimestampOffset, error) {
		return p.a.objects.offsetForTime(ctx, m, ts)
	})
}

// MaxTimestamp finds the first archived record with the largest timestamp. Offset -1: the archive has no record.
func (p *Partition) MaxTimestamp(ctx context.Context) (localseg.TimestampOffset, error) {
	return retryGone(ctx, p.a, p.view.Load(), p.reread, func(m *manifest.Manifest) (localseg.TimestampOffset, error) {
		return p.a.objects.maxTimestamp(ctx, m)
	})
}

// Aborted lists the aborted transactions that overlap [from, to) of the archived range, by first offset. Their markers may
// lie far behind to: each segment object has the whole list of those that touch it (BUG-002).
func (p *Partition) Aborted(ctx context.Context, from, to int64) ([]localseg.AbortedTxn, error) {
	return retryGone(ctx, p.a, p.view.Load(), p.reread, func(m *manifest.Manifest) ([]localseg.AbortedTxn, error) {
		return p.a.objects.aborted(ctx, m, from, to)
	})
}

func (o *objects) offsetForTime(ctx context.Context, m *manifest.Manifest, ts int64) (localseg.TimestampOffset, error) {
	tooOld := func(g *manifest.Group) bool { return g.MaxTimestamp < ts }
	for e, err := range o.live(ctx, m, m.LogStart, tooOld) {
		if err != nil {
			return noTimestamp, err
		}
		if e.MaxTimestamp < ts {
			continue
		}
		found := noTimestamp
		err := o.scan(ctx, e, m.LogStart, func(f *manifest.Footer) int64 { return timeIndexed(f, ts) },
			func(b record.Batch, from, end int64) (stop bool, err error) {
				found, err = firstAtOrAfter(b, ts, from, end)
				return found.Offset >= 0, err
			})
		if err != nil || found.Offset >= 0 {
			return found, err
		}
	}
	return noTimestamp, nil
}

func (o *objects) maxTimestamp(ctx context.Context, m *manifest.Manifest) (localseg.TimestampOffset, error) {
	best := noTimestamp
	lower := func(g *manifest.Group) bool { return best.Offset >= 0 && g.MaxTimestamp <= best.Timestamp }
	for e, err := range o.live(ctx, m, m.LogStart, lower) {
		if err != nil {
			return noTimestamp, err
		}
		if best.Offset >= 0 && e.MaxTimestamp <= best.Timestamp {
			continue
		}
		found, err := o.maxOfEntry(ctx, e, m.LogStart)
		if err != nil {
			return noTimestamp, err
		}
		if found.Offset >= 0 && (best.Offset < 0 || found.Timestamp > best.Timestamp) {
			best = found
		}
	}
	return best, nil
}

// maxOfEntry takes the footer's word where its record is in the range, else it reads the entry: a trimmed one.
func (o *objects) maxOfEntry(ctx context.Context, e *manifest.Entry, logStart int64) (localseg.TimestampOffset, error) {
	f, err := o.footer(ctx, e)
	if err != nil {
		return noTimestamp, err
	}
	if at := f.MaxTimestamp; e.Contains(at.Offset) && at.Offset >= logStart {
		return localseg.TimestampOffset{Timestamp: at.Ms, Offset: at.Offset, LeaderEpoch: epochAt(f.Epochs, at.Offset)}, nil
	}
	best := noTimestamp
	err = o.scan(ctx, e, logStart, nil, func(b record.Batch, from, end int64) (bool, error) {
		if best.Offset >= 0 && b.MaxTimestamp() <= best.Timestamp {
			return false, nil
		}
		found, err := maxOf(b, from, end)
		if found.Offset >= 0 && (best.Offset < 0 || found.Timestamp > best.Timestamp) {
			best = found
		}
		return false, err
	})
	return best, err
}

// scan calls f for the batches of an entry that have offsets in [from, end) of it, until f stops. start gives the byte of
// the data from which on they matter; nil: the first one.
func (o *objects) scan(ctx context.Context, e *manifest.Entry, logStart int64, start func(*manifest.Footer) int64,
	f func(b record.Batch, from, end int64) (stop bool, err error)) error {
	ft, err := o.footer(ctx, e)
	if err != nil {
		return err
	}
	from := max(e.Base, logStart)
	pos := int64(0)
	if start != nil {
		pos = start(ft)
	}
	for i := range ft.Chunks {
		c := ft.Chunks[i]
		if c.Pos+c.Size <= pos || i+1 < len(ft.Chunks) && ft.Chunks[i+1].First <= from {
			continue
		}
		if c.First >= e.End {
			return nil
		}
		stop, err := o.scanChunk(ctx, e, ft, i, max(pos-c.Pos, 0), from, f)
		if stop || err != nil {
			return err
		}
	}
	return nil
}

func (o *objects) scanChunk(ctx context.Context, e *manifest.Entry, ft *manifest.Footer, i int, skip, from int64,
	f func(b record.Batch, from, end int64) (bool, error)) (bool, error) {
	pc, err := o.chunk(ctx, e, ft, i)
	if err != nil {
		return false, err
	}
	defer pc.release()
	for rest := pc.bytes[skip:]; len(rest) > 0; {
		b, after, err := nextBatch(rest)
		if err == nil && b.BaseOffset() >= e.End {
			return true, nil
		}
		stop := false
		if err == nil && b.NextOffset() > from {
			stop, err = f(b, from, e.End)
		}
		if err != nil {
			o.m.corrupt.Inc()
			return false, &CorruptError{Archive: e.Archive, Object: e.Object, Chunk: int32(i), Err: err}
		}
		if stop {
			return true, nil
		}
		rest = after
	}
	return false, nil
}

// timeIndexed is a byte of the data at or before the first batch whose largest timestamp is >= ts: the last indexed batch
// up to which all are older.
func timeIndexed(f *manifest.Footer, ts int64) int64 {
	i := sort.Search(len(f.Index), func(i int) bool { return f.Index[i].MaxTimestamp >= ts })
	if i == 0 {
		return 0
	}
	return f.Index[i-1].Pos
}

func (o *objects) aborted(ctx context.Context, m *manifest.Manifest, from, to int64) ([]localseg.AbortedTxn, error) {
	var out []localseg.AbortedTxn
	for e, err := range o.live(ctx, m, from, nil) {
		if err != nil {
			return nil, err
		}
		if e.Base >= to {
			break
		}
		f, err := o.footer(ctx, e)
		if err != nil {
			return nil, err
		}
		for _, t := range f.Aborted {
			// Of an object that is listed in part, those that touch the part: behind a restore's cut there are other records.
			if t.First < min(to, e.End) && t.Last >= max(from, e.Base) {
				out = append(out, t)
			}
		}
	}
	slices.SortFunc(out, func(a, b localseg.AbortedTxn) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.ProducerID, b.ProducerID), cmp.Compare(a.Last, b.Last))
	})
	// A transaction over several objects is in each of their lists.
	return slices.CompactFunc(out, func(a, b localseg.AbortedTxn) bool {
		return a.ProducerID == b.ProducerID && a.First == b.First && a.Last == b.Last
	}), nil
}
