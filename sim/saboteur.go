package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore/fault"
)

// saboteur is the nemesis of a cluster. Several things may be wrong at once; what would take more from the cluster than it promises to
// survive is not done, see spared.
type saboteur struct {
	c   *Cluster
	rng *rand.Rand // owned by run
	wg  sync.WaitGroup

	farewell *rand.Rand // owned by run; see forgets

	mu      baton            // held over the end of a process
	tainted map[int32]*taint // guarded by mu; disks that have lost something
}

// taint is a broker whose disk lacks what its log had, until the controller has dealt with its return.
type taint struct {
	by    *life // that lost it
	parts map[manifest.PartitionID]bool
}

func newSaboteur(c *Cluster, rng *rand.Rand) *saboteur {
	return &saboteur{c: c, rng: rng, farewell: c.rand("farewell"), mu: newBaton(), tainted: map[int32]*taint{}}
}

func (s *saboteur) ms(n int) time.Duration { return time.Duration(s.rng.IntN(n)) * time.Millisecond }

// run works until ctx ends, and returns when no fault is being made any more.
func (s *saboteur) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause(ctx, s.ms(5000))
		if ctx.Err() != nil {
			break
		}
		n := s.c.nodes[s.rng.IntN(len(s.c.nodes))]
		switch s.rng.IntN(19) {
		case 0, 1:
			s.end(ctx, n, kill)
		case 2, 3:
			s.end(ctx, n, machine)
		case 4:
			s.end(ctx, n, lost)
		case 5, 6:
			s.end(ctx, n, drained)
		case 7:
			s.badDisk(ctx, n)
		case 8, 9:
			s.freeze(ctx, n)
		case 10, 11, 12:
			s.cut(ctx, n)
		case 13:
			s.metaAway(ctx, n)
		case 14:
			s.metaFlaky()
		case 15, 16:
			s.setClock(ctx, n)
		case 17:
			s.badDisk(ctx, n)
		default:
			s.store(ctx, n)
		}
		if s.rng.IntN(4) == 0 {
			s.keep(s.c.nodes[s.rng.IntN(len(s.c.nodes))])
		}
	}
	s.wg.Wait()
}

type ending int

const (
	kill    ending = iota // kill -9
	machine               // power loss: what was not synced is torn
	lost                  // and the disk with it: it comes back empty, or as it was earlier
	drained               // SIGTERM
)

var endings = []string{"killed", "crashed", "lost", "drained"}

// end ends a broker's process and starts another after a while. Everything is drawn here, since what follows runs beside other faults.
func (s *saboteur) end(ctx context.Context, n *node, how ending) {
	seed, down := s.rng.Uint64(), s.ms(9000)
	empty := s.rng.IntN(2) == 0
	if (how == machine || how == lost) && !s.c.shape.machines {
		how = kill
	}
	if how == machine && s.c.shape.partings {
		how = lost
	}
	forgotten := s.forgets(how)
	if !n.hands.TryLock() {
		return
	}
	s.wg.Go(func() {
		defer n.hands.Unlock()
		if !s.finish(n, how, seed, empty) {
			return
		}
		if forgotten {
			s.unregister(ctx, n, seed)
		}
		pause(ctx, down)
		n.start(s.c.ctx)
	})
}

// badDisk fails one call to a broker's disk, or leaves it little room for a while. What the disk has refused is offline on that broker
// until it starts anew: at once, or when something else ends it. All the rest of it is served meanwhile.
func (s *saboteur) badDisk(ctx context.Context, n *node) {
	full, again, lasts, down := s.rng.IntN(2) == 0, s.rng.IntN(3) == 0, s.ms(8000), s.ms(3000)
	room := s.rng.IntN(8 << 10)
	op := []string{"write", "sync", "rename", "read", "open", "syncdir", "truncate"}[s.rng.IntN(7)]
	nth := 1 + s.rng.IntN(10)
	if !n.hands.TryLock() {
		return
	}
	s.wg.Go(func() {
		defer n.hands.Unlock()
		n.doubtful = true
		if full {
			s.c.event("broker %d: the disk has room for %d bytes", n.id, room)
			n.files.SetSpace(int64(room))
		} else {
			s.c.event("broker %d: %s %d from now fails", n.id, op, nth)
			n.files.FailNth(nth, op, "", nil)
		}
		pause(ctx, lasts)
		n.files.SetSpace(-1)
		if again && s.finish(n, kill, 0, false) {
			pause(ctx, down)
			n.start(s.c.ctx)
		}
	})
}

