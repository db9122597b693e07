package recovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

// tailMax bounds what is written anew at the end of a partition: one batch, or more where a transaction is open there.
const tailMax = 256 << 20

// tail is the end of a restored partition: what of the source's objects stays as it is, and what is written anew behind
// it. A log that goes on from the archive takes the producer state of its last object, so that must be the state at the
// very end: where the cut is inside an object, its last batch is written again, cut, with the state there. Transactions
// that are open at the cut are aborted: their markers follow, at the first offsets after the cut; since each object tells
// which transactions touching it were aborted, all from their first record on is written again.
type tail struct {
	kept  []manifest.Entry
	holes []manifest.Gap

	batches     []record.Batch // written anew; the last of them, as many as aborted, are markers
	from, end   int64          // what the new object covers
	since       int64          // its first batch was appended then or later, ms
	times       []record.AppendTime
	aborted     int
	abortedTxns []record.AbortedTxn
	producers   []byte // snapshot at end
}

// tail works out the end of a partition. The state at the cut comes from the one before the last object, and the batches
// up to there.
func (b *builder) tail(ctx context.Context, p *PartitionPlan) (*tail, error) {
	t := &tail{kept: slices.Clone(p.kept), holes: p.holes, from: p.End, end: p.End}
	if len(t.kept) == 0 {
		return t, nil
	}
	last := &p.kept[len(p.kept)-1]
	f, err := b.src.Reader.Footer(ctx, last)
	if err != nil {
		return nil, err
	}
	state, lastBase, err := b.stateAt(ctx, p, last, f)
	if err != nil {
		return nil, err
	}
	open := state.Open()
	if lastBase < 0 && len(open) == 0 { // the object ends with the partition
		t.producers = state.Snapshot()
		return t, nil
	}
	from := last.End
	if lastBase >= 0 {
		from = lastBase
	}
	if len(open) > 0 {
		from = min(from, open[0].First)
	}
	if err := b.rewrite(ctx, p, t, from, lastBase >= 0); err != nil {
		return nil, err
	}
	at := f.AppendedBy(p.End-1, last.LastAppend)
	for _, o := range open {
		m := record.BuildMarker(nil, o.ProducerID, o.ProducerEpoch, at, record.Marker{CoordinatorEpoch: max(o.CoordinatorEpoch, 0)})
		m.SetOffset(t.end)
		t.batches = append(t.batches, m)
		t.end++
		state.Add(m)
	}
	t.aborted, t.abortedTxns, t.producers = len(open), state.Aborted(), state.Snapshot()
	if len(t.batches) > 0 {
		t.times = []record.AppendTime{record.AppendTime{Ms: t.since, Offset: t.batches[0].BaseOffset()}.Until(at)}
	}
	return t, nil
}

// stateAt is the producer state at the partition's end, and the base offset of the batch before it, -1 where the object of
// the last entry ends there too: then its footer has the state.
func (b *builder) stateAt(ctx context.Context, p *PartitionPlan, last *manifest.Entry, f *manifest.Footer) (*localseg.Replay, int64, error) {
	if last.End >= f.End {
		r, err := localseg.NewReplay(f.Producers)
		return r, -1, err
	}
	r, err := b.stateBefore(ctx, p)
	if err != nil {
		return nil, 0, fmt.Errorf("producer state before %s: %w", last.Object, err)
	}
	lastBase, err := b.replay(ctx, r, last, f)
	if lastBase < 0 {
		lastBase = last.End // nothing before the cut: nothing to write again, but the trimmed object cannot end the partition
	}
	return r, lastBase, err
}

// stateBefore is the producer state where the object of the last entry begins. The footer of an object that an earlier restore has trimmed
// has the state at the object's end, behind that restore's cut: its batches up to there are taken instead.
func (b *builder) stateBefore(ctx context.Context, p *PartitionPlan) (*localseg.Replay, error) {
	r, err := localseg.NewReplay(nil)
	for i := len(p.before) - 1; i >= 0 && err == nil; i-- {
		e := &p.before[i]
		f, ferr := b.src.Reader.Footer(ctx, e)
		switch {
		case ferr != nil:
			return nil, ferr
		case e.End >= f.End:
			r, err = localseg.NewReplay(f.Producers)
		default:
			_, err = b.replay(ctx, r, e, f)
		}
	}
	return r, err
}

