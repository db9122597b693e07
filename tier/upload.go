package tier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/internal/wallclock"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// upload is a segment object on its way into the manifest. It is kept over failures, so that a PUT without an answer is
// repeated with the same key and the same bytes and leaves no second object behind.
type upload struct {
	part part
	gaps []manifest.Gap
	seg  *segment
	key  string
	put  bool // the object is there
}

func (w *work) dropUpload() {
	if w.up != nil && w.up.seg != nil {
		w.up.seg.release()
	}
	w.up = nil
}

// nextUpload says, from memory alone, what is to be uploaded now, or when something will have waited long enough.
func (p *Partition) nextUpload(now time.Time) (u *upload, at time.Time) {
	if p.topic().CopyDisabled {
		p.since.Store(nil)
		return nil, time.Time{}
	}
	log, m := p.src.Log(), p.view.Load().man
	committed := p.src.Committed()
	gaps, through := gapsBefore(m, log.LogStart(), log.LocalStart(), committed, p.a.o.Wall)
	since := p.noteWaiting(through, committed, now)
	local := max(log.LocalStart(), log.LogStart()) // below it nothing can be read any more
	if len(gaps) == 0 && committed <= through && tailsBegin(m, local) == through {
		return nil, time.Time{} // idle: not even the segments are looked at
	}
	if r, ok := rolled(m, log.Segments(), local, through, committed); ok {
		return &upload{part: r, gaps: gaps}, time.Time{}
	}
	if len(gaps) > 0 {
		return &upload{gaps: gaps}, time.Time{}
	}
	if committed <= through {
		return nil, time.Time{}
	}
	due := since.Add(p.maxLag())
	if now.Before(due) && p.flushTarget() <= through {
		return nil, due
	}
	return &upload{part: tailPart(m, local, committed, p.localAbove(through, committed))}, time.Time{}
}

// gapsBefore finds what is gone from the local log before it was archived, and where the archive goes on: deleted records
// (BUG-048) or a lost local head (BUG-043). Only offsets below committed can be a gap.
func gapsBefore(m *manifest.Manifest, logStart, localStart, committed int64, wall wallclock.Clock) ([]manifest.Gap, int64) {
	var gaps []manifest.Gap
	through := m.Through
	add := func(to int64, why manifest.Reason) {
		if to = min(to, committed); to > through {
			gaps = append(gaps, manifest.Gap{From: through, To: to, Reason: why, Time: wall.Ms()})
			through = to
		}
	}
	add(logStart, manifest.RecordsDeleted)
	add(localStart, manifest.RetentionUpload)
	return gaps, through
}

// rolled picks the oldest rolled segment that the archive does not have whole. The part begins where the live tail objects
// begin that it will supersede, and never ends inside one: then it goes on to that one's end.
func rolled(m *manifest.Manifest, segs []localseg.SegmentInfo, localStart, through, committed int64) (part, bool) {
	from := through
	if through == m.Through { // behind a new gap there is nothing to supersede
		from = tailsBegin(m, localStart)
	}
	for _, s := range segs {
		if s.Active || s.End <= from || s.End > committed {
			continue
		}
		return part{base: from, end: tailEnd(m, s.End)}, true
	}
	return part{}, false
}

// noteWaiting keeps the time since when the oldest unarchived record has waited, from the looks that followed its append, and returns it
// where there is one.
func (p *Partition) noteWaiting(through, committed int64, now time.Time) time.Time {
	if committed <= through {
		p.since.Store(nil)
		return now
	}
	if since := p.since.Load(); since != nil {
		return *since
	}
	p.since.Store(&now)
	return now
}

// startWaiting asks the log since when its unarchived records have waited: nobody has looked when they came.
func (p *Partition) startWaiting() {
	log := p.src.Log()
	from := max(p.Through(), log.LocalStart())
	if committed := p.src.Committed(); committed > from {
		since := time.Now()
		if list, err := log.AppendTimes(from, committed); err == nil && len(list) > 0 && list[0].Ms > 0 {
			// An append time that is ahead of the clock is no reason to wait longer.
			since = since.Add(-max(p.a.o.Wall.Now().Sub(time.UnixMilli(list[0].Ms)), 0))
		}
		p.since.Store(&since)
	}
}

func (p *Partition) maxLag() time.Duration {
	if ms := p.topic().MaxLagMs; ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return p.a.o.MaxLag
}

// localAbove is about how many local bytes hold [from, end).
func (p *Partition) localAbove(from, end int64) int64 {
	sum := int64(0)
	for _, s := range p.src.Log().Segments() {
		lo, hi := max(s.Base, from), min(s.End, end)
		if lo >= hi || s.End <= s.Base {
			continue
		}
		sum += int64(float64(s.SizeBytes) * float64(hi-lo) / float64(s.End-s.Base))
	}
	return sum
}

