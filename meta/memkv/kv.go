// Package memkv is meta.KV in memory: etcd's semantics (revisions, guards, leases, ordered watches over a bounded
// history) without etcd, for tests and simulations. Time is package time, so it works in synctest bubbles. It keeps
// nothing through a crash; the fault hooks of a client stand for a lost connection and for unknown outcomes.
package memkv

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/meta"
)

// KV is one client of an in-memory store. All methods may be called concurrently.
type KV struct {
	s     *store
	owner bool // closing it closes the store

	hook  atomic.Pointer[func(Call) Outcome]
	calls atomic.Int64
	txns  atomic.Int64

	mu     sync.Mutex
	down   bool          // guarded by mu
	closed bool          // guarded by mu
	turn   chan struct{} // guarded by mu; closed and replaced when down or closed changes
}

var _ meta.KV = (*KV)(nil)
var _ meta.Progresser = (*KV)(nil)

// New makes an empty store and its first client, which owns it.
func New() *KV {
	return &KV{s: newStore(), owner: true, turn: make(chan struct{})}
}

// Client is another client of the same store, with faults of its own.
func (k *KV) Client() *KV { return &KV{s: k.s, turn: make(chan struct{})} }

// begin says whether the client can reach the store.
func (k *KV) begin(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down || k.closed {
		return fmt.Errorf("%s: %w", op, meta.ErrUnavailable)
	}
	return nil
}

// state is whether the client is down or closed, and a channel that closes when that changes.
func (k *KV) state() (down, closed bool, turn <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.down, k.closed, k.turn
}

func (k *KV) setDown(down bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = down
	close(k.turn)
	k.turn = make(chan struct{})
}

// do runs apply unless the hook refuses, and hides its answer where the outcome is to be unknown.
func (k *KV) do(ctx context.Context, kind string, keys []string, apply func() error) error {
	if err := k.begin(ctx, kind); err != nil {
		return err
	}
	o := k.outcome(kind, keys...)
	if o == Refuse {
		return fmt.Errorf("%s: refused by a fault: %w", kind, meta.ErrUnavailable)
	}
	if err := apply(); err != nil {
		return err
	}
	if o == Unknown {
		return fmt.Errorf("%s: answer lost by a fault: %w", kind, meta.ErrUnavailable)
	}
	return nil
}

// Range is meta.KV's.
func (k *KV) Range(ctx context.Context, prefix string) (pairs []meta.Pair, rev int64, err error) {
	err = k.do(ctx, "range", []string{prefix}, func() error {
		pairs, rev, err = k.s.scan(prefix)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return pairs, rev, nil
}

// Get is meta.KV's.
func (k *KV) Get(ctx context.Context, key string) (p meta.Pair, ok bool, err error) {
	err = k.do(ctx, "get", []string{key}, func() error {
		p, ok, err = k.s.get(key)
		return err
	})
	if err != nil {
		return meta.Pair{}, false, err
	}
	return p, ok, nil
}

// Txn is meta.KV's.
func (k *KV) Txn(ctx context.Context, guards []meta.Guard, ops []meta.Op) (ok bool, rev int64, err error) {
	names := make([]string, len(ops))
	for i, o := range ops {
		names[i] = o.Key
	}
	err = k.do(ctx, "txn", names, func() error {
		ok, rev, err = k.s.txn(guards, ops)
		return err
	})
	if err != nil {
		return false, 0, err
	}
	return ok, rev, nil
}

// Grant is meta.KV's; TTLs are exact.
func (k *KV) Grant(ctx context.Context, ttlMs int64) (id meta.LeaseID, err error) {
	err = k.do(ctx, "grant", nil, func() error {
		id, err = k.s.grant(ttlMs)
		return err
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

// KeepAlive is meta.KV's. A client that is cut off gives up when the lease must have expired.
func (k *KV) KeepAlive(ctx context.Context, id meta.LeaseID) error {
	ttl, ok := k.s.ttl(id)
	if !ok {
		return fmt.Errorf("keep lease %d: %w", id, meta.ErrLeaseLost)
	}
	deadline := time.Now().Add(ttl)
	t := time.NewTicker(max(ttl/3, time.Millisecond))
	defer t.Stop()
	for {
		err := k.do(ctx, "renew", nil, func() error { return k.s.renew(id) })
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("keep lease %d: %w", id, ctx.Err())
		case err == nil:
			deadline = time.Now().Add(ttl)
		case !time.Now().Before(deadline) || isLost(err):
			return fmt.Errorf("keep lease %d: %w", id, meta.ErrLeaseLost)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-k.s.leaseGone(id):
			if _, closed, _ := k.state(); !closed {
				// Told at once, as by a connection that etcd still has.
				if down, _, _ := k.state(); !down {
					return fmt.Errorf("keep lease %d: %w", id, meta.ErrLeaseLost)
				}
			}
			select {
			case <-t.C:
			case <-ctx.Done():
			}
		}
	}
}

// Revoke is meta.KV's.
func (k *KV) Revoke(ctx context.Context, id meta.LeaseID) error {
	return k.do(ctx, "revoke", nil, func() error { return k.s.revoke(id) })
}

// Compact forgets the history up to and with revision rev: watches from before it get ErrCompacted.
func (k *KV) Compact(rev int64) { k.s.compact(rev) }

// Progress is meta.Progresser's.
func (k *KV) Progress(ctx context.Context) error {
	if err := k.begin(ctx, "progress"); err != nil {
		return err
	}
	k.s.progress()
	return nil
}

// Close ends the client and its watches; of the client that New made, the store.
func (k *KV) Close() error {
	k.mu.Lock()
	if !k.closed {
		k.closed = true
		close(k.turn)
		k.turn = make(chan struct{})
	}
	k.mu.Unlock()
	if k.owner {
		k.s.close()
	}
	return nil
}
