package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// view is a committed manifest and the pointer that committed it. Immutable.
type view struct {
	ptr Pointer
	man *manifest.Manifest

	size    int64 // bytes of live objects
	start   int64 // first live archived offset
	hasLive bool
}

func newView(ptr Pointer, m *manifest.Manifest) *view {
	v := &view{ptr: ptr, man: m}
	live := func(base, size int64) {
		if !v.hasLive {
			v.start, v.hasLive = max(base, m.LogStart), true
		}
		v.size += size
	}
	for i := range m.Groups {
		if g := &m.Groups[i]; g.Live() > 0 {
			live(g.Base, g.LiveBytes)
		}
	}
	for i := range m.Entries {
		if e := &m.Entries[i]; e.State == manifest.Live {
			live(e.Base, e.SizeBytes)
		}
	}
	return v
}

// Partition is the archive of one partition that this broker leads. All methods may be called concurrently.
type Partition struct {
	a     *Archive
	id    manifest.PartitionID
	epoch int32 // leader epoch, fixed for this value's life
	src   Source
	slot  *slot

	view     atomic.Pointer[view]
	notified atomic.Bool               // a look is due that will see what Notify announces
	since    atomic.Pointer[time.Time] // when about the oldest committed record that is not archived was appended; nil: there is none

	mu      sync.Mutex
	config  TopicConfig // guarded by mu
	ended   error       // guarded by mu; ErrFenced or ErrResigned: for good
	flushTo int64       // guarded by mu; archive below it without waiting for the lag
	waiters []waiter    // guarded by mu

	seq sequence // sequential readers

	// Owned by whoever runs due or step, of which one runs at a time.
	w work
}

// work is the state of a partition's task.
type work struct {
	lastN     uint64             // last manifest number tried in this epoch
	found     int64              // archived-through when this leader began: below it the archive may know append times that the log has lost
	pending   *pending           // a commit under way
	up        *upload            // a segment on its way
	notBefore time.Time          // back-off
	failures  int                // in a row
	retainAt  time.Time          // next look at retention.ms
	retainFor TopicConfig        // what the last look at retention went by
	retained  *manifest.Manifest // and on
	sweepAt   time.Time          // next look for orphans
	doomAgain time.Time          // not before: after a pin
	collect   collection         // doomed objects and orphans on their way out
	stale     []string           // manifests and groups below the committed one
	committed bool               // something was committed since the last sweep
}

type waiter struct {
	through int64
	done    chan error // capacity 1
}

// Lead starts archiving a partition that this broker leads in leaderEpoch. It reads the pointer and its manifest, and builds
// on that manifest only. Errors: ErrFenced, ErrBehind, *DivergedError (the local log must start from the archive),
// *ManifestError, and the stores' own, which may be tried again.
func (a *Archive) Lead(ctx context.Context, id manifest.PartitionID, leaderEpoch int32, src Source, c TopicConfig) (*Partition, error) {
	v, err := a.elected(ctx, id, leaderEpoch)
	if err != nil {
		return nil, err
	}
	if err := diverges(id, v.man, src.Log()); err != nil {
		return nil, err
	}
	p := &Partition{a: a, id: id, epoch: leaderEpoch, src: src, config: c}
	p.slot = newSlot(p)
	p.view.Store(v)
	p.w.lastN, p.w.found = v.ptr.N, v.man.Through
	p.w.sweepAt = time.Now().Add(a.jitter(a.o.SweepInterval))
	p.w.committed = v.man.N > 0
	p.w.collect.since = a.gate.mark()
	if err := p.revive(ctx); err != nil {
		return nil, err
	}
	if v.man.LogStart > src.Log().LogStart() { // committed, but the broker went down before it was applied
		if err := src.SetLogStart(v.man.LogStart); err != nil {
			return nil, fmt.Errorf("set log start %d: %w", v.man.LogStart, err)
		}
	}
	p.startWaiting()
	a.register(p)
	a.sched.urge(p.slot)
	return p, nil
}

// elected reads the pointer after the election and the manifest behind it.
func (a *Archive) elected(ctx context.Context, id manifest.PartitionID, epoch int32) (*view, error) {
	ptr, err := a.pointers.Load(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("load pointer of %v: %w", id, err)
	}
	switch {
	case ptr.Incarnation != a.o.Incarnation || ptr.LeaderEpoch > epoch:
		return nil, fmt.Errorf("partition %v is at incarnation %d, leader epoch %d: %w", id, ptr.Incarnation, ptr.LeaderEpoch, ErrFenced)
	case ptr.LeaderEpoch < epoch:
		return nil, fmt.Errorf("partition %v is at leader epoch %d, not yet %d: %w", id, ptr.LeaderEpoch, epoch, ErrBehind)
	}
	m, err := a.objects.manifestOf(ctx, a.o.Cluster, id, ptr)
	if err != nil {
		return nil, err
	}
	return newView(ptr, m), nil
}

