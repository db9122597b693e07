package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// LeaseOptions: zero values are defaults.
type LeaseOptions struct {
	Cluster string        // who reads; for people
	TTL     time.Duration // default 10 min
	// ID is a lease that this cluster took before, and under which it has listed what it reads: the first Acquire goes on with
	// it, without Reread, if it has not expired, by the store's clock. Else, or empty: a new one.
	ID string
	// Keep leaves the lease in the bucket when Run returns, to be gone on with after a restart. Else it is given back.
	Keep bool
	// Reread is called after each new lease, before it counts as live: the source's manifests are read again, because what
	// was listed under another lease may be gone (PROTOCOLS 2.5). Nil: the caller has not read anything yet.
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

	// owned by Acquire and Run, of which one runs at a time
	id      string
	etag    string
	sent    []byte // body of the newest renewal
	renewal int64

	mu     sync.Mutex
	live   bool      // guarded by mu
	expiry time.Time // guarded by mu; by the store's clock
	date   time.Time // guarded by mu; the store's clock, of an answer ...
	asked  time.Time // guarded by mu; ... to a request sent at this time of ours
}

// NewLease takes no lease yet.
func NewLease(b objstore.Bucket, o LeaseOptions) *Lease {
	o.TTL = orDuration(o.TTL, 10*time.Minute)
	if o.Rand == nil {
		o.Rand = rand.Uint64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Lease{bucket: b, o: o}
}

// Live reports whether data may be served. The store's clock is reckoned from its last answer, never too early: as if
// that answer had been made when the request was sent and its Date, whole seconds, had just begun to age.
func (l *Lease) Live() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live && l.reckon(time.Now()).Before(l.expiry)
}

func (l *Lease) reckon(now time.Time) time.Time {
	d := now.Sub(l.asked)
	return l.date.Add(d + d/50 + time.Second)
}

// ID is the lease's id, "" before the first Acquire. Not while Acquire or Run is under way, but within Reread.
func (l *Lease) ID() string { return l.id }

// Acquire creates a lease under a new id and calls Reread. Call it before anything of the archive is listed.
func (l *Lease) Acquire(ctx context.Context) error {
	if id := l.o.ID; id != "" {
		if err := l.resume(ctx, id); !errors.Is(err, ErrLeaseLapsed) {
			return err
		}
		l.o.Logger.Warn("lease lapsed while nobody renewed it, taking a new one", "lease", id)
		l.o.ID = ""
	}
	l.drop()
	l.id = fmt.Sprintf("%016x%016x", l.o.Rand(), l.o.Rand())
	l.renewal, l.etag = 0, ""
	if err := l.put(ctx, objstore.Cond{IfNoneMatch: true}); err != nil {
		return fmt.Errorf("take lease: %w", err) // the next try has another id
	}
	if l.o.Reread != nil {
		if err := l.o.Reread(ctx); err != nil {
			return fmt.Errorf("read the archive under lease %s: %w", l.id, err)
		}
	}
	l.mu.Lock()
	l.live = true
	l.mu.Unlock()
	if !l.Live() {
		return fmt.Errorf("lease %s: %w", l.id, ErrLeaseLapsed)
	}
	return nil
}

// Run keeps a lease until ctx ends: takes one if there is none, renews it, takes a new one after a lapse. When it returns
// the lease is given back, unless it is to be kept.
func (l *Lease) Run(ctx context.Context) error {
	defer l.release(context.WithoutCancel(ctx))
	pause := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		var err error
		if l.Live() {
			err = l.renew(ctx)
		} else {
			if l.lapsed() {
				l.o.Logger.Warn("lease lapsed, taking a new one", "lease", l.id)
			}
			err = l.Acquire(ctx)
		}
		pause = l.o.TTL / 3
		if err != nil && ctx.Err() == nil {
			l.o.Logger.Warn("lease", "err", err)
			pause = l.o.TTL / 20
		}
	}
}

