package replica

import (
	"context"
	"hash/maphash"
	"sync"
)

// fetchers are the lanes on which this broker fetches what it follows: some for each leader, each with its own connection, so that many
// partitions share a request.
type fetchers struct {
	m    *Manager
	seed maphash.Seed

	mu     sync.Mutex
	lanes  map[laneKey]*lane    // guarded by mu
	on     map[*Partition]*lane // guarded by mu
	start  []*lane              // guarded by mu; made, and not running yet
	signal chan struct{}        // buffered 1: start has grown
}

type laneKey struct {
	leader int32
	n      int
}

func newFetchers(m *Manager) *fetchers {
	return &fetchers{
		m: m, seed: maphash.MakeSeed(), lanes: map[laneKey]*lane{}, on: map[*Partition]*lane{}, signal: make(chan struct{}, 1),
	}
}

// assign has p fetched from its leader, from the next request on.
func (f *fetchers) assign(p *Partition, a assignment) {
	if f.m.o.Upstream == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := laneKey{a.leader, int(maphash.Comparable(f.seed, p.id) % uint64(f.m.o.Fetchers))}
	if old := f.on[p]; old != nil && old.key != key {
		old.remove(p)
	}
	l := f.lanes[key]
	if l == nil {
		l = newLane(f.m, key)
		f.lanes[key] = l
		f.start = append(f.start, l)
		select {
		case f.signal <- struct{}{}:
		default:
		}
	}
	f.on[p] = l
	l.add(p, a.epoch)
}

// drop ends the fetching of p. An answer under way is not taken any more, once p's role has changed.
func (f *fetchers) drop(p *Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.on[p]; l != nil {
		l.remove(p)
		delete(f.on, p)
	}
}

// resume goes on with a partition whose log was replaced meanwhile.
func (f *fetchers) resume(p *Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.on[p]; l != nil {
		l.resume(p)
	}
}

// run runs the lanes until ctx ends. Their number is bounded by brokers times num.replica.fetchers; a lane that has nothing to fetch
// costs a sleeping goroutine.
func (f *fetchers) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		f.mu.Lock()
		start := f.start
		f.start = nil
		f.mu.Unlock()
		for _, l := range start {
			wg.Go(func() { l.run(ctx) })
		}
		select {
		case <-f.signal:
		case <-ctx.Done():
			return
		}
	}
}