// finish ends the process; false: it was spared.
func (s *saboteur) finish(n *node, how ending, seed uint64, empty bool) bool {
	l := n.now()
	if l == nil {
		return false
	}
	if how == drained {
		if !s.beginDrain(n) {
			s.c.event("broker %d is not drained", n.id)
			return false
		}
		defer n.draining.Store(false)
		s.c.event("broker %d drains", n.id)
		if err := l.drain(); err != nil {
			s.c.event("broker %d drained: %v", n.id, err)
			s.c.history.blur(false)
		}
		n.set(nil)
		n.files.Kill()
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mayEnd(n) {
		s.c.event("broker %d is spared", n.id)
		return false
	}
	loses := (how == machine || how == lost) && s.mayLose(n)
	if !loses {
		s.c.event("broker %d is %s", n.id, endings[min(how, kill)])
		n.killed()
		return true
	}
	s.c.event("broker %d is %s", n.id, endings[how])
	s.c.fabric.crashed(n.id)
	durable := recoveryPoints(l)
	l.kill()
	n.set(nil)
	s.c.history.blur(true)
	s.taint(n, l)
	if how == lost {
		durable = nil
	}
	s.c.diskGone(n.id, durable)
	switch {
	case how == lost && !empty && n.older != nil:
		s.c.event("broker %d gets an older disk", n.id)
		n.files, n.dir, n.older = n.older.files, n.older.dir, nil
	case how == lost:
		n.newDisk()
	default:
		n.files.Crash(seed)
	}
	return true
}

// keep remembers what a disk is like now, for it to come back like that.
func (s *saboteur) keep(n *node) {
	if n.hands.TryLock() {
		defer n.hands.Unlock()
		n.older = &snapshot{n.files.Copy(), n.dir}
	}
}

// eachISR calls f for each partition in whose ISR the broker is, with the others in it.
func (s *saboteur) eachISR(id int32, f func(p *meta.Partition, others []int32)) {
	img, err := s.c.image()
	if err != nil {
		return
	}
	for _, t := range img.TopicsByID {
		if s.c.history.sole(t.ID) {
			continue // what it has on a disk may go with the disk
		}
		for _, p := range t.Partitions {
			if slices.Contains(p.ISR, id) {
				f(p, slices.DeleteFunc(slices.Clone(p.ISR), func(o int32) bool { return o == id }))
			}
		}
	}
}

// mayEnd says that the broker's process may end without its clean-shutdown mark: it is not the one that the cluster needs to know who
// has everything. Called with mu held.
//
// A controller that finds all of an ISR come back unclean cannot tell who has lost what. So where a member's disk has lost something
// and the controller has not dealt with that, another sound one must go on running.
func (s *saboteur) mayEnd(n *node) bool {
	s.forget()
	ok := true
	s.eachISR(n.id, func(p *meta.Partition, others []int32) {
		needed := slices.ContainsFunc(others, func(o int32) bool { return s.taints(o, p.ID) })
		if needed && !slices.ContainsFunc(others, func(o int32) bool { return s.sound(o, p.ID) }) {
			ok = false
		}
	})
	return ok
}

// beginDrain says that the broker may be drained. It is not where two others have lost something of a partition and the controller does
// not know of it: it would hand over to them, who together are enough for min.insync.replicas. Where its disk has failed it may not end in
// order, which is like being killed.
func (s *saboteur) beginDrain(n *node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := !n.doubtful || s.mayEnd(n)
	s.forget()
	s.eachISR(n.id, func(p *meta.Partition, others []int32) {
		lost := 0
		for _, o := range others {
			if s.taints(o, p.ID) {
				lost++
			}
		}
		if lost > 1 && !slices.ContainsFunc(others, func(o int32) bool { return s.sound(o, p.ID) }) {
			ok = false
		}
	})
	n.draining.Store(ok)
	return ok
}

// await waits until the broker's process may end.
func (s *saboteur) await(ctx context.Context, n *node) {
	for ; ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
		s.mu.Lock()
		ok := s.mayEnd(n)
		s.mu.Unlock()
		if ok {
			return
		}
	}
}