// replay adds the batches of an entry, and those of its object below it, and returns the base offset of the last one, -1 for none.
func (b *builder) replay(ctx context.Context, r *localseg.Replay, e *manifest.Entry, f *manifest.Footer) (lastBase int64, err error) {
	whole := *e
	whole.Base, lastBase = f.Base, -1
	for batch, err := range b.src.Reader.Batches(ctx, &whole, f.Base) {
		if err != nil {
			return 0, err
		}
		r.Add(batch)
		lastBase = batch.BaseOffset()
	}
	return lastBase, nil
}

// rewrite takes everything from the batch that holds offset from on out of the kept entries, and copies it. cut: the last
// entry's object goes on beyond it, so it may not stay the last.
func (b *builder) rewrite(ctx context.Context, p *PartitionPlan, t *tail, from int64, cut bool) error {
	size := 0
	for i := range p.kept {
		e := &p.kept[i]
		if e.End <= from {
			continue
		}
		for batch, err := range b.src.Reader.Batches(ctx, e, max(from, e.Base)) {
			if err != nil {
				return err
			}
			if size += len(batch); size > tailMax {
				return fmt.Errorf("transactions that are open at offset %d span more than %d bytes; choose another target", p.End, tailMax)
			}
			if len(t.batches) == 0 {
				t.from, t.since = max(batch.BaseOffset(), e.Base), e.FirstAppend
			}
			t.batches = append(t.batches, bytes.Clone(batch))
		}
	}
	if len(t.batches) == 0 {
		t.from = t.end
		if n := len(t.kept); cut { // compaction has left no record below the cut
			t.holes = append(slices.Clone(t.holes), manifest.Gap{From: t.kept[n-1].Base, To: t.end, Reason: manifest.Missing})
			t.kept = t.kept[:n-1]
		}
		return nil
	}
	t.kept = slices.DeleteFunc(t.kept, func(e manifest.Entry) bool { return e.Base >= t.from })
	t.holes = slices.DeleteFunc(slices.Clone(t.holes), func(g manifest.Gap) bool { return g.From >= t.from })
	if n := len(t.kept); n > 0 && t.kept[n-1].End > t.from {
		e := &t.kept[n-1]
		f, err := b.src.Reader.Footer(ctx, e)
		if err != nil {
			return err
		}
		e.End = t.from
		e.LastAppend = max(e.FirstAppend, f.AppendedBy(t.from-1, e.LastAppend))
		t.since = e.LastAppend
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// describe makes the bytes of batches and the part of a footer that follows from them. The batches' records have passed
// the checks of the archive that they come from.
func describe(batches []record.Batch) (*manifest.Footer, []byte) {
	f := &manifest.Footer{Base: batches[0].BaseOffset(), MaxTimestamp: record.AppendTime{Ms: -1, Offset: batches[0].BaseOffset()}}
	var data []byte
	for i, b := range batches {
		if ts := b.MaxTimestamp(); i == 0 || ts > f.MaxTimestamp.Ms {
			f.MaxTimestamp = record.AppendTime{Ms: ts, Offset: offsetOfMax(b)}
		}
		f.Index = append(f.Index, manifest.IndexEntry{Offset: b.BaseOffset(), Pos: int64(len(data)), MaxTimestamp: f.MaxTimestamp.Ms})
		f.Chunks = append(f.Chunks, manifest.Chunk{Pos: int64(len(data)), Size: int64(len(b)), First: b.BaseOffset(), CRC32C: crc32.Checksum(b, castagnoli)})
		f.End = b.NextOffset()
		f.Records += int64(b.Count())
		data = append(data, b...)
	}
	f.DataBytes, f.SHA256 = int64(len(data)), sha256.Sum256(data)
	return f, data
}

// offsetOfMax is the offset of the first record with the batch's largest timestamp.
func offsetOfMax(b record.Batch) int64 {
	it := b.Records(tailMax)
	defer it.Close()
	for it.Next() {
		if it.Timestamp() >= b.MaxTimestamp() {
			return it.Offset()
		}
	}
	return b.BaseOffset()
}
