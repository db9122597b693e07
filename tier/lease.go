package tier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/varvelog/varve/objstore"
)

// LeaseOptions: zero values are defaults.
type LeaseOptions struct {
	Cluster string        // who reads; for people
	TTL     time.Duration // default 10 min
	// Change is how long one id is kept: the owner's collector waits for the ids that it has seen, so a reader that never
	// changed its id would keep everything for ever. Default 6 TTL.
	Change time.Duration
	// Keep is for a cluster whose own manifests refer to the archive, for as long as they do: the id is never changed, since
	// what was listed under it must stay, and Run leaves the lease in the bucket, to be gone on with after a restart.
	Keep bool
	// Taken is told the id of each new lease, before Reread; for who keeps it over a restart. Nil: nobody.
	Taken func(ctx context.Context, id string) error
	// ID is such a lease of before: the first one that is taken is this, without Reread, if it has not lapsed.
	ID string
	// Reread is called after each new lease, before it counts: the source's manifests are read again, because what was
	// listed under another lease may be gone (PROTOCOLS 2.5). Leases are renewed meanwhile. Nil: nothing is kept from
	// reading to reading.
	Reread func(context.Context) error
	Rand   func() uint64
	Logger *slog.Logger
}

// Lease keeps objects of an archive that this cluster does not own from being deleted while it reads them. Each lease is
// an object with a new, never reused id; it lives for its ttl from the object's Last-Modified, by the store's clock, and a
// renewal counts only if it landed before the old expiry.
type Lease struct {
	bucket objstore.Bucket
	o      LeaseOptions

	mu  sync.Mutex
	cur *held // guarded by mu; what data is served under, nil: none
}

// NewLease takes no lease yet.
func NewLease(b objstore.Bucket, o LeaseOptions) *Lease {
	o.TTL = orDuration(o.TTL, 10*time.Minute)
	o.Change = orDuration(o.Change, 6*o.TTL)
	if o.Rand == nil {
		o.Rand = rand.Uint64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Lease{bucket: b, o: o}
}

// Live reports whether data may be served.
func (l *Lease) Live() bool {
	h := l.current()
	return h != nil && h.live()
}

func (l *Lease) current() *held {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cur
}

func (l *Lease) use(h *held) (old *held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, l.cur = l.cur, h
	return old
}

// ID is the lease's id, "" while there is none.
func (l *Lease) ID() string {
	if h := l.current(); h != nil {
		return h.id
	}
	return ""
}

// Acquire takes a lease under a new id and calls Reread. Call it before anything of the archive is listed, and not while
// Run runs. Without Run the lease lives for one TTL; Release gives it back.
func (l *Lease) Acquire(ctx context.Context) error {
	l.use(nil)
	h, err := l.take(ctx, nil)
	if err != nil {
		return err
	}
	l.use(h)
	return nil
}

// take creates a lease and reads the archive under it; keep, if not nil, is renewed meanwhile.
func (l *Lease) take(ctx context.Context, keep *held) (*held, error) {
	if h, err := l.resume(ctx); h != nil || err != nil {
		return h, err
	}
	h := newHeld(l.bucket, fmt.Sprintf("%016x%016x", l.o.Rand(), l.o.Rand()), l.o.Cluster, l.o.TTL)
	if err := h.create(ctx); err != nil {
		return nil, fmt.Errorf("take lease: %w", err) // the next try has another id
	}
	if l.o.Taken != nil {
		if err := l.o.Taken(ctx, h.id); err != nil {
			l.giveBack(ctx, h)
			return nil, fmt.Errorf("take lease %s: %w", h.id, err)
		}
	}
	if l.o.Reread == nil {
		return h, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	read := make(chan error, 1)
	go func() { read <- l.o.Reread(ctx) }()
	tick := time.NewTicker(l.o.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case err := <-read:
			if err == nil && !h.live() {
				err = ErrLeaseLapsed
			}
			if err != nil {
				l.giveBack(ctx, h)
				return nil, fmt.Errorf("read the archive under lease %s: %w", h.id, err)
			}
			return h, nil
		case <-tick.C:
			for _, each := range []*held{h, keep} {
				if each == nil {
					continue
				}
				if err := each.renew(ctx); err != nil {
					l.o.Logger.Warn("lease", "err", err)
				}
			}
			if !h.live() {
				cancel() // what is being read counts for nothing
			}
		}
	}
}

// resume goes on with the lease of before, once; nil: there is none, or it has lapsed.
func (l *Lease) resume(ctx context.Context) (*held, error) {
	id := l.o.ID
	if id == "" {
		return nil, nil
	}
	h := newHeld(l.bucket, id, l.o.Cluster, l.o.TTL)
	err := h.adopt(ctx)
	if err == nil {
		// A renewal without an answer leaves it as it is; Run tries again.
		if err := h.renew(ctx); err != nil {
			l.o.Logger.Warn("lease", "err", err)
		}
		if !h.live() {
			err = ErrLeaseLapsed
		}
	}
	if err != nil && !errors.Is(err, ErrLeaseLapsed) {
		return nil, err
	}
	l.o.ID = ""
	if err != nil {
		l.o.Logger.Warn("lease lapsed before it was gone on with, taking a new one", "lease", id)
		return nil, nil
	}
	return h, nil
}

// Run keeps a lease until ctx ends: takes one if there is none, renews it, takes another one in time or after a lapse. When
// it returns the lease is given back, unless it is to be kept.
func (l *Lease) Run(ctx context.Context) error {
	if !l.o.Keep {
		defer l.Release(context.WithoutCancel(ctx))
	}
	taken := time.Now()
	for pause := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		var err error
		cur := l.current()
		switch {
		case cur == nil || !cur.live():
			if cur != nil {
				l.o.Logger.Warn("lease lapsed, taking a new one", "lease", cur.id)
			}
			l.use(nil)
			err, taken = l.change(ctx, nil), time.Now()
		case !l.o.Keep && time.Since(taken) >= l.o.Change:
			err, taken = l.change(ctx, cur), time.Now()
		default:
			err = cur.renew(ctx)
		}
		pause = l.o.TTL / 3
		if err != nil && ctx.Err() == nil {
			l.o.Logger.Warn("lease", "err", err)
			pause = l.o.TTL / 20
		}
	}
}

// change goes over to a new lease; the old one is given back once the archive has been read under the new one.
func (l *Lease) change(ctx context.Context, old *held) error {
	h, err := l.take(ctx, old)
	if err != nil {
		return err
	}
	l.use(h)
	if old != nil {
		l.giveBack(ctx, old)
	}
	return nil
}

// Release gives the lease back, so that the source's collector need not wait for its expiry.
func (l *Lease) Release(ctx context.Context) {
	if old := l.use(nil); old != nil {
		l.giveBack(ctx, old)
	}
}

func (l *Lease) giveBack(ctx context.Context, h *held) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := h.remove(ctx); err != nil {
		l.o.Logger.Warn("give lease back", "lease", h.id, "err", err)
	}
}
