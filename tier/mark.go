package tier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
	// markAhead is how far ahead of both clocks, the store's and ours, a mark is believed: further no clock goes by mistake for a while.
	markAhead = 24 * time.Hour
	// markBackoff is the longest pause between tries while the store fails.
	markBackoff = 2 * time.Minute
)

// Held is up to when, ms, at most upTo, all that the replicas on this broker hold is archived, whoever leads them, and the bucket knows
// their topics; not ok: it is not known now. Whatever is appended here after it has been asked is stamped after upTo. The last time, when
// this broker serves no more, replicas do not count: what others lead they answer for, and what was led here the archive knows.
type Held func(upTo int64, last bool) (through int64, ok bool)

// marker writes the broker's mark: up to when everything that was appended here, or replicated to here, is in the archive.
type marker struct {
	wake chan struct{} // capacity 1; a commit has moved something
	held atomic.Pointer[Held]

	turn chan struct{} // capacity 1; who has it owns what follows
	last int64         // what the bucket has, ms
	read bool          // last has been read
	ok   bool          // the last answer of held
}

// owed is a partition that was resigned before all of it was archived. Guarded by Archive.mu.
type owed struct {
	through int64 // ms, everything appended up to it is archived
	until   time.Time
}

func (m *marker) init() { m.wake, m.turn = make(chan struct{}, 1), make(chan struct{}, 1) }

// MarkBy lets marks be written, by what the broker's replicas hold beside what is led here. Until then there are none.
func (a *Archive) MarkBy(h Held) { a.marker.held.Store(&h) }

func (m *marker) ring() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// runMarks writes a mark every MaxLag and soon after a commit, if it has moved, and once more when ctx ends: then all that is to be
// flushed is, and what others lead they answer for. A mark that cannot be written is tried again the next time; restores just reach less
// far meanwhile.
func (a *Archive) runMarks(ctx context.Context) {
	pause := markPause
	for {
		next := time.NewTimer(a.o.MaxLag)
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), markEnd)
			defer cancel()
			_ = a.mark(last, true, false)
			return
		case <-next.C:
		case <-a.marker.wake:
		}
		next.Stop()
		if err := a.mark(ctx, false, false); err == nil {
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

// Mark writes the mark now. A broker does so before it takes the first record: one that has none is not asked for what it holds.
func (a *Archive) Mark(ctx context.Context) error { return a.mark(ctx, false, false) }

// Remark is Mark also where nothing has moved: while this broker was away its mark may have been removed.
func (a *Archive) Remark(ctx context.Context) error { return a.mark(ctx, false, true) }

func (a *Archive) mark(ctx context.Context, last, anew bool) error {
	select {
	case a.marker.turn <- struct{}{}:
		defer func() { <-a.marker.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := a.putMark(ctx, last, anew)
	if err != nil && ctx.Err() == nil {
		a.o.Logger.Warn("write mark", "err", err)
	}
	return err
}

func (a *Archive) putMark(ctx context.Context, last, anew bool) error {
	held := a.marker.held.Load()
	if held == nil || last && !a.marker.ok {
		return nil
	}
	if !a.marker.read {
		if err := a.readMark(ctx); err != nil {
			return err
		}
	}
	// What the bucket says goes on to be true where the clock was set back: everything else is stamped after it.
	now := a.o.Wall.Now()
	upTo := max(now.Add(-markMargin).UnixMilli(), a.marker.last)
	through, ok := (*held)(upTo, last)
	if !ok {
		a.marker.ok = false
		return nil
	}
	if through, ok = a.archivedThrough(through); !ok || through == a.marker.last && !anew {
		a.marker.ok = ok
		return nil
	}
	a.marker.ok = true
	// It may go back: what was replicated to here since may be older than what was said. Who leads it answers for it until then.
	m := manifest.Mark{Cluster: a.o.Cluster, Broker: a.o.Broker, TimeMs: through, WindowMs: a.o.RestoreWindow.Milliseconds(), Written: now.UnixMilli()}
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

// readMark finds what a former process has written, which holds for this one too.
func (a *Archive) readMark(ctx context.Context) error {
	key := manifest.MarkKey(a.o.Cluster, a.o.Broker)
	b, info, err := objstore.ReadAll(ctx, a.bucket, key, smallMax)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
	case err != nil:
		return fmt.Errorf("read %s: %w", key, err)
	default:
		m, err := manifest.DecodeMark(b)
		latest := time.Now()
		if info.Date.After(latest) {
			latest = info.Date
		}
		latest = latest.Add(markAhead)
		switch {
		case err != nil:
			a.o.Logger.Warn("unreadable mark is replaced", "object", key, "err", err)
		case m.TimeMs > latest.UnixMilli():
			a.o.Logger.Warn("mark of a time to come is replaced: appends would be stamped after it", "object", key, "ms", m.TimeMs)
		default:
			a.marker.last = m.TimeMs
		}
	}
	a.marker.read = true
	return nil
}

// archivedThrough is the time, ms, at most upTo, up to which everything is archived of what is led here or was a moment ago.
func (a *Archive) archivedThrough(upTo int64) (through int64, ok bool) {
	through = upTo
	for _, p := range a.partitions() {
		t, pending, err := p.archivedUntil()
		if err != nil {
			return 0, false
		}
		if pending {
			through = min(through, t)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, o := range a.owed {
		if time.Now().After(o.until) {
			delete(a.owed, id)
			continue
		}
		through = min(through, o.through)
	}
	return through, true
}

// archivedUntil is a time up to which all that was appended to the partition is archived; pending: there is more. Where
// uploads are switched off nothing is promised, and nothing holds the others back.
func (p *Partition) archivedUntil() (ms int64, pending bool, err error) {
	if p.topic().CopyDisabled {
		return 0, false, nil
	}
	// The oldest pending record was not appended before its stretch began. ThroughTime does not bound it: it is only known
	// that what is archived had been appended by then.
	since, pending, err := p.src.Log().AppendedSince(p.Through())
	return since - 1, pending, err
}

// owe remembers a resigned partition's debt.
func (a *Archive) owe(p *Partition) {
	if through, pending, err := p.archivedUntil(); pending && err == nil {
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

// MarkOf is the time, ms, of a broker's mark; not ok: it has none. One that cannot be read is an error.
func (a *Archive) MarkOf(ctx context.Context, broker int32) (ms int64, ok bool, err error) {
	key := manifest.MarkKey(a.o.Cluster, broker)
	b, _, err := objstore.ReadAll(ctx, a.bucket, key, smallMax)
	if errors.Is(err, objstore.ErrNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read %s: %w", key, err)
	}
	m, err := manifest.DecodeMark(b)
	if err != nil {
		return 0, false, manifest.InObject(err, key, 0)
	}
	return m.TimeMs, true, nil
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
