package tier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/manifest"
)

// retainEvery is how often total retention is looked at where the manifest's head lies in a group, so that the next
// expiry is not known from memory.
const retainEvery = 5 * time.Minute

// alsoLogStart makes the edit take along a log start that has moved (DeleteRecords).
func (p *Partition) alsoLogStart(e *manifest.Edit, m *manifest.Manifest, through int64) {
	if start := min(p.src.Log().LogStart(), through); start > m.LogStart && start > e.LogStart {
		e.LogStart, e.Reason = start, manifest.RecordsDeleted
	}
}

// logStartDue: the log's start and the manifest's differ, either way round.
func (p *Partition) logStartDue() bool {
	m := p.view.Load().man
	start := p.src.Log().LogStart()
	return m.N > 0 && (min(start, m.Through) > m.LogStart || start < m.LogStart)
}

func (p *Partition) moveLogStart(ctx context.Context) error {
	m := p.view.Load().man
	if p.src.Log().LogStart() < m.LogStart {
		return p.applyLogStart()
	}
	return p.commit(ctx, "log start", func(_ context.Context, m *manifest.Manifest) (manifest.Edit, bool, error) {
		e := manifest.Edit{}
		p.alsoLogStart(&e, m, m.Through)
		return e, e.LogStart > 0, nil
	}, nil)
}

// applyLogStart raises the log's start to the committed one. Only after the commit: until then a restart would find the
// records readable again.
func (p *Partition) applyLogStart() error {
	start := p.view.Load().man.LogStart
	if p.src.Log().LogStart() >= start {
		return nil
	}
	if err := p.src.SetLogStart(start); err != nil {
		return fmt.Errorf("set log start %d: %w", start, err)
	}
	return nil
}

func (p *Partition) retains() bool {
	c := p.topic()
	return p.view.Load().hasLive && (c.RetentionMs > 0 || c.RetentionBytes > 0)
}

// retainAt is when retention may have something to do: now if the size has grown above its limit or the configuration
// has changed.
func (p *Partition) retainAt(now time.Time) time.Time {
	c, v := p.topic(), p.view.Load()
	switch {
	case c != p.w.retainFor:
		return now
	case c.RetentionBytes > 0 && p.w.retained != v.man && v.size+p.localAbove(v.man.Through, p.src.Log().LEO()) > c.RetentionBytes:
		return now
	case c.RetentionMs > 0:
		return p.w.retainAt
	}
	return now.Add(24 * time.Hour)
}

// retain marks entries dead that total retention (over archive and local log) has expired, and then raises the log start.
// Only committed entries count, so nothing expires that is not archived: a restore finds it as long as the window is.
func (p *Partition) retain(ctx context.Context) error {
	v, c := p.view.Load(), p.topic()
	r, err := p.expired(ctx, v, c)
	if err != nil {
		return err
	}
	p.w.retainAt, p.w.retainFor, p.w.retained = r.next, c, v.man
	if r.start <= v.man.LogStart {
		return nil
	}
	return p.commit(ctx, "retention", func(_ context.Context, m *manifest.Manifest) (manifest.Edit, bool, error) {
		return manifest.Edit{LogStart: r.start, Reason: r.reason}, r.start > m.LogStart, nil
	}, func() {
		p.a.m.entries.WithLabelValues("dead").Add(float64(r.count))
		if err := p.applyLogStart(); err != nil {
			p.a.o.Logger.Error("archive", "partition", p.id, "err", err) // the next step tries again
		}
	})
}

type expiry struct {
	start  int64 // new log start
	reason manifest.Reason
	count  int
	next   time.Time // look again
}

// expired walks the live entries from the oldest while they are to go: too old by their largest timestamp, as Kafka counts,
// or not needed to keep retention.bytes. The first one that stays tells when to look again.
func (p *Partition) expired(ctx context.Context, v *view, c TopicConfig) (expiry, error) {
	now, nowMs := time.Now(), p.a.o.Wall.Ms()
	r := expiry{start: v.man.LogStart, next: now.Add(retainEvery)}
	left := v.size + p.localAbove(v.man.Through, p.src.Log().LEO())
	for e, err := range p.a.objects.live(ctx, v.man, 0, nil) {
		if err != nil {
			return r, err
		}
		old := c.RetentionMs > 0 && e.MaxTimestamp >= 0 && e.MaxTimestamp < nowMs-c.RetentionMs
		large := c.RetentionBytes > 0 && !e.Tail && left-e.SizeBytes >= c.RetentionBytes
		if !old && !large {
			if c.RetentionMs > 0 && e.MaxTimestamp >= 0 {
				r.next = now.Add(capped(e.MaxTimestamp + c.RetentionMs + 1 - nowMs))
			}
			return r, nil
		}
		r.reason = manifest.RetentionSize
		if old {
			r.reason = manifest.RetentionTime
		}
		r.start, left, r.count = e.End, left-e.SizeBytes, r.count+1
	}
	return r, nil
}

