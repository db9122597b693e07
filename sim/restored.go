package sim

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// archivedIsLocal compares what the bucket alone gives with the local logs, byte by byte, and with what clients were told.
func (w *stage) archivedIsLocal(ctx context.Context) {
	r, err := tier.OpenBucket(ctx, w.bucket, tier.ReaderOptions{})
	if err != nil {
		w.violate("the archive can be read", err.Error())
		return
	}
	for _, p := range w.parts() {
		if !p.topic.tiered {
			continue
		}
		if err := w.comparePartition(ctx, r, p); err != nil {
			w.violate("local bytes are archived bytes", fmt.Sprintf("%s-%d (%s): %v", p.topic.name, p.id.Partition, p.topic.id, err))
			return
		}
	}
}

func (w *stage) comparePartition(ctx context.Context, r *tier.Reader, p *part) error {
	rp := w.leader(p)
	if rp == nil || rp.LEO() == 0 {
		return nil
	}
	m, err := r.Tip(ctx, p.id)
	if err != nil {
		return err
	}
	if m == nil || m.Through < rp.LEO() {
		newest := "none"
		if m != nil {
			newest = fmt.Sprintf("%s, through %d", m.Key(), m.Through)
		}
		return fmt.Errorf("the newest manifest does not reach %d: %s; committed is %s", rp.LEO(), newest, rp.Archive().Manifest().Key())
	}
	local, err := localBatches(rp.Log())
	if err != nil {
		return err
	}
	req := w.history.ask(p)
	req.start = 0
	for off := m.LogStart; off < m.Through; {
		d, err := r.Read(ctx, m, off, 16<<10)
		if err != nil {
			return fmt.Errorf("read archived offset %d: %w", off, err)
		}
		var differs error
		next := off
		for _, part := range d.Parts {
			if differs == nil {
				differs = each(part, func(b record.Batch) {
					if l, ok := local[b.BaseOffset()]; ok && !bytes.Equal(l, b) {
						differs = fmt.Errorf("batch at %d differs", b.BaseOffset())
					}
				})
			}
			if next, err = w.history.batches(req, next, part); err != nil {
				break
			}
		}
		if differs == nil && d.Next <= off {
			differs = fmt.Errorf("nothing at %d", off)
		}
		off = d.Next
		d.Release()
		if differs != nil {
			return differs
		}
	}
	return nil
}

// localBatches reads all that a log has locally, by base offset.
func localBatches(log *localseg.Log) (map[int64]record.Batch, error) {
	local := map[int64]record.Batch{}
	for off := log.LocalStart(); off < log.LEO(); {
		span, err := log.Read(off, log.LEO(), 1<<20)
		if err != nil && off < log.LocalStart() { // gone meanwhile
			off = log.LocalStart()
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read local offset %d: %w", off, err)
		}
		b := make([]byte, span.Size)
		n, err := span.ReadAt(b, 0)
		off = span.Next
		span.Release()
		if n < len(b) {
			return nil, fmt.Errorf("read local offset %d: %d of %d bytes: %w", span.Base, n, len(b), err)
		}
		if err := each(b, func(b record.Batch) { local[b.BaseOffset()] = b }); err != nil {
			return nil, fmt.Errorf("local log: %w", err)
		}
	}
	return local, nil
}

func each(b []byte, f func(record.Batch)) error {
	for len(b) > 0 {
		batch, rest, err := record.Next(b)
		if err != nil {
			return err
		}
		f(batch)
		b = rest
	}
	return nil
}

// restores tries what the bucket alone gives back for each moment of the run.
func (w *stage) restores(ctx context.Context) {
	r, err := tier.OpenBucket(ctx, w.bucket, tier.ReaderOptions{})
	if err != nil {
		return
	}
	w.moments.mu.Lock()
	list := w.moments.list
	w.moments.mu.Unlock()
	const most = 8 // each is read anew for each partition
	rng := w.rand("moments")
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	list = list[:min(most, len(list))]
	for _, p := range w.parts() {
		m, err := r.Tip(ctx, p.id)
		if err != nil {
			w.violate("a moment can be restored", err.Error())
			return
		}
		if m == nil {
			continue
		}
		var entries []manifest.Entry
		for e, err := range r.Entries(ctx, m) {
			if err != nil {
				w.violate("a moment can be restored", err.Error())
				return
			}
			entries = append(entries, *e)
		}
		if len(entries) == 0 {
			continue
		}
		for _, at := range list {
			if err := w.restore(ctx, r, p, m, entries, at); err != nil {
				w.violate("restored is what was, at each moment", fmt.Sprintf("%s-%d (%s) at %d: %v", p.topic.name, p.id.Partition, p.topic.id, at.ms, err))
				return
			}
		}
	}
}