// mayLose says that the broker's disk may lose something: of each partition that it is in sync with another one has everything, and
// runs. Called with mu held.
func (s *saboteur) mayLose(n *node) bool {
	ok := true
	s.eachISR(n.id, func(p *meta.Partition, others []int32) {
		if !slices.ContainsFunc(others, func(o int32) bool { return s.sound(o, p.ID) }) {
			ok = false
		}
	})
	return ok
}

func (s *saboteur) taints(id int32, p manifest.PartitionID) bool {
	t := s.tainted[id]
	return t != nil && t.parts[p]
}

// sound says that the broker runs, that the cluster knows its process, and that its disk lacks nothing of p.
func (s *saboteur) sound(id int32, p manifest.PartitionID) bool {
	img, err := s.c.image()
	n := s.c.node(id)
	return err == nil && !s.taints(id, p) && !n.draining.Load() && n.admitted(img)
}

func (s *saboteur) taint(n *node, l *life) {
	t := &taint{by: l, parts: map[manifest.PartitionID]bool{}}
	epochs := map[manifest.PartitionID]int32{}
	s.eachISR(n.id, func(p *meta.Partition, _ []int32) { t.parts[p.ID], epochs[p.ID] = true, p.LeaderEpoch })
	s.tainted[n.id] = t
	s.c.history.lacks(n.id, epochs)
}

// forget drops taints that the controller has dealt with.
func (s *saboteur) forget() {
	img, err := s.c.image()
	if err != nil {
		return
	}
	for id, t := range s.tainted {
		n := s.c.node(id)
		l := n.now()
		returned := l != nil && l != t.by && n.admitted(img)
		for p := range t.parts {
			topic := img.TopicsByID[p.Topic]
			if returned || topic == nil || !slices.Contains(topic.Partitions[p.Partition].ISR, id) {
				delete(t.parts, p)
				s.c.history.regained(id, p)
			}
		}
		if returned {
			delete(s.tainted, id)
		}
	}
}

// later undoes a fault after a while, and when ctx ends.
func (s *saboteur) later(ctx context.Context, d time.Duration, undo func()) {
	s.wg.Go(func() {
		pause(ctx, d)
		undo()
	})
}

// freeze holds all that comes from and goes to a broker, as if its process stood still.
func (s *saboteur) freeze(ctx context.Context, n *node) {
	s.c.event("broker %d is frozen", n.id)
	s.c.fabric.cut(n.id, anyHost)
	s.c.fabric.cut(anyHost, n.id)
	s.c.isolate(n.id)
	n.storeAway.Store(true)
	s.later(ctx, s.ms(15_000), func() {
		s.c.event("broker %d is thawed", n.id)
		s.c.fabric.mend(n.id, anyHost)
		s.c.fabric.mend(anyHost, n.id)
		s.c.rejoin(n.id)
		n.storeAway.Store(false)
	})
}

