package tier

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/invariants"
	"github.com/varvelog/varve/manifest"
)

// trimBatch is how many superseded manifests and groups gather before they are deleted.
const trimBatch = 64

// trim deletes manifests and groups below the committed manifest. The newest manifest is self-contained, so they may go at
// any time (PROTOCOLS 3.1); a reader that still holds one reads again.
func (p *Partition) trim(ctx context.Context) error {
	n := min(len(p.w.stale), deleteBatch)
	keys := p.w.stale[:n]
	for _, key := range keys {
		invariants.Assert(key != p.view.Load().ptr.Manifest, "trim of the committed manifest %s", key)
	}
	if err := p.a.remove(ctx, "manifest", keys); err != nil {
		return err
	}
	p.w.stale = slices.Clone(p.w.stale[n:])
	return nil
}

// sweeps: a sweep is worth it once after the election, and again if something was committed since the last one. An idle
// partition costs nothing.
func (p *Partition) sweeps() bool { return p.w.committed && len(p.w.collect.orphans) == 0 }

// sweep looks for what earlier leaders left behind: segment objects of older leader epochs that the committed manifest
// does not list (no age, no clock: PROTOCOLS 3.5), manifests below the committed one, and groups that it does not list.
func (p *Partition) sweep(ctx context.Context) error {
	v := p.view.Load()
	if err := p.sweepManifests(ctx, v); err != nil {
		return err
	}
	orphans, err := p.findOrphans(ctx, v)
	if err != nil {
		return err
	}
	if len(orphans) > 0 && (v.man.N == 0 || v.man.LeaderEpoch != p.epoch || v.man.Incarnation != p.a.o.Incarnation) {
		// The doom of an orphan is a committed manifest of this epoch that does not list it.
		same := func(context.Context, *manifest.Manifest) (manifest.Edit, bool, error) {
			return manifest.Edit{}, true, nil
		}
		return p.commit(ctx, "sweep", same, nil) // then the sweep again: the list is made after the commit
	}
	p.w.sweepAt = time.Now().Add(p.a.jitter(p.a.o.SweepInterval))
	p.w.committed = false
	if len(orphans) > 0 {
		p.a.m.entries.WithLabelValues("orphan").Add(float64(len(orphans)))
		p.w.collect.orphans = orphans
		p.w.collect.restart(p.a.gate.mark())
	}
	return nil
}

// findOrphans lists up to deleteBatch orphans; the rest is found after they are gone.
func (p *Partition) findOrphans(ctx context.Context, v *view) ([]string, error) {
	var old []string
	for i, err := range p.a.bucket.List(ctx, manifest.SegmentPrefix(p.id), "") {
		if err != nil {
			return nil, fmt.Errorf("list segments of %v: %w", p.id, err)
		}
		p.a.clock.saw(i)
		if name, ok := manifest.ParseSegmentKey(i.Key); ok && name.LeaderEpoch < p.epoch {
			old = append(old, i.Key)
		}
	}
	if len(old) == 0 {
		return nil, nil
	}
	listed := make(map[string]bool)
	for e, err := range p.a.objects.all(ctx, v.man, -1) {
		if err != nil {
			return nil, err
		}
		if p.a.objects.isOwn(e.Archive) {
			listed[e.Object] = true
		}
	}
	old = slices.DeleteFunc(old, func(key string) bool { return listed[key] })
	return old[:min(len(old), deleteBatch)], nil
}

func (p *Partition) deleteOrphans(ctx context.Context, v *view) error {
	keys := p.w.collect.orphans
	for _, key := range keys {
		name, ok := manifest.ParseSegmentKey(key)
		invariants.Assert(ok && name.LeaderEpoch < p.epoch && v.man.LeaderEpoch == p.epoch && v.man.Key() == v.ptr.Manifest &&
			len(v.ptr.Pins) == 0 && !p.a.gate.closed(), "delete orphan %s: not doomed, pinned, or a newer incarnation is claimed", key)
	}
	if err := p.a.remove(ctx, "segment", keys); err != nil {
		return err
	}
	p.w.collect.orphans = nil
	if len(keys) == deleteBatch {
		p.w.sweepAt, p.w.committed = time.Time{}, true
	}
	return nil
}

// sweepManifests deletes what precedes the committed manifest, again and again: a late PUT of a deposed leader may leave
// something there at any time.
func (p *Partition) sweepManifests(ctx context.Context, v *view) error {
	if v.man.N == 0 {
		return nil
	}
	own := v.man.Key()
	var keys []string
	for i, err := range p.a.bucket.List(ctx, manifest.ManifestPrefix(p.id), "") {
		if err != nil {
			return fmt.Errorf("list manifests of %v: %w", p.id, err)
		}
		if i.Key >= own {
			break
		}
		if _, ok := manifest.ParseManifestKey(i.Key); ok {
			keys = append(keys, i.Key)
		}
	}
	if err := p.a.remove(ctx, "manifest", keys); err != nil {
		return err
	}
	keys, err := p.staleGroups(ctx, v)
	if err != nil {
		return err
	}
	return p.a.remove(ctx, "group", keys)
}

// staleGroups lists groups written for manifests up to the committed one that it does not list. A later manifest can only
// list groups of the committed one or its own.
func (p *Partition) staleGroups(ctx context.Context, v *view) ([]string, error) {
	listed := make(map[string]bool, len(v.man.Groups))
	for i := range v.man.Groups {
		listed[v.man.Groups[i].Object] = true
	}
	own := v.man.Key()
	var keys []string
	for i, err := range p.a.bucket.List(ctx, manifest.GroupPrefix(p.id), "") {
		if err != nil {
			return nil, fmt.Errorf("list groups of %v: %w", p.id, err)
		}
		if name, ok := manifest.ParseGroupKey(i.Key); ok && name.ManifestName.Key() <= own && !listed[i.Key] {
			keys = append(keys, i.Key)
		}
	}
	return keys, nil
}
