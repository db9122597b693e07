package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// held is one lease object of ours, under one id. create, renew and remove have one caller at a time.
type held struct {
	bucket objstore.Bucket
	body   manifest.Lease
	id     string
	etag   string

	mu     sync.Mutex
	ended  bool      // guarded by mu; lapsed for good
	expiry time.Time // guarded by mu; by the store's clock
	date   time.Time // guarded by mu; the store's clock, of an answer ...
	asked  time.Time // guarded by mu; ... to a request that was sent at this time of ours
}

func newHeld(b objstore.Bucket, id, cluster string, ttl time.Duration) *held {
	return &held{bucket: b, id: id, body: manifest.Lease{ID: id, Cluster: cluster, TTLMs: ttl.Milliseconds()}}
}

// live reckons the store's clock from its last answer, never too early: as if that answer had been made when the request
// was sent, its Date, whole seconds, had just begun to age, and our clock were slow by 2 %.
func (h *held) live() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := time.Since(h.asked)
	return !h.ended && h.date.Add(d+d/50+time.Second).Before(h.expiry)
}

func (h *held) end(err error) error {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	return fmt.Errorf("lease %s: %w: %w", h.id, err, ErrLeaseLapsed)
}

func (h *held) create(ctx context.Context) error { return h.put(ctx, objstore.Cond{IfNoneMatch: true}) }

// renew writes the lease again over the object that is known to be there, so that one that was deleted after its expiry
// never comes back. Where an earlier renewal had no answer, another ETag is met, and looked at.
func (h *held) renew(ctx context.Context) error {
	h.body.Renewal++
	err := h.put(ctx, objstore.Cond{IfMatch: h.etag})
	if errors.Is(err, objstore.ErrPrecondition) || errors.Is(err, objstore.ErrNotFound) {
		return h.look(ctx)
	}
	return err
}

func (h *held) put(ctx context.Context, cond objstore.Cond) error {
	body, err := h.body.Encode()
	if err != nil {
		return err
	}
	asked := time.Now()
	info, err := h.bucket.Put(ctx, manifest.LeaseKey(h.id), objstore.BytesBody(body), cond)
	if err != nil {
		return fmt.Errorf("write lease %s: %w", h.id, err)
	}
	h.etag = info.ETag
	if info.Modified.IsZero() || info.Date.IsZero() {
		return h.look(ctx) // many stores tell neither in the answer to a PUT
	}
	return h.landed(info, asked)
}

// look finds out whether the object is ours, and when it was written.
func (h *held) look(ctx context.Context) error {
	key := manifest.LeaseKey(h.id)
	asked := time.Now()
	info, err := h.bucket.Head(ctx, key)
	if errors.Is(err, objstore.ErrNotFound) {
		return h.end(err)
	}
	if err != nil {
		return fmt.Errorf("look at lease %s: %w", h.id, err)
	}
	b, _, err := objstore.ReadAll(ctx, h.bucket, key, smallMax)
	if err != nil && !errors.Is(err, objstore.ErrNotFound) {
		return fmt.Errorf("read lease %s: %w", h.id, err)
	}
	if got, derr := manifest.DecodeLease(b); err != nil || derr != nil || got.ID != h.id {
		return h.end(errors.Join(err, derr, errOthersBytes))
	}
	h.etag = info.ETag
	if info.Date.IsZero() || info.Modified.IsZero() {
		return errNoDate
	}
	return h.landed(info, asked)
}

// adopt goes on with a lease of a former process, which lives for the ttl that it was written with.
func (h *held) adopt(ctx context.Context) error {
	key, ttl := manifest.LeaseKey(h.id), h.body.TTLMs
	b, _, err := objstore.ReadAll(ctx, h.bucket, key, smallMax)
	if errors.Is(err, objstore.ErrNotFound) {
		return h.end(err)
	}
	if err != nil {
		return fmt.Errorf("read lease %s: %w", h.id, err)
	}
	was, err := manifest.DecodeLease(b)
	if err != nil {
		return h.end(err)
	}
	h.body.TTLMs, h.body.Renewal = was.TTLMs, was.Renewal
	if err := h.look(ctx); err != nil {
		return err
	}
	h.body.TTLMs = ttl
	if !h.live() {
		return h.end(errors.New("nobody renewed it"))
	}
	return nil
}

// landed takes a writing into account: it counts only if it was done before the old expiry.
func (h *held) landed(info objstore.Info, asked time.Time) error {
	h.mu.Lock()
	late := h.ended || !h.expiry.IsZero() && !info.Modified.Before(h.expiry)
	if !late {
		h.expiry = info.Modified.Add(time.Duration(h.body.TTLMs) * time.Millisecond)
		h.date, h.asked = info.Date, asked
	}
	h.mu.Unlock()
	if late {
		return h.end(errors.New("written too late"))
	}
	return nil
}

func (h *held) remove(ctx context.Context) error {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	return h.bucket.Delete(ctx, manifest.LeaseKey(h.id))
}
