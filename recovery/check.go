package recovery

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// check reads back what was made, as the new cluster will.
func (r *ClusterRestore) check(ctx context.Context, bucket objstore.Bucket, plan *Plan, made [][]built) error {
	src := &Source{URL: r.Archive, Bucket: bucket, open: r.Open}
	if err := src.load(ctx); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	total := 0
	for i := range made {
		total += len(made[i])
	}
	var done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(buildWorkers)
	for i := range made {
		for n := range made[i] {
			g.Go(func() error {
				if err := checkPartition(ctx, src.Reader, &made[i][n]); err != nil {
					return fmt.Errorf("check %s:%d: %w", plan.Topics[i].Name, n, err)
				}
				r.Progress("checked", int(done.Add(1)), total)
				return nil
			})
		}
	}
	return g.Wait()
}

// checkPartition reads the manifest, the first and the last batch, and compares the next offset.
func checkPartition(ctx context.Context, r *tier.Reader, b *built) error {
	if b.pointer.Manifest == "" {
		return nil
	}
	m, err := r.Manifest(ctx, b.pointer.Manifest)
	if err != nil {
		return err
	}
	if m.Through != b.end {
		return fmt.Errorf("the next offset is %d, planned was %d", m.Through, b.end)
	}
	var first, last *manifest.Entry
	var all []manifest.Entry
	for e, err := range r.Entries(ctx, m) {
		if err != nil {
			return err
		}
		all = append(all, *e)
	}
	if err := m.CheckEntries(all); err != nil {
		return err
	}
	if len(all) == 0 {
		return nil
	}
	first, last = &all[0], &all[len(all)-1]
	if _, err := firstBatch(ctx, r, first, first.Base); err != nil {
		return err
	}
	end, err := lastBatch(ctx, r, last)
	if err != nil {
		return err
	}
	if end > b.end || end == 0 {
		return fmt.Errorf("the last batch ends at %d, the partition at %d", end, b.end)
	}
	return nil
}

func firstBatch(ctx context.Context, r *tier.Reader, e *manifest.Entry, off int64) (next int64, err error) {
	d, err := r.ReadEntry(ctx, e, off, 1)
	if err != nil {
		return 0, err
	}
	defer d.Release()
	if len(d.Parts) == 0 {
		return 0, nil
	}
	b, _, err := record.Next(d.Parts[0])
	if err == nil {
		err = b.Check()
	}
	if err != nil {
		return 0, fmt.Errorf("%s: batch at offset %d: %w", e.Object, off, err)
	}
	return b.NextOffset(), nil
}

// lastBatch reads the chunk that ends an entry.
func lastBatch(ctx context.Context, r *tier.Reader, e *manifest.Entry) (next int64, err error) {
	f, err := r.Footer(ctx, e)
	if err != nil {
		return 0, err
	}
	from := max(f.Chunks[f.ChunkAt(min(e.End, f.End)-1)].First, e.Base)
	for b, err := range r.Batches(ctx, e, from) {
		if err == nil {
			err = b.Check()
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", e.Object, err)
		}
		next = b.NextOffset()
	}
	return next, nil
}