// restore reads what a restore of one moment would have.
func (w *stage) restore(ctx context.Context, r *tier.Reader, p *part, m *manifest.Manifest, entries []manifest.Entry, at moment) error {
	kept, _ := manifest.Clip(entries, m.Gaps, entries[0].Base, m.Through)
	if len(kept) == 0 {
		return nil
	}
	end, straddle := manifest.EndAt(kept, kept[0].Base, at.ms)
	if straddle != nil {
		f, err := r.Footer(ctx, straddle)
		if err != nil {
			return err
		}
		end = max(end, manifest.CutOffset(f, straddle, at.ms))
	}
	req := w.history.ask(p)
	req.start = 0
	have := map[int64]bool{}
	for i := range kept {
		e := kept[i]
		if e.Base >= end {
			break
		}
		e.End = min(e.End, end)
		for b, err := range r.Batches(ctx, &e, e.Base) {
			if err != nil {
				return fmt.Errorf("read %s: %w", e.Object, err)
			}
			if err := w.history.records(req, b); err != nil {
				return err
			}
			for off := b.BaseOffset(); off < b.NextOffset(); off++ {
				have[off] = true
			}
		}
	}
	if off, err := w.history.asOf(p, at, have, m, entries[0].Base, w.plan.windowMs); err != nil {
		return fmt.Errorf("a restore to the moment ends at %d: %w\n\t%s", end, err, w.describe(ctx, r, entries, off))
	}
	return nil
}

// asOf compares the offsets that a restore of a moment has with what was acknowledged by then. It returns the offset that is wrong.
// Nothing may be there that was appended later. What may be missing was acknowledged within two resolutions: one of the log's append
// times, one more where a crash took entries and the file's time stands for them.
func (h *History) asOf(p *part, at moment, have map[int64]bool, m *manifest.Manifest, first, windowMs int64) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone, ok := at.gone[p]
	for off, s := range p.known {
		switch {
		case have[off] && s.after().UnixMilli() > at.ms:
			return off, fmt.Errorf("offset %d was appended %s later", off, s.sent.Sub(time.UnixMilli(at.ms)))
		case have[off] || !s.acked || off >= m.Through || !ok || off < gone || windowMs < time.Hour.Milliseconds():
		case s.by().UnixMilli() > at.ms-2*record.AppendResolutionMs || h.deletedBefore(p, m, first, off):
		default:
			return off, fmt.Errorf("offset %d, acknowledged %s before, is missing", off, time.UnixMilli(at.ms).Sub(s.by()))
		}
	}
	return 0, nil
}

// deletedBefore tells whether the record was rightly deleted before it could be archived.
func (h *History) deletedBefore(p *part, m *manifest.Manifest, first, off int64) bool {
	if off < first {
		return h.mayBeGone(p, off)
	}
	for _, g := range m.Gaps {
		if g.From <= off && off < g.To {
			return h.mayBeGone(p, off)
		}
	}
	return false
}

// describe lists the entries around an offset, with what their footers say of append times.
func (w *stage) describe(ctx context.Context, r *tier.Reader, entries []manifest.Entry, off int64) string {
	var b strings.Builder
	for i := range entries {
		e := &entries[i]
		if e.End < off-10 || e.Base > off+10 {
			continue
		}
		fmt.Fprintf(&b, "[%d, %d) %s %s tail %v appended %d to %d:", e.Base, e.End, e.State, e.Reason, e.Tail, e.FirstAppend, e.LastAppend)
		if f, err := r.Footer(ctx, e); err == nil {
			for _, a := range f.AppendTimes {
				fmt.Fprintf(&b, " %d@%d", a.Offset, a.Ms)
			}
		}
		b.WriteString("\n\t")
	}
	return b.String()
}