// manifestOf reads the manifest behind a pointer. Missing, damaged or of another partition is an error, never a fresh start.
func (o *objects) manifestOf(ctx context.Context, cluster string, id manifest.PartitionID, ptr Pointer) (*manifest.Manifest, error) {
	if ptr.Manifest == "" {
		if ptr.N != 0 || ptr.Through != 0 {
			return nil, &ManifestError{id, ptr.Manifest, fmt.Errorf("the pointer has n %d, archived through %d, but no manifest", ptr.N, ptr.Through)}
		}
		return manifest.Empty(cluster, id, 0), nil
	}
	b, _, err := objstore.ReadAll(ctx, o.bucket, ptr.Manifest, manifestMax)
	if err != nil {
		if errors.Is(err, objstore.ErrNotFound) {
			return nil, &ManifestError{id, ptr.Manifest, err}
		}
		return nil, fmt.Errorf("read manifest %s: %w", ptr.Manifest, err)
	}
	m, err := manifest.DecodeManifest(b)
	switch {
	case err != nil:
		return nil, &ManifestError{id, ptr.Manifest, err}
	case m.Key() != ptr.Manifest || m.Partition != id:
		return nil, &ManifestError{id, ptr.Manifest, fmt.Errorf("it is %s", m.Key())}
	case m.N != ptr.N || m.Through != ptr.Through:
		return nil, &ManifestError{id, ptr.Manifest, fmt.Errorf("n %d through %d, the pointer says %d through %d", m.N, m.Through, ptr.N, ptr.Through)}
	}
	return m, nil
}

// reread returns a newer view than v if there is one, without taking it over: a reader of a leader that has been
// deposed may go on reading.
func (p *Partition) reread(ctx context.Context, v *view) (*view, error) {
	if now := p.view.Load(); now != v {
		return now, nil
	}
	ptr, err := p.a.pointers.Load(ctx, p.id)
	if err != nil {
		return nil, err
	}
	if ptr.Manifest == v.ptr.Manifest {
		return v, nil
	}
	m, err := p.a.objects.manifestOf(ctx, p.a.o.Cluster, p.id, ptr)
	if err != nil {
		return nil, err
	}
	return newView(ptr, m), nil
}

// Notify: the log grew, rolled or its committed offset moved. Cheap, never blocks.
func (p *Partition) Notify() {
	if p.notified.CompareAndSwap(false, true) {
		p.a.sched.poke(p.slot)
	}
}

// SetConfig replaces the topic's configuration.
func (p *Partition) SetConfig(c TopicConfig) {
	p.mu.Lock()
	p.config = c
	p.mu.Unlock()
	p.a.sched.urge(p.slot)
}

// topic returns the configuration.
func (p *Partition) topic() TopicConfig {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config
}

// Resign: no longer leader. Stops for good and cancels what is under way; reads go on from the last committed manifest.
func (p *Partition) Resign() { p.end(ErrResigned) }

// Err tells why the partition has stopped: ErrFenced, ErrResigned, or nil while it has not.
func (p *Partition) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

func (p *Partition) end(why error) {
	p.mu.Lock()
	first := p.ended == nil
	if first {
		p.ended = why
	}
	waiters := p.waiters
	p.waiters = nil
	p.mu.Unlock()
	for _, w := range waiters {
		w.done <- why
	}
	if !first {
		return
	}
	p.since.Store(nil)
	p.a.sched.stop(p.slot)
	if errors.Is(why, ErrResigned) {
		p.a.owe(p)
	}
	p.a.unregister(p)
	if errors.Is(why, ErrFenced) {
		p.a.m.fenced.Inc()
		p.a.o.Logger.Info("archive of the partition has a newer leader", "partition", p.id, "epoch", p.epoch)
	}
}

// Through is the committed archived-through offset, exclusive; ThroughTime its append time, ms.
func (p *Partition) Through() int64     { return p.view.Load().man.Through }
func (p *Partition) ThroughTime() int64 { return p.view.Load().man.ThroughTime }

// Start is the first live archived offset; false if nothing is archived.
func (p *Partition) Start() (int64, bool) {
	v := p.view.Load()
	return v.start, v.hasLive
}

// SizeBytes is the size of the live objects.
func (p *Partition) SizeBytes() int64 { return p.view.Load().size }

// Manifest is the committed one, read only. N is 0 before the first commit.
func (p *Partition) Manifest() *manifest.Manifest { return p.view.Load().man }

// DeleteBefore tells that the log start has moved (DeleteRecords): entries below it are marked dead, asynchronously. It is
// the log's own start that counts, so that nothing is lost if this broker stops before that.
func (p *Partition) DeleteBefore(int64) { p.a.sched.urge(p.slot) }

// Flush uploads everything committed now and commits it; for a drain, bounded by ctx. It needs Run.
func (p *Partition) Flush(ctx context.Context) error {
	target := p.src.Committed()
	w := waiter{target, make(chan error, 1)}
	p.mu.Lock()
	switch {
	case p.ended != nil:
		defer p.mu.Unlock()
		return p.ended
	case p.Through() >= target || p.config.CopyDisabled:
		p.mu.Unlock()
		return nil
	}
	p.flushTo = max(p.flushTo, target)
	p.waiters = append(p.waiters, w)
	p.mu.Unlock()
	p.a.sched.urge(p.slot)
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reached wakes the flushes that a commit has satisfied.
func (p *Partition) reached(through int64) {
	p.mu.Lock()
	rest := p.waiters[:0]
	for _, w := range p.waiters {
		if w.through <= through {
			w.done <- nil
		} else {
			rest = append(rest, w)
		}
	}
	clear(p.waiters[len(rest):])
	p.waiters = rest
	p.mu.Unlock()
}

func (p *Partition) flushTarget() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flushTo
}