// upload sends one part and commits it:
//
//  1. read the local batches once, checking each, and describe them, with the append times of what they supersede;
//  2. PUT the object under a key that nobody else can have;
//  3. commit the manifest that lists it, with what it supersedes and the gaps before it.
//
// A crash between 2 and 3 leaves an object that no manifest lists: an orphan of this leader epoch.
func (p *Partition) upload(ctx context.Context) error {
	u := p.w.up
	if u.seg == nil && u.part.end > u.part.base {
		if err := p.describe(ctx, u); err != nil {
			p.w.up = nil // planned anew: the log start may have moved into the part
			return err
		}
	}
	if u.seg != nil && !u.put {
		if err := p.send(ctx, u); err != nil {
			return err
		}
	}
	edit := func(_ context.Context, m *manifest.Manifest) (manifest.Edit, bool, error) {
		e := manifest.Edit{Gaps: u.gaps}
		through := m.Through
		if n := len(u.gaps); n > 0 {
			through = u.gaps[n-1].To
		}
		if u.seg != nil {
			e.Add = []manifest.Entry{u.seg.entry}
			e.ThroughTime = u.seg.entry.LastAppend
			through = max(through, u.seg.entry.End)
		}
		e.Epochs = epochsBelow(p.src.Log().Epochs(), through)
		p.alsoLogStart(&e, m, through)
		return e, true, nil
	}
	return p.commit(ctx, "upload", edit, func() { p.uploaded(u) })
}

func (p *Partition) uploaded(u *upload) {
	p.w.dropUpload()
	p.since.Store(nil)
	p.startWaiting() // what was appended meanwhile has waited since then
}

func (p *Partition) describe(ctx context.Context, u *upload) (err error) {
	described := p.a.o.Wall.Ms()
	times, err := p.archivedTimes(ctx, u.part)
	if err != nil {
		return err
	}
	u.seg, err = buildSegment(ctx, p.src.Log(), u.part, segmentOf{
		cluster: p.a.o.Cluster, incarnation: p.a.o.Incarnation, epoch: p.epoch, topic: p.topic().Name,
		partition: p.id, chunkBytes: p.a.o.ChunkBytes, times: times,
	})
	var bad *localseg.CorruptError
	switch {
	case err == nil:
	case errors.Is(err, errNoBatches):
		// Offsets without records, such as after a truncation to a later start: nothing that could be uploaded.
		u.seg = nil
		if u.part.base < p.Through() {
			return fmt.Errorf("describe [%d, %d): %w", u.part.base, u.part.end, err)
		}
		u.gaps = append(u.gaps, manifest.Gap{From: u.part.base, To: u.part.end, Reason: manifest.RetentionUpload, Time: described})
		u.part.end = u.part.base
		return nil
	case errors.As(err, &bad):
		p.a.m.corrupt.Inc()
		p.a.o.Logger.Error("local batch is damaged: the partition is not archived beyond it", "partition", p.id,
			"file", bad.File, "position", bad.Pos, "err", bad.Reason)
		return err
	default:
		return fmt.Errorf("describe [%d, %d): %w", u.part.base, u.part.end, err)
	}
	e := &u.seg.entry
	u.key = manifest.SegmentKey(p.id, u.seg.first, u.seg.last, p.epoch, p.a.o.Rand())
	e.Object = u.key
	return nil
}

func (p *Partition) send(ctx context.Context, u *upload) error {
	info, err := p.a.bucket.Put(ctx, u.key, u.seg.body, objstore.Cond{IfNoneMatch: true})
	if errors.Is(err, objstore.ErrExists) {
		// An earlier try has landed: the key is ours alone.
		if info, err = p.a.bucket.Head(ctx, u.key); err == nil && info.Size != u.seg.body.Size {
			err = &CorruptError{Object: u.key, Chunk: -1, Err: fmt.Errorf("%d bytes, sent were %d", info.Size, u.seg.body.Size)}
			p.w.dropUpload() // another key next time
		}
	}
	if err != nil {
		return fmt.Errorf("upload %s: %w", u.key, err)
	}
	p.a.clock.saw(info)
	u.put = true
	kind := "segment"
	if u.part.tail {
		kind = "tail"
	}
	p.a.m.uploads.WithLabelValues(kind).Inc()
	p.a.m.uploadBytes.WithLabelValues(kind).Add(float64(u.seg.body.Size))
	return nil
}
