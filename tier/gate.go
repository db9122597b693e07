package tier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// gate tells when doomed objects may be deleted (PROTOCOLS 3.4). Whoever has committed a doom takes a mark after it; the
// objects may go once a LIST of the leases that began after the mark has been made and every lease in it has ended, and
// while no newer incarnation is claimed.
//
// The look-ups are shared: one LIST serves all partitions whose mark is older. Nothing is remembered of a lease but its id:
// whether it has expired is judged anew from each answer, by that answer's own Date.
type gate struct {
	bucket objstore.Bucket
	inc    uint32
	clock  *storeClock
	log    *slog.Logger

	looking chan struct{} // capacity 1: one LIST at a time

	mu      sync.Mutex
	begun   uint64 // guarded by mu; LISTs begun
	last    leases // guarded by mu; of the newest LIST that ended
	claimed bool   // guarded by mu; a newer claim was seen: for good
}

// leases is what one LIST of lease/ showed: ids that were alive, with when to look again at the latest.
type leases struct {
	seq   uint64
	at    time.Time // ours, when it began
	alive map[string]time.Duration
}

// mark is a place in the order of LISTs: those that begin later have a higher number.
type mark uint64

func newGate(b objstore.Bucket, inc uint32, clock *storeClock, log *slog.Logger) *gate {
	return &gate{bucket: b, inc: inc, clock: clock, log: log, looking: make(chan struct{}, 1)}
}

// mark is taken after the commit of a doom.
func (g *gate) mark() mark {
	g.mu.Lock()
	defer g.mu.Unlock()
	return mark(g.begun)
}

// wait is one doom's waiting for the leases that were there after it.
type wait struct {
	since   mark
	started bool
	ids     map[string]struct{} // not yet seen ended
}

// fresh is how old a LIST may be to be used for looking whether known leases have ended.
const leaseLook = 5 * time.Second

// pass reports whether the doom's leases have all ended, or when to ask again.
func (g *gate) pass(ctx context.Context, w *wait) (ok bool, again time.Duration, err error) {
	if w.started && len(w.ids) == 0 {
		return true, 0, nil
	}
	l, err := g.look(ctx, w.since, w.started)
	if err != nil {
		return false, 0, err
	}
	if !w.started {
		w.started, w.ids = true, make(map[string]struct{}, len(l.alive))
		for id := range l.alive {
			w.ids[id] = struct{}{}
		}
	}
	again = time.Minute
	for id := range w.ids {
		left, alive := l.alive[id]
		if !alive {
			delete(w.ids, id) // gone or expired in this very answer
			continue
		}
		again = min(again, max(left, leaseLook))
	}
	return len(w.ids) == 0, again, nil
}

// look returns a LIST that began after the mark; for a repeated look, one that is not older than leaseLook.
func (g *gate) look(ctx context.Context, since mark, repeated bool) (leases, error) {
	select {
	case g.looking <- struct{}{}:
		defer func() { <-g.looking }()
	case <-ctx.Done():
		return leases{}, ctx.Err()
	}
	g.mu.Lock()
	if last := g.last; last.seq > uint64(since) && (!repeated || time.Since(last.at) < leaseLook) {
		g.mu.Unlock()
		return last, nil
	}
	g.begun++
	l := leases{seq: g.begun, at: time.Now(), alive: make(map[string]time.Duration)}
	g.mu.Unlock()
	for i, err := range g.bucket.List(ctx, manifest.LeasePrefix, "") {
		if err != nil {
			return leases{}, fmt.Errorf("list leases: %w", err)
		}
		g.clock.saw(i)
		if err := g.judge(ctx, i, l.alive); err != nil {
			return leases{}, err
		}
	}
	g.mu.Lock()
	g.last = l
	g.mu.Unlock()
	return l, nil
}

// judge adds the lease to the living unless the answer that showed it proves it expired. What cannot be judged lives.
func (g *gate) judge(ctx context.Context, i objstore.Info, alive map[string]time.Duration) error {
	b, _, err := objstore.ReadAll(ctx, g.bucket, i.Key, smallMax)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil // gone
	}
	if err != nil {
		return fmt.Errorf("read lease %s: %w", i.Key, err)
	}
	l, err := manifest.DecodeLease(b)
	if err != nil {
		g.log.Warn("unreadable lease: nothing is deleted until it is removed", "object", i.Key, "err", err)
		alive[i.Key] = time.Minute
		return nil
	}
	if i.Date.IsZero() || i.Modified.IsZero() {
		return errNoDate
	}
	expiry := i.Modified.Add(time.Duration(l.TTLMs) * time.Millisecond)
	if left := expiry.Sub(i.Date); left >= 0 { // whole seconds on both sides: equal is alive
		alive[i.Key] = left + time.Second
	}
	return nil
}

// claims returns ErrNewerClaim, for good, once an incarnation above this one is claimed.
func (g *gate) claims(ctx context.Context) error {
	g.mu.Lock()
	claimed := g.claimed
	g.mu.Unlock()
	if claimed {
		return ErrNewerClaim
	}
	_, highest, err := incarnations(ctx, g.bucket)
	if err != nil {
		return err
	}
	if highest <= g.inc {
		return nil
	}
	g.mu.Lock()
	g.claimed = true
	g.mu.Unlock()
	g.log.Warn("a newer incarnation is claimed: nothing is deleted any more", "incarnation", g.inc, "claimed", highest)
	return ErrNewerClaim
}

// closed reports whether a newer claim has been seen.
func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.claimed
}
