package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
)

// metaLink is one process's way to the metadata store: requests take time, fail, lose their answers, or land when nobody waits for them
// any more. Cutting it off altogether is the client's Disconnect.
type metaLink struct {
	*memkv.KV
	faults *metaFaults
	wire   *memkv.KV // what was sent lands, whatever becomes of the sender
	late   sync.WaitGroup
}

var (
	_ meta.KV         = (*metaLink)(nil)
	_ meta.Progresser = (*metaLink)(nil)
)

// metaFaults is how bad the ways to the metadata store are. All methods may be called concurrently.
type metaFaults struct {
	mu   sync.Mutex
	rng  *rand.Rand    // guarded by mu
	fail float64       // guarded by mu; chance that a request fails
	late float64       // guarded by mu; chance that a transaction lands late
	slow time.Duration // guarded by mu; longest latency
}

const lateMax = 8 * time.Second

func (f *metaFaults) set(fail, late float64, slow time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail, f.late, f.slow = fail, late, slow
}

func (f *metaFaults) latency() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 100*time.Microsecond + time.Duration(f.rng.Int64N(int64(f.slow)))
}

// lands says that a transaction lands, after so long, without its sender.
func (f *metaFaults) lands() (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.rng.Int64N(int64(lateMax))), f.rng.Float64() < f.late
}

// outcome is memkv's hook.
func (f *metaFaults) outcome(c memkv.Call) memkv.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.rng.Float64() >= f.fail:
		return memkv.OK
	case c.Kind == "txn" && f.rng.IntN(2) == 0:
		return memkv.Unknown
	}
	return memkv.Refuse
}

func newMetaLink(root *memkv.KV, f *metaFaults) *metaLink {
	l := &metaLink{KV: root.Client(), faults: f, wire: root.Client()}
	l.Hook(f.outcome)
	return l
}

func (l *metaLink) travel(ctx context.Context, what string) error {
	pause(ctx, l.faults.latency())
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Range implements meta.KV.
func (l *metaLink) Range(ctx context.Context, prefix string) ([]meta.Pair, int64, error) {
	if err := l.travel(ctx, "range"); err != nil {
		return nil, 0, err
	}
	return l.KV.Range(ctx, prefix)
}

// Get implements meta.KV.
func (l *metaLink) Get(ctx context.Context, key string) (meta.Pair, bool, error) {
	if err := l.travel(ctx, "get"); err != nil {
		return meta.Pair{}, false, err
	}
	return l.KV.Get(ctx, key)
}

// Txn implements meta.KV. A context that ends on the way leaves the outcome unknown.
func (l *metaLink) Txn(ctx context.Context, guards []meta.Guard, ops []meta.Op) (bool, int64, error) {
	if d, late := l.faults.lands(); late {
		l.late.Go(func() {
			time.Sleep(d)
			_, _, _ = l.wire.Txn(context.Background(), guards, ops)
		})
		pause(ctx, d/4)
		return false, 0, fmt.Errorf("txn: no answer: %w", meta.ErrUnavailable)
	}
	if err := l.travel(ctx, "txn"); err != nil {
		return false, 0, err
	}
	return l.KV.Txn(ctx, guards, ops)
}