// resume goes on with a lease that is in the bucket: it is renewed at once, which counts only if it lands in time.
func (l *Lease) resume(ctx context.Context, id string) error {
	l.drop()
	key := manifest.LeaseKey(id)
	b, _, err := objstore.ReadAll(ctx, l.bucket, key, smallMax)
	asked := time.Now()
	var info objstore.Info
	if err == nil {
		info, err = l.bucket.Head(ctx, key)
	}
	if errors.Is(err, objstore.ErrNotFound) {
		return fmt.Errorf("lease %s is gone: %w", id, ErrLeaseLapsed)
	}
	if err != nil {
		return fmt.Errorf("go on with lease %s: %w", id, err)
	}
	old, err := manifest.DecodeLease(b)
	if err != nil || old.ID != id {
		return fmt.Errorf("lease %s cannot be read: %w", id, ErrLeaseLapsed)
	}
	if info.Date.IsZero() || info.Modified.IsZero() {
		return errNoDate
	}
	l.id, l.renewal, l.etag = id, old.Renewal, info.ETag
	l.mu.Lock()
	l.live, l.expiry = true, info.Modified.Add(time.Duration(old.TTLMs)*time.Millisecond)
	l.date, l.asked = info.Date, asked
	l.mu.Unlock()
	if !l.Live() {
		l.drop()
		return fmt.Errorf("lease %s: %w", id, ErrLeaseLapsed)
	}
	l.o.ID = ""
	return l.renew(ctx)
}

func (l *Lease) lapsed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live
}

func (l *Lease) drop() {
	l.mu.Lock()
	l.live, l.expiry = false, time.Time{}
	l.mu.Unlock()
}

// release deletes the lease, so that the source's collector need not wait for its expiry.
func (l *Lease) release(ctx context.Context) {
	l.drop()
	if l.id == "" || l.o.Keep {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := l.bucket.Delete(ctx, manifest.LeaseKey(l.id)); err != nil {
		l.o.Logger.Warn("give lease back", "lease", l.id, "err", err)
	}
}

// renew writes the lease again over the object that is known to be there. Where an earlier renewal had no answer it is
// looked up first.
func (l *Lease) renew(ctx context.Context) error {
	l.renewal++
	err := l.put(ctx, objstore.Cond{IfMatch: l.etag})
	if err == nil {
		return nil
	}
	if !errors.Is(err, objstore.ErrPrecondition) && !errors.Is(err, objstore.ErrNotFound) {
		// It may have landed. If so the next try meets another ETag and looks.
		return fmt.Errorf("renew lease %s: %w", l.id, err)
	}
	return l.look(ctx)
}

func (l *Lease) put(ctx context.Context, cond objstore.Cond) error {
	body, err := manifest.Lease{ID: l.id, Cluster: l.o.Cluster, TTLMs: l.o.TTL.Milliseconds(), Renewal: l.renewal}.Encode()
	if err != nil {
		return err
	}
	l.sent = body
	asked := time.Now()
	info, err := l.bucket.Put(ctx, manifest.LeaseKey(l.id), objstore.BytesBody(body), cond)
	if err != nil {
		return err
	}
	l.etag = info.ETag
	if info.Modified.IsZero() || info.Date.IsZero() {
		return l.look(ctx) // most stores tell neither in the answer to a PUT
	}
	return l.landed(info, asked)
}

// look finds out whether the object is ours, and when it was written.
func (l *Lease) look(ctx context.Context) error {
	key := manifest.LeaseKey(l.id)
	b, _, err := objstore.ReadAll(ctx, l.bucket, key, smallMax)
	asked := time.Now()
	var info objstore.Info
	if err == nil {
		info, err = l.bucket.Head(ctx, key)
	}
	if errors.Is(err, objstore.ErrNotFound) {
		l.drop()
		return fmt.Errorf("lease %s is gone: %w", l.id, ErrLeaseLapsed)
	}
	if err != nil {
		return fmt.Errorf("look at lease %s: %w", l.id, err)
	}
	if got, err := manifest.DecodeLease(b); err != nil || got.ID != l.id {
		l.drop()
		return fmt.Errorf("lease %s was overwritten: %w", l.id, ErrLeaseLapsed)
	}
	l.etag = info.ETag
	if info.Date.IsZero() || info.Modified.IsZero() {
		return errNoDate
	}
	// Another of our renewals may have landed than the last one sent: each extends from when it was written.
	if !bytes.Equal(b, l.sent) {
		l.o.Logger.Debug("an earlier renewal landed", "lease", l.id)
	}
	return l.landed(info, asked)
}

// landed takes a renewal into account: it counts only if it was written before the old expiry.
func (l *Lease) landed(info objstore.Info, asked time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.expiry.IsZero() && !info.Modified.Before(l.expiry) {
		l.live = false
		return fmt.Errorf("lease %s: renewed too late: %w", l.id, ErrLeaseLapsed)
	}
	l.expiry = info.Modified.Add(l.o.TTL)
	l.date, l.asked = info.Date, asked
	return nil
}
