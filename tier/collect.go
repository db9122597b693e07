package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/invariants"
	"github.com/varvelog/varve/manifest"
)

// deleteBatch is how many objects one step deletes at most.
const deleteBatch = 1000

// collection is what is on its way out of one partition: the doomed entries of the committed manifest, and orphans.
type collection struct {
	since   mark      // taken after the newest doom, or when this leader read the manifest
	wait    wait      // for the leases seen after it
	orphans []string  // keys of older leader epochs that no manifest lists
	next    time.Time // look again
}

func (c *collection) restart(m mark) {
	c.since, c.wait, c.next = m, wait{since: m}, time.Time{}
}

// collects: something is doomed or orphaned, and this incarnation may still delete.
func (p *Partition) collects() bool {
	return (len(p.w.collect.orphans) > 0 || hasDoomed(p.view.Load().man)) && !p.a.gate.closed()
}

func hasDoomed(m *manifest.Manifest) bool {
	return slices.ContainsFunc(m.Groups, func(g manifest.Group) bool { return g.Doomed > 0 }) ||
		slices.ContainsFunc(m.Entries, func(e manifest.Entry) bool { return e.State == manifest.Doomed })
}

// collect goes on with deletion (PROTOCOLS 3.4):
//
//  1. the doom is committed (an earlier step, perhaps an earlier leader);
//  2. LIST the leases, after that; wait until each one seen is gone or expired;
//  3. read the record again, and LIST the claims: still ours, unpinned, no newer incarnation;
//  4. DELETE;
//  5. LIST the objects, and drop the entries whose object is seen gone.
//
// An orphan needs no entry: it is doomed by a committed manifest of this epoch that does not list it, since nobody who
// lists after that commit can meet it, and whoever listed before has a claim or a lease that 2 and 3 find.
func (p *Partition) collect(ctx context.Context) error {
	c := &p.w.collect
	if c.wait.since != c.since {
		c.wait = wait{since: c.since}
	}
	ok, again, err := p.a.gate.pass(ctx, &c.wait)
	if err != nil {
		return err
	}
	if !ok {
		c.next = time.Now().Add(again)
		return nil
	}
	if err := p.refresh(ctx); err != nil {
		return err
	}
	v := p.view.Load()
	if len(v.ptr.Pins) > 0 {
		c.next = time.Now().Add(doomPause)
		return nil
	}
	if err := p.a.gate.claims(ctx); err != nil {
		if errors.Is(err, ErrNewerClaim) {
			return nil // for good: collects is false from now on
		}
		return err
	}
	if len(c.orphans) > 0 {
		return p.deleteOrphans(ctx, v)
	}
	return p.deleteDoomed(ctx, v)
}

// deleteDoomed deletes the objects of doomed entries and drops those that are gone.
func (p *Partition) deleteDoomed(ctx context.Context, v *view) error {
	doomed, needed, err := p.doomedRefs(ctx, v.man)
	if err != nil {
		return err
	}
	gone := make(map[manifest.ObjectRef]bool, len(doomed))
	var keys []string
	for _, ref := range doomed {
		switch {
		case needed[ref]: // a restore lists an object in pieces: it stays for the others
		case !p.a.objects.isOwn(ref.Archive) || !strings.HasPrefix(ref.Object, manifest.SegmentPrefix(p.id)):
			gone[ref] = true // another's object: only our listing of it ends
		default:
			keys = append(keys, ref.Object)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		invariants.Assert(v.man.Key() == v.ptr.Manifest && len(v.ptr.Pins) == 0 && !p.a.gate.closed() && !needed[manifest.ObjectRef{Object: key}],
			"delete %s: not doomed in the committed manifest, pinned, or a newer incarnation is claimed", key)
	}
	if err := p.a.remove(ctx, "segment", keys); err != nil {
		return err
	}
	there, err := p.a.present(ctx, manifest.SegmentPrefix(p.id), keys)
	if err != nil {
		return err
	}
	for _, ref := range doomed {
		if !needed[ref] && !there[ref.Object] {
			gone[ref] = true
		}
	}
	if len(gone) == 0 {
		p.w.collect.next = time.Now().Add(doomPause)
		return nil
	}
	return p.commit(ctx, "drop", func(context.Context, *manifest.Manifest) (manifest.Edit, bool, error) {
		return manifest.Edit{Gone: gone}, true, nil
	}, nil)
}

// doomedRefs lists up to deleteBatch objects of doomed entries, and says which of them an entry that is not doomed needs.
func (p *Partition) doomedRefs(ctx context.Context, m *manifest.Manifest) ([]manifest.ObjectRef, map[manifest.ObjectRef]bool, error) {
	var doomed []manifest.ObjectRef
	seen := make(map[manifest.ObjectRef]bool)
	groups := *m
	groups.Groups = slices.DeleteFunc(slices.Clone(m.Groups), func(g manifest.Group) bool { return g.Doomed == 0 })
	for e, err := range p.a.objects.all(ctx, &groups, -1) {
		if err != nil {
			return nil, nil, err
		}
		if e.State == manifest.Doomed && !seen[e.Ref()] && len(doomed) < deleteBatch {
			seen[e.Ref()] = true
			doomed = append(doomed, e.Ref())
		}
	}
	needed := make(map[manifest.ObjectRef]bool)
	lo, hi := spread(doomed)
	near := *m
	near.Groups = slices.DeleteFunc(slices.Clone(m.Groups), func(g manifest.Group) bool {
		return g.Doomed == g.Count || g.End <= lo || g.Base >= hi
	})
	for e, err := range p.a.objects.all(ctx, &near, -1) {
		if err != nil {
			return nil, nil, err
		}
		if e.State != manifest.Doomed && seen[e.Ref()] {
			needed[e.Ref()] = true
		}
	}
	return doomed, needed, nil
}

// spread is the range of offsets that the objects' keys name: entries that list them lie within.
func spread(refs []manifest.ObjectRef) (lo, hi int64) {
	lo, hi = maxOffset, 0
	for _, r := range refs {
		name, ok := manifest.ParseSegmentKey(r.Object)
		if !ok {
			return 0, maxOffset
		}
		lo, hi = min(lo, name.Base), max(hi, name.Last+1)
	}
	return lo, hi
}

// remove deletes objects.
func (a *Archive) remove(ctx context.Context, kind string, keys []string) error {
	for chunk := range slices.Chunk(keys, deleteBatch) {
		if err := a.bucket.Delete(ctx, chunk...); err != nil {
			return fmt.Errorf("delete %d objects from %s on: %w", len(chunk), chunk[0], err)
		}
		a.m.deleted.WithLabelValues(kind).Add(float64(len(chunk)))
	}
	return nil
}

// present tells which of the keys, sorted and below the prefix, are still there.
func (a *Archive) present(ctx context.Context, prefix string, keys []string) (map[string]bool, error) {
	there := make(map[string]bool)
	if len(keys) == 0 {
		return there, nil
	}
	last := keys[len(keys)-1]
	for i, err := range a.bucket.List(ctx, prefix, before(keys[0])) {
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
		a.clock.saw(i)
		if i.Key > last {
			break
		}
		if _, ok := slices.BinarySearch(keys, i.Key); ok {
			there[i.Key] = true
		}
	}
	return there, nil
}

// before is a string that sorts before key and not far: List's after is exclusive.
func before(key string) string { return key[:len(key)-1] }