// capped is ms as a duration, at most a day: clients choose timestamps. So does a sum that has overflown.
func capped(ms int64) time.Duration {
	const most = 24 * time.Hour
	if ms < 0 || ms > most.Milliseconds() {
		return most
	}
	return time.Duration(ms) * time.Millisecond
}

// window is the topic's restore window.
func (p *Partition) window() time.Duration {
	if ms := p.topic().RestoreWindowMs; ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return p.a.o.RestoreWindow
}

// dooms: something is dead, nothing is on its way out already, and this incarnation may still collect. Dooms are made in
// rounds: a doom during the wait for leases would start that wait anew, for ever.
func (p *Partition) dooms() bool {
	return !p.doomAt().IsZero() && !p.collects() && !p.a.gate.closed()
}

// doomAt is when, by our guess of the store's clock, the oldest dead entry may be doomed; zero: nothing is dead.
func (p *Partition) doomAt() time.Time {
	m := p.view.Load().man
	var next earliest
	window, grace := p.window(), min(p.window(), p.a.o.SupersededGrace)
	note := func(deadAt int64, after time.Duration) {
		if deadAt > 0 {
			next.add(time.UnixMilli(deadAt).Add(after + time.Second))
		}
	}
	for i := range m.Groups {
		note(m.Groups[i].OldestDeadAt, window)
		note(m.Groups[i].OldestSuperseded, grace)
	}
	for i := range m.Entries {
		switch e := &m.Entries[i]; {
		case e.State != manifest.Dead:
		case e.Reason == manifest.Superseded:
			note(e.DeadAt, grace)
		default:
			note(e.DeadAt, window)
		}
	}
	if next.at.IsZero() {
		return time.Time{}
	}
	next.at = time.Now().Add(next.at.Sub(p.a.clock.guess())) // from the store's clock to the process's own time
	if p.w.doomAgain.After(next.at) {
		return p.w.doomAgain
	}
	return next.at
}

// doom releases what has been dead for the window, by the store's clock, unless a fork or a restore has pinned the
// partition. Doom and pins are guarded by the same record.
func (p *Partition) doom(ctx context.Context) error {
	p.w.doomAgain = time.Now().Add(doomPause)
	if err := p.refresh(ctx); err != nil {
		return err
	}
	if len(p.view.Load().ptr.Pins) > 0 {
		return nil
	}
	now, err := p.a.clock.ask(ctx, p.a.bucket)
	if err != nil {
		return err
	}
	window, grace := p.window(), min(p.window(), p.a.o.SupersededGrace)
	err = p.commit(ctx, "doom", func(ctx context.Context, m *manifest.Manifest) (manifest.Edit, bool, error) {
		if len(p.view.Load().ptr.Pins) > 0 {
			return manifest.Edit{}, false, nil
		}
		e := manifest.Edit{DoomBefore: now.Add(-window).UnixMilli(), SupersededBefore: now.Add(-grace).UnixMilli()}
		return e, dueBefore(m, e), nil
	}, nil)
	if errors.Is(err, errNothingDoomed) {
		p.w.doomAgain = time.Now().Add(time.Hour)
		return nil
	}
	return err
}

// doomPause is how soon a doom that was refused by a pin, or had nothing to do, is looked at again.
const doomPause = time.Minute

func dueBefore(m *manifest.Manifest, e manifest.Edit) bool {
	due := func(deadAt, before int64) bool { return deadAt > 0 && deadAt <= before }
	for i := range m.Groups {
		if due(m.Groups[i].OldestDeadAt, e.DoomBefore) || due(m.Groups[i].OldestSuperseded, e.SupersededBefore) {
			return true
		}
	}
	for i := range m.Entries {
		en := &m.Entries[i]
		if en.State == manifest.Dead && (due(en.DeadAt, e.DoomBefore) || en.Reason == manifest.Superseded && due(en.DeadAt, e.SupersededBefore)) {
			return true
		}
	}
	return false
}

// refresh reads the partition's record again and stops if it is not ours any more.
func (p *Partition) refresh(ctx context.Context) error {
	ptr, err := p.a.pointers.Load(ctx, p.id)
	if err != nil {
		return fmt.Errorf("load pointer of %v: %w", p.id, err)
	}
	v := p.view.Load()
	switch {
	case ptr.LeaderEpoch != p.epoch || ptr.Incarnation != p.a.o.Incarnation:
		p.end(ErrFenced)
		return ErrFenced
	case ptr.Manifest != v.ptr.Manifest:
		return p.catchUp(ctx, ptr, ErrConflict)
	}
	same := *v
	same.ptr = ptr
	p.view.Store(&same)
	return nil
}
