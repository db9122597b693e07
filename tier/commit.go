package tier

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/internal/invariants"
	"github.com/varvelog/varve/manifest"
)

// pending is a commit under way. It survives failures: an object whose PUT had no answer is written again under the same
// key with the same bytes until it is created or refused (PROTOCOLS 1.3).
type pending struct {
	change manifest.Change
	key    string
	body   []byte
	old    Pointer // what the transaction expects
	groups int     // group objects written
	put    bool    // the manifest is written
	doing  string  // for logs and metrics
	done   func()  // after the commit, nil: nothing
}

// build makes the edit of the next manifest from the committed one; false: there is nothing to change.
type build func(ctx context.Context, m *manifest.Manifest) (manifest.Edit, bool, error)

// commit writes and commits the next manifest. After an error p.w.pending may hold the rest of the work, which
// resume goes on with; done runs only once the transaction has gone through.
func (p *Partition) commit(ctx context.Context, doing string, b build, done func()) error {
	invariants.Assert(p.w.pending == nil, "partition %v: two commits at once", p.id)
	for range numbersTried {
		v := p.view.Load()
		e, wanted, err := b(ctx, v.man)
		if err != nil || !wanted {
			return err
		}
		p.w.pending, err = p.prepare(ctx, v, e)
		if err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
		p.w.pending.doing, p.w.pending.done = doing, done
		if err = p.resume(ctx); !errors.Is(err, errOthersBytes) {
			return err
		}
	}
	return fmt.Errorf("%s: the next %d manifest numbers are taken: %w", doing, numbersTried, errOthersBytes)
}

// errNothingDoomed: what has been dead long enough is a piece of an object that another entry still needs.
var errNothingDoomed = errors.New("nothing to doom")

// numbersTried is how many numbers left behind by a former process of this epoch one step passes over.
const numbersTried = 16

// prepare computes the manifest with the next number that this epoch has not tried (PROTOCOLS 1.4).
func (p *Partition) prepare(ctx context.Context, v *view, e manifest.Edit) (*pending, error) {
	n := 1 + max(v.ptr.N, p.w.lastN)
	invariants.Assert(n > p.w.lastN && n > v.man.N, "partition %v: manifest number %d does not rise", p.id, n)
	e.Incarnation, e.LeaderEpoch, e.N = p.a.o.Incarnation, p.epoch, n
	if e.Time == 0 {
		var err error
		if e.Time, err = p.a.deathTime(ctx); err != nil {
			return nil, err
		}
	}
	change, err := p.a.objects.apply(ctx, v.man, e)
	if err != nil {
		return nil, err
	}
	if e.DoomBefore > 0 && change.Doomed == 0 {
		return nil, errNothingDoomed
	}
	p.w.lastN = n
	return &pending{change: change, key: change.Manifest.Key(), body: change.Manifest.Encode(), old: v.ptr}, nil
}

// apply is manifest.Apply with the groups it needs.
func (o *objects) apply(ctx context.Context, m *manifest.Manifest, e manifest.Edit) (manifest.Change, error) {
	loaded := make(map[string][]manifest.Entry)
	for _, g := range m.NeedGroups(e, manifest.Limits{}) {
		list, err := o.group(ctx, &g)
		if err != nil {
			return manifest.Change{}, err
		}
		loaded[g.Object] = list
	}
	return manifest.Apply(m, e, manifest.Limits{}, loaded)
}

// resume goes on with a commit:
//
//  1. the groups, created or found with the same bytes;
//  2. the manifest, created or found with the same bytes;
//  3. the transaction that moves the pointer, guarded by what was read before;
//  4. only now what depends on it: archived-through, deletion.
//
// Other bytes at 1 or 2 are of a former process in this epoch: the number is taken, the edit is made again from the
// committed manifest under the next one. Nothing is ever overwritten or adopted.
func (p *Partition) resume(ctx context.Context) error {
	c := p.w.pending
	for ; c.groups < len(c.change.Groups); c.groups++ {
		g := c.change.Groups[c.groups]
		if err := p.create(ctx, g.Key, g.Body); err != nil {
			return fmt.Errorf("%s: write group %s: %w", c.doing, g.Key, err)
		}
	}
	if !c.put {
		if err := p.create(ctx, c.key, c.body); err != nil {
			return fmt.Errorf("%s: write manifest %s: %w", c.doing, c.key, err)
		}
		c.put = true
		p.a.m.uploads.WithLabelValues("manifest").Inc()
		p.a.m.uploadBytes.WithLabelValues("manifest").Add(float64(len(c.body)))
	}
	stored, err := p.transact(ctx, c)
	if err != nil {
		return fmt.Errorf("%s: commit %s: %w", c.doing, c.key, err)
	}
	p.committed(c, stored)
	return nil
}

// create is createOnce for an object of the pending commit; if the key has other bytes the commit is given up.
func (p *Partition) create(ctx context.Context, key string, body []byte) error {
	err := createOnce(ctx, p.a.bucket, key, body)
	if errors.Is(err, errOthersBytes) {
		p.w.pending = nil // its number is used; the next try has a higher one
	}
	return err
}

