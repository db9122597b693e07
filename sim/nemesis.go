package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/meta/memkv"
	"github.com/varvelog/varve/objstore/fault"
)

// nemesis makes what can go wrong go wrong, one thing after another.
type nemesis struct {
	w   *World
	rng *rand.Rand

	mu   sync.Mutex
	meta float64    // guarded by mu; chance that a request to the metadata store fails
	dice *rand.Rand // guarded by mu
	cut  bool       // guarded by mu; the metadata store is away
}

func newNemesis(w *World, rng *rand.Rand) *nemesis {
	return &nemesis{w: w, rng: rng, dice: w.rand("metadata faults")}
}

// run works until ctx ends.
func (n *nemesis) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(n.rng.IntN(9000))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		switch k := n.rng.IntN(12); {
		case k < 4 && n.w.plan.crashes:
			n.crash(ctx)
		case k == 4:
			n.drain(ctx)
		case k == 5 && n.w.plan.crashes:
			n.fullDisk(ctx)
		case k == 6 && n.w.plan.crashes:
			n.badDisk(ctx)
		case k == 7:
			n.storeAway(ctx)
		case k == 8 || k == 9:
			n.storeFlaky()
		case k == 10:
			n.metaAway(ctx)
		default:
			n.metaFlaky()
		}
	}
}

// crash ends the process, or the machine, at a random call to the disk or at once, and starts it again.
func (n *nemesis) crash(ctx context.Context) {
	if n.rng.IntN(2) == 0 {
		n.w.files.StopAfter(n.rng.IntN(40))
		pause(ctx, time.Duration(n.rng.IntN(1000))*time.Millisecond)
	}
	n.restart(ctx)
}

func (n *nemesis) restart(ctx context.Context) {
	machine := n.w.plan.machines && n.rng.IntN(2) == 0
	n.w.end(machine, n.rng.Uint64())
	pause(ctx, time.Duration(n.rng.IntN(1500))*time.Millisecond)
	n.w.revive(ctx)
}

// end ends the running process without warning.
func (w *World) end(machine bool, seed uint64) {
	p := w.process()
	w.history.anchor(p)
	floors := w.offsets.floors(p)
	if p != nil {
		p.kill()
	}
	w.history.blur(machine)
	if !machine {
		w.event("process killed")
		w.files.Kill()
		return
	}
	w.event("machine crashed")
	w.history.machineCrashed()
	w.offsets.machineCrashed(floors)
	w.files.Crash(seed)
}

func (n *nemesis) drain(ctx context.Context) {
	if p := n.w.process(); p != nil {
		n.w.event("drain")
		if err := p.drain(); err != nil {
			n.w.event("drained: %v", err)
		}
		n.w.files.Kill()
	}
	n.w.revive(ctx)
}

// fullDisk leaves little room for a while. What the disk refused may have taken logs offline: the process starts anew.
func (n *nemesis) fullDisk(ctx context.Context) {
	n.w.event("disk is nearly full")
	n.w.files.SetSpace(int64(n.rng.IntN(8 << 10)))
	pause(ctx, time.Duration(n.rng.IntN(8000))*time.Millisecond)
	n.w.files.SetSpace(-1)
	n.restart(ctx)
}

// badDisk fails a call.
func (n *nemesis) badDisk(ctx context.Context) {
	op := []string{"write", "sync", "rename", "read", "open", "syncdir", "truncate"}[n.rng.IntN(7)]
	nth := 1 + n.rng.IntN(10)
	n.w.event("%s %d from now fails", op, nth)
	n.w.files.FailNth(nth, op, "", nil)
	pause(ctx, time.Duration(n.rng.IntN(8000))*time.Millisecond)
	n.restart(ctx)
}

func (n *nemesis) storeAway(ctx context.Context) {
	n.w.event("object store is away")
	n.w.store.SetRules(fault.Rule{Effect: fault.Fail, Latency: time.Duration(n.rng.IntN(300)) * time.Millisecond})
	pause(ctx, time.Duration(n.rng.IntN(25_000))*time.Millisecond)
	n.storeFlaky()
}

// storeFlaky replaces the faults of the object store.
func (n *nemesis) storeFlaky() {
	rules := storeFaults(n.rng)
	n.w.event("object store has %d kinds of faults", len(rules)-1)
	n.w.late = n.w.late || slices.ContainsFunc(rules, func(r fault.Rule) bool { return r.Effect == fault.Late })
	n.w.store.SetRules(rules...)
}

// storeFaults draws some kinds of faults; the last rule is the latency of what none of them hits.
func storeFaults(rng *rand.Rand) []fault.Rule {
	var rules []fault.Rule
	ms := func(max int) time.Duration { return time.Duration(1+rng.IntN(max)) * time.Millisecond }
	all := []fault.Rule{
		{Op: fault.Put, Chance: 0.3, Effect: fault.Lost, Latency: ms(200)},
		{Op: fault.Put, Chance: 0.2, Effect: fault.Late, Delay: ms(20_000)},
		{Op: fault.Delete, Chance: 0.2, Effect: fault.Late, Delay: ms(10_000)},
		{Op: fault.Delete, Chance: 0.3, Effect: fault.Lost},
		{Op: fault.Get, Chance: 0.2, Effect: fault.Truncate, At: int64(rng.IntN(2000))},
		{Op: fault.List, Chance: 0.2, Effect: fault.Lost},
		{Chance: 0.2, Effect: fault.Throttle},
		{Chance: 0.2, Effect: fault.Fail},
		{Chance: 0.5, Effect: fault.Slow, Latency: ms(3000)},
	}
	for _, r := range all {
		if rng.IntN(3) == 0 {
			rules = append(rules, r)
		}
	}
	return append(rules, fault.Rule{Latency: ms(30)})
}

func (n *nemesis) metaAway(ctx context.Context) {
	n.w.event("metadata store is away")
	n.setCut(true)
	pause(ctx, time.Duration(n.rng.IntN(25_000))*time.Millisecond)
	n.setCut(false)
	n.w.event("metadata store is back")
}

func (n *nemesis) setCut(cut bool) {
	n.mu.Lock()
	n.cut = cut
	n.mu.Unlock()
	p := n.w.process()
	switch {
	case p == nil:
	case cut:
		p.kv.Disconnect()
	default:
		p.kv.Connect()
	}
}

func (n *nemesis) metaFlaky() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.meta = []float64{0, 0.05, 0.3}[n.rng.IntN(3)]
	n.w.event("metadata store fails with chance %.2f", n.meta)
}

// client gives a process's metadata client the faults of the moment.
func (n *nemesis) client(kv *memkv.KV) {
	n.mu.Lock()
	cut := n.cut
	n.mu.Unlock()
	if cut {
		kv.Disconnect()
	}
	kv.Hook(func(c memkv.Call) memkv.Outcome {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.dice.Float64() >= n.meta {
			return memkv.OK
		}
		if c.Kind == "txn" && n.dice.IntN(2) == 0 {
			return memkv.Unknown
		}
		return memkv.Refuse
	})
}

// heal ends all faults.
func (n *nemesis) heal() {
	n.w.event("heal")
	n.w.store.SetRules()
	n.w.files.SetSpace(-1)
	n.setCut(false)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.meta = 0
}
