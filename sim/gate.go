package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"

	"github.com/varvelog/varve/objstore"
)

var errDead = errors.New("the process has ended")

// gate is the object store as one process reaches it: nothing gets out after its death. What is on the wire by then may
// still land; that is the fault bucket's Late.
type gate struct {
	below objstore.Bucket
	dead  atomic.Bool
	away  *atomic.Bool // the way to the store is cut; nil: never
}

func (g *gate) err() error {
	if g.dead.Load() {
		return fmt.Errorf("%w: %w", objstore.ErrUnavailable, errDead)
	}
	if g.away != nil && g.away.Load() {
		return fmt.Errorf("no way to it: %w", objstore.ErrUnavailable)
	}
	return nil
}

func (g *gate) Put(ctx context.Context, key string, b objstore.Body, c objstore.Cond) (objstore.Info, error) {
	if err := g.err(); err != nil {
		return objstore.Info{}, err
	}
	return g.below.Put(ctx, key, b, c)
}

func (g *gate) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := g.err(); err != nil {
		return nil, err
	}
	return g.below.Get(ctx, key, off, n)
}

func (g *gate) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := g.err(); err != nil {
		return objstore.Info{}, err
	}
	return g.below.Head(ctx, key)
}

func (g *gate) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	if err := g.err(); err != nil {
		return func(yield func(objstore.Info, error) bool) { yield(objstore.Info{}, err) }
	}
	return g.below.List(ctx, prefix, after)
}

func (g *gate) Delete(ctx context.Context, keys ...string) error {
	if err := g.err(); err != nil {
		return err
	}
	return g.below.Delete(ctx, keys...)
}
