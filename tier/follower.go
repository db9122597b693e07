package tier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// Follower reads what is archived of one partition, on a broker that need not lead it: up to what the newest manifest that it knows has
// committed. It goes on with a manifest until that is too short or an object that it lists is gone; archived records never change, so an
// older manifest is only shorter, or lists what has been collected since. All methods may be called concurrently.
type Follower struct {
	a     *Archive
	id    manifest.PartitionID
	known func() Pointer

	loading chan struct{} // capacity 1: one look at a time
	view    atomic.Pointer[view]
	seq     sequence
}

// Follow makes a follower; it reads nothing yet. known is a pointer that may be old, from memory, so that reading does not need the metadata
// store as long as that one serves; the zero Pointer where nothing is known to be archived.
func (a *Archive) Follow(id manifest.PartitionID, known func() Pointer) *Follower {
	return &Follower{a: a, id: id, known: known, loading: make(chan struct{}, 1)}
}

// Read is Partition.Read. localseg.ErrOffsetOutOfRange: off is below the archive's log start, or is not archived yet.
func (f *Follower) Read(ctx context.Context, off int64, max int) (Data, error) {
	v, err := f.reaching(ctx, off)
	if err != nil {
		return Data{}, err
	}
	d, err := retryGone(ctx, f.a, v, f.newer, func(m *manifest.Manifest) (Data, error) {
		return f.a.objects.read(ctx, m, off, max)
	})
	f.a.m.read(d.size, err)
	if err == nil {
		f.a.readAhead(&f.seq, v.man, off, d)
	}
	return d, err
}

// Aborted is Partition.Aborted.
func (f *Follower) Aborted(ctx context.Context, from, to int64) ([]localseg.AbortedTxn, error) {
	v, err := f.reaching(ctx, from)
	if err != nil {
		return nil, err
	}
	return retryGone(ctx, f.a, v, f.newer, func(m *manifest.Manifest) ([]localseg.AbortedTxn, error) {
		return f.a.objects.aborted(ctx, m, from, to)
	})
}

// Forget lets the manifest go; the next read looks for the newest one.
func (f *Follower) Forget() { f.view.Store(nil) }

// reaching is a view that has off, or the newest one.
func (f *Follower) reaching(ctx context.Context, off int64) (*view, error) {
	v := f.view.Load()
	if v != nil && off < v.man.Through {
		return v, nil
	}
	return f.newer(ctx, v)
}

// newer is a view other than v if there is one: what another reader has loaded meanwhile, what is known, or what the metadata store has.
func (f *Follower) newer(ctx context.Context, v *view) (*view, error) {
	select {
	case f.loading <- struct{}{}:
		defer func() { <-f.loading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if now := f.view.Load(); now != nil && now != v {
		return now, nil
	}
	ptr := f.known()
	if ptr.Manifest != "" && (v == nil || ptr.LeaderEpoch > v.ptr.LeaderEpoch || ptr.N > v.ptr.N) {
		now, err := f.load(ctx, ptr)
		if !errors.Is(err, objstore.ErrNotFound) {
			return now, err
		}
		// What is known is so old that its manifest has been trimmed.
	}
	ptr, err := f.a.pointers.Load(ctx, f.id)
	if err != nil {
		return nil, fmt.Errorf("load pointer of %v: %w", f.id, err)
	}
	if v != nil && ptr.Manifest == v.ptr.Manifest {
		return v, nil
	}
	return f.load(ctx, ptr)
}

func (f *Follower) load(ctx context.Context, ptr Pointer) (*view, error) {
	m, err := f.a.objects.manifestOf(ctx, f.a.o.Cluster, f.id, ptr)
	if err != nil {
		return nil, err
	}
	v := newView(ptr, m)
	f.view.Store(v)
	return v, nil
}
