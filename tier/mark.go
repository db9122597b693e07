package tier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

const (
	// markPause is between two marks at least, however many commits there are.
	markPause = time.Second
	// markMargin is taken off the present: an append that was stamped before it may not show in its log yet.
	markMargin = 100 * time.Millisecond
	// markOwed is for how long a partition that was resigned with records to archive holds the mark back: longer than a
	// shutdown takes, so that its last mark is true. Later its new leader answers for it, or its topic is deleted.
	markOwed = 2 * time.Minute
	markEnd  = 5 * time.Second // for the last mark
	// markBackoff is the longest pause between tries while the store fails.
	markBackoff = 2 * time.Minute
)

// marker writes the broker's mark: up to when everything that was appended here is in the archive. Owned by runMarks, but
// for wake and what Archive.mu guards.
type marker struct {
	wake     chan struct{} // capacity 1; a commit has moved something
	complete bool          // the last answer of Options.Complete
	last     int64         // what the bucket has, ms
	known    bool          // last has been read
}

// owed is a partition that was resigned before all of it was archived. Guarded by Archive.mu.
type owed struct {
	through int64 // ms, everything appended up to it is archived
	until   time.Time
}

func newMarker() marker { return marker{wake: make(chan struct{}, 1)} }

func (m *marker) ring() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// runMarks writes a mark every MaxLag and soon after a commit, if it has moved, and once more when ctx ends: then all that
// will be flushed is. A mark that cannot be written is tried again the next time; restores just reach less far meanwhile.
func (a *Archive) runMarks(ctx context.Context) {
	a.marker.complete = a.o.Complete == nil
	tick := time.NewTicker(a.o.MaxLag)
	defer tick.Stop()
	pause := markPause
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), markEnd)
			defer cancel()
			_ = a.mark(last)
			return
		case <-tick.C:
		case <-a.marker.wake:
		}
		if a.o.Complete != nil {
			// The last mark goes by the last answer: partitions are resigned by then.
			a.marker.complete = a.o.Complete()
		}
		if err := a.mark(ctx); err == nil {
			pause = markPause
		} else {
			pause = min(2*pause, markBackoff)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (a *Archive) mark(ctx context.Context) error {
	if !a.marker.complete {
		return nil
	}
	err := a.putMark(ctx)
	if err != nil && ctx.Err() == nil {
		a.o.Logger.Warn("write mark", "err", err)
	}
	return err
}

func (a *Archive) putMark(ctx context.Context) error {
	if !a.marker.known {
		if err := a.readMark(ctx); err != nil {
			return err
		}
	}
	now := time.Now()
	m := manifest.Mark{Cluster: a.o.Cluster, Broker: a.o.Broker, TimeMs: a.archivedThrough(now),
		WindowMs: a.o.RestoreWindow.Milliseconds(), Written: now.UnixMilli()}
	if m.TimeMs <= a.marker.last {
		return nil
	}
	body, err := m.Encode()
	if err != nil {
		return err
	}
	if _, err := a.bucket.Put(ctx, m.Key(), objstore.BytesBody(body), objstore.Cond{}); err != nil {
		return fmt.Errorf("%s: %w", m.Key(), err)
	}
	a.marker.last = m.TimeMs
	return nil
}

// readMark finds what a former process has written, so that the mark never moves back.
func (a *Archive) readMark(ctx context.Context) error {
	key := manifest.MarkKey(a.o.Cluster, a.o.Broker)
	b, _, err := objstore.ReadAll(ctx, a.bucket, key, smallMax)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
	case err != nil:
		return fmt.Errorf("read %s: %w", key, err)
	default:
		m, err := manifest.DecodeMark(b)
		if err != nil {
			a.o.Logger.Warn("unreadable mark is replaced", "object", key, "err", err)
		}
		a.marker.last = m.TimeMs
	}
	a.marker.known = true
	return nil
}

// archivedThrough is the time up to which everything appended on this broker is archived, ms.
func (a *Archive) archivedThrough(now time.Time) int64 {
	through := now.Add(-markMargin).UnixMilli()
	for _, p := range a.partitions() {
		if t, pending := p.archivedUntil(); pending {
			through = min(through, t)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, o := range a.owed {
		if now.After(o.until) {
			delete(a.owed, id)
			continue
		}
		through = min(through, o.through)
	}
	return through
}

// archivedUntil is a time up to which all that was appended to the partition is archived; pending: there is more. Where
// uploads are switched off nothing is promised, and nothing holds the others back.
func (p *Partition) archivedUntil() (ms int64, pending bool) {
	m, log := p.view.Load().man, p.src.Log()
	if log.LEO() <= m.Through || p.topic().CopyDisabled {
		return 0, false
	}
	// The oldest pending record was not appended before its stretch began. ThroughTime does not bound it: it is only known
	// that what is archived had been appended by then.
	from := max(m.Through, log.LocalStart())
	times, err := log.AppendTimes(from, from+1)
	if err != nil || len(times) == 0 {
		return 0, true // not known: no mark now
	}
	return times[0].Ms - 1, true
}

// owe remembers a resigned partition's debt.
func (a *Archive) owe(p *Partition) {
	if through, pending := p.archivedUntil(); pending {
		a.mu.Lock()
		a.owed[p.id] = owed{through, time.Now().Add(markOwed)}
		a.mu.Unlock()
	}
}

// Marks lists the brokers of this cluster that have left a mark.
func (a *Archive) Marks(ctx context.Context) ([]int32, error) {
	var brokers []int32
	for i, err := range a.bucket.List(ctx, manifest.MarkPrefix(a.o.Cluster), "") {
		if err != nil {
			return nil, fmt.Errorf("list marks: %w", err)
		}
		if id, ok := manifest.ParseMarkKey(a.o.Cluster, i.Key); ok {
			brokers = append(brokers, id)
		}
	}
	return brokers, nil
}

// DropMark removes the mark of a broker that the cluster has forgotten: it would hold the window's end back for good. The leaders that
// have taken over answer for what it led.
func (a *Archive) DropMark(ctx context.Context, broker int32) error {
	key := manifest.MarkKey(a.o.Cluster, broker)
	if err := a.bucket.Delete(ctx, key); err != nil && !errors.Is(err, objstore.ErrNotFound) {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}