// cut parts a broker from another, one way or both, maybe from the metadata store too, or slows everything down.
func (s *saboteur) cut(ctx context.Context, n *node) {
	other := s.c.nodes[s.rng.IntN(len(s.c.nodes))].id
	there, back, all := s.rng.IntN(3) > 0, s.rng.IntN(3) > 0, s.rng.IntN(4) == 0
	if !there && !back || other == n.id {
		slow := []time.Duration{usualSlow, 30 * time.Millisecond, 300 * time.Millisecond}[s.rng.IntN(3)]
		s.c.event("latency is up to %s", slow)
		s.c.fabric.setSlow(slow)
		return
	}
	var ways [][2]int32
	for _, o := range s.c.nodes {
		if o.id != n.id && (o.id == other || all) { // from one, or from all other brokers, but not from clients
			if there {
				ways = append(ways, [2]int32{n.id, o.id})
			}
			if back {
				ways = append(ways, [2]int32{o.id, n.id})
			}
		}
	}
	isle := s.rng.IntN(3) == 0
	s.c.event("cut %v, broker %d from the metadata %v", ways, n.id, isle)
	for _, w := range ways {
		s.c.fabric.cut(w[0], w[1])
	}
	if isle {
		s.c.isolate(n.id)
	}
	s.later(ctx, s.ms(20_000), func() {
		s.c.event("mended %v", ways)
		for _, w := range ways {
			s.c.fabric.mend(w[0], w[1])
		}
		if isle {
			s.c.rejoin(n.id)
		}
	})
}

// metaAway takes the metadata store from one broker, or from all.
func (s *saboteur) metaAway(ctx context.Context, n *node) {
	ids := []int32{n.id}
	if s.rng.IntN(2) == 0 {
		ids = nil
		for _, n := range s.c.nodes {
			ids = append(ids, n.id)
		}
	}
	s.c.event("metadata store is away from %v", ids)
	for _, id := range ids {
		s.c.isolate(id)
	}
	s.later(ctx, s.ms(20_000), func() {
		s.c.event("metadata store is back for %v", ids)
		for _, id := range ids {
			s.c.rejoin(id)
		}
	})
}

// clockMax is how wrong a clock may be.
const clockMax = time.Hour

// setClock sets a broker's clock forward or back, and right again after a while.
func (s *saboteur) setClock(ctx context.Context, n *node) {
	by := time.Duration(s.rng.Int64N(int64(2*clockMax))) - clockMax
	if s.rng.IntN(3) == 0 {
		by /= 1000 // seconds
	}
	lasts := s.ms(30_000)
	if !s.c.shape.clocks {
		return
	}
	s.c.event("the clock of broker %d is set to %s from now", n.id, by)
	s.c.history.clockSet(by)
	n.ahead.Store(int64(by))
	s.later(ctx, lasts, func() {
		s.c.event("the clock of broker %d is right again", n.id)
		n.ahead.Store(0)
	})
}

func (s *saboteur) metaFlaky() {
	fail, late := []float64{0, 0.05, 0.3}[s.rng.IntN(3)], []float64{0, 0.05, 0.2}[s.rng.IntN(3)]
	slow := []time.Duration{usualSlow, 50 * time.Millisecond, time.Second}[s.rng.IntN(3)]
	s.c.event("metadata store fails with chance %.2f, is late with %.2f, takes up to %s", fail, late, slow)
	s.c.metaFaults.set(fail, late, slow)
}

// store takes the object store from one broker, or gives it faults for all.
func (s *saboteur) store(ctx context.Context, n *node) {
	if s.rng.IntN(3) == 0 {
		s.c.event("object store is away from broker %d", n.id)
		n.storeAway.Store(true)
		s.later(ctx, s.ms(20_000), func() { n.storeAway.Store(false) })
		return
	}
	rules := storeFaults(s.rng)
	s.c.event("object store has %d kinds of faults", len(rules)-1)
	s.c.late = s.c.late || slices.ContainsFunc(rules, func(r fault.Rule) bool { return r.Effect == fault.Late })
	s.c.store.SetRules(rules...)
}

// heal ends all faults, but for processes that are down.
func (s *saboteur) heal() {
	s.c.event("heal")
	s.c.fabric.heal()
	s.c.metaFaults.set(0, 0, usualSlow)
	s.c.store.SetRules()
	for _, n := range s.c.nodes {
		n.storeAway.Store(false)
		n.ahead.Store(0)
	}
}
