package recovery

import (
	"cmp"
	"slices"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

// footerOf reads the footer of an entry's object.
type footerOf func(*manifest.Entry) (*manifest.Footer, error)

// cutAt finds [start, end) of a partition as of a time, ms, from all of its tip's entries. Below end every record was
// appended at or before the time, and to the resolution of append times all that were are below it (manifest.CutOffset).
func cutAt(tip *manifest.Manifest, entries []manifest.Entry, ms int64, footer footerOf) (start, end int64, err error) {
	low := tip.LogStart
	for i := range entries {
		if entries[i].State != manifest.Doomed {
			low = min(low, entries[i].Base)
			break
		}
	}
	kept, _ := manifest.Clip(entries, tip.Gaps, low, tip.Through)
	end, straddle := manifest.EndAt(kept, low, ms)
	if straddle != nil {
		f, err := footer(straddle)
		if err != nil {
			return 0, 0, err
		}
		end = max(end, manifest.CutOffset(f, straddle, ms))
	} else {
		end = overGaps(tip.Gaps, end, ms)
	}
	start, ok := tip.StartAt(entries, ms)
	if !ok || start > end {
		start = end
	}
	return start, end, nil
}

// overGaps moves an end over the gaps that begin there and were known by then.
func overGaps(gaps []manifest.Gap, end, ms int64) int64 {
	for _, g := range gaps {
		if g.From == end && g.Time <= ms {
			end = g.To
		}
	}
	return end
}

// planPartition fills in what [start, end) of a partition consists of.
func planPartition(n int32, tip *manifest.Manifest, entries []manifest.Entry, start, end int64) PartitionPlan {
	p := PartitionPlan{Partition: n, Start: start, End: end, source: tip}
	if tip == nil {
		return p
	}
	p.kept, p.holes = manifest.Clip(entries, tip.Gaps, start, end)
	for _, h := range p.holes {
		p.Gaps = append(p.Gaps, GapPlan{h.From, h.To, h.Reason.String()})
	}
	for i := range p.kept {
		p.Bytes += p.kept[i].DataBytes
	}
	p.Segments = len(p.kept)
	if p.Segments == 0 {
		return p
	}
	last := &p.kept[p.Segments-1]
	name, known := manifest.ParseSegmentKey(last.Object)
	p.Cut = !known || last.End <= name.Last
	for e := predecessor(entries, last); e != nil; e = predecessor(entries, e) {
		p.before = append(p.before, *e)
		if name, ok := manifest.ParseSegmentKey(e.Object); !ok || e.End > name.Last {
			break // its object ends with it
		}
	}
	return p
}

// predecessor is the best entry whose end state is the state where the object of e begins: one that ends there, or the
// nearest before. Nil: there is none.
func predecessor(entries []manifest.Entry, e *manifest.Entry) *manifest.Entry {
	base := e.Base
	if name, ok := manifest.ParseSegmentKey(e.Object); ok {
		base = min(base, name.Base)
	}
	var best *manifest.Entry
	for i := range entries {
		x := &entries[i]
		if x.State == manifest.Doomed || x.Ref() == e.Ref() || x.End > base {
			continue
		}
		if best == nil || cmp.Compare(x.End, best.End) >= 0 {
			best = x
		}
	}
	return best
}

// lastEpoch is the largest leader epoch that a partition's archive knows of, -1 for none.
func lastEpoch(tip *manifest.Manifest) int32 {
	if tip == nil {
		return -1
	}
	e := tip.LeaderEpoch
	for _, x := range tip.Epochs {
		e = max(e, x.Epoch)
	}
	return e
}

// epochsBelow is the history of [.., end).
func epochsBelow(tip *manifest.Manifest, end int64) []record.Epoch {
	if tip == nil {
		return nil
	}
	i := slices.IndexFunc(tip.Epochs, func(e record.Epoch) bool { return e.Start >= end })
	if i < 0 {
		return slices.Clone(tip.Epochs)
	}
	return slices.Clone(tip.Epochs[:i])
}