// transact moves the pointer. Its answer unknown or refused, the record is read again (PROTOCOLS 1.2, 1.5): it may show
// that the transaction went through, that another leader is elected, or that something beside the pointer has changed.
func (p *Partition) transact(ctx context.Context, c *pending) (Pointer, error) {
	m := c.change.Manifest
	next := c.old
	next.Manifest, next.N, next.Through, next.ThroughTime = c.key, m.N, m.Through, m.ThroughTime
	stored, err := p.a.pointers.Commit(ctx, p.id, c.old, next)
	if err == nil {
		return stored, nil
	}
	if errors.Is(err, ErrConflict) {
		p.a.m.conflicts.Inc()
	}
	now, lerr := p.a.pointers.Load(ctx, p.id)
	switch {
	case lerr != nil:
		return Pointer{}, fmt.Errorf("%w; read the record again: %w", err, lerr)
	case now.Manifest == c.key:
		return now, nil // ours: nobody else has created it
	case now.LeaderEpoch != p.epoch || now.Incarnation != p.a.o.Incarnation:
		p.w.pending = nil
		p.end(ErrFenced)
		return Pointer{}, ErrFenced
	case now.Guard == c.old.Guard:
		return Pointer{}, err // nothing has changed: the same transaction again
	case now.Manifest != c.old.Manifest:
		// The pointer moved in our own epoch: a former process of it committed something late. It is what counts.
		p.w.pending = nil
		return Pointer{}, p.catchUp(ctx, now, err)
	case c.change.Doomed > 0:
		// The pins may have changed: whether anything may be doomed is decided again.
		p.w.pending = nil
		v := *p.view.Load()
		v.ptr = now
		p.view.Store(&v)
		return Pointer{}, err
	}
	c.old = now // the ISR or the pins: the same manifest under the new guard
	next = now
	next.Manifest, next.N, next.Through, next.ThroughTime = c.key, m.N, m.Through, m.ThroughTime
	if stored, err = p.a.pointers.Commit(ctx, p.id, now, next); err != nil {
		return Pointer{}, err
	}
	return stored, nil
}

// catchUp takes over the manifest that a former process of this epoch has committed.
func (p *Partition) catchUp(ctx context.Context, now Pointer, cause error) error {
	m, err := p.a.objects.manifestOf(ctx, p.a.o.Cluster, p.id, now)
	if err != nil {
		return fmt.Errorf("%w; %w", cause, err)
	}
	if err := diverges(p.id, m, p.src.Log()); err != nil {
		return err
	}
	p.w.dropUpload()
	p.w.found = m.Through
	p.view.Store(newView(now, m))
	p.reached(m.Through) // a flush may have waited for just that
	return cause
}

// committed publishes the new manifest. Only what follows from here on may rely on it.
func (p *Partition) committed(c *pending, stored Pointer) {
	m := c.change.Manifest
	old := p.view.Load()
	invariants.Assert(stored.Manifest == c.key && stored.Through == m.Through && stored.N == m.N,
		"partition %v: committed %s through %d, the pointer says %s through %d", p.id, c.key, m.Through, stored.Manifest, stored.Through)
	invariants.Assert(m.Through >= old.man.Through && m.LogStart >= old.man.LogStart,
		"partition %v: archived-through moves back from %d to %d", p.id, old.man.Through, m.Through)
	p.w.pending = nil
	p.w.committed = true
	p.view.Store(newView(stored, m))
	if old.man.N > 0 {
		p.w.stale = append(p.w.stale, old.man.Key())
	}
	p.w.stale = append(p.w.stale, c.change.Replaced...)
	p.a.m.commits.Inc()
	p.a.m.entries.WithLabelValues("doomed").Add(float64(c.change.Doomed))
	p.a.m.entries.WithLabelValues("dropped").Add(float64(c.change.Dropped))
	if len(m.Gaps) > 0 && m.Through > old.man.Through {
		p.countGaps(old.man, m)
	}
	if c.change.Doomed > 0 {
		p.w.collect.restart(p.a.gate.mark())
	}
	if c.done != nil {
		c.done()
	}
	p.reached(m.Through)
	p.assertLocal(m)
	if m.Through > old.man.Through {
		p.a.marker.ring()
	}
}

// assertLocal: the log begins at or below what is committed, so that nothing lies between archive and log.
func (p *Partition) assertLocal(m *manifest.Manifest) {
	log := p.src.Log()
	if start := log.LocalStart(); start > m.Through && log.LogStart() <= m.Through {
		p.a.o.Logger.Error("local log begins above archived-through: records are lost", "partition", p.id, "offset", start, "through", m.Through)
	}
}

func (p *Partition) countGaps(old, now *manifest.Manifest) {
	for _, g := range now.Gaps {
		if g.To > old.Through {
			p.a.m.gaps.Inc()
			p.a.m.gapOffsets.Add(float64(g.To - max(g.From, old.Through)))
			p.a.o.Logger.Warn("gap in the archive", "partition", p.id, "offset", g.From, "end", g.To, "reason", g.Reason)
		}
	}
}
