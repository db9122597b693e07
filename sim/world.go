package sim

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/manifest"
)

// World is one run. New and Run belong into the same synctest bubble.
type World struct {
	stage
	mutant Mutant

	files   *vfs.Mem
	ages    *ages
	faults  *nemesis
	network network
	offsets *offsets

	procMu  sync.Mutex
	running *process // guarded by procMu; nil: none
}

// Options of a run. The zero value is a run without planted bugs that logs nothing.
type Options struct {
	Mutant  Mutant        // of a run with one broker
	Cluster ClusterMutant // of one with several
	Logger  *slog.Logger
}

// New draws a world from the seed; nothing runs yet.
func New(seed uint64, o Options) *World {
	w := &World{mutant: o.Mutant, files: vfs.NewMem(), ages: &ages{at: map[string]time.Time{}}}
	p := draw(rand.New(rand.NewPCG(seed, 1)))
	w.mutant.adjust(&p)
	w.setUp(seed, "broker", o, p, map[string]string{"offsets.topic.replication.factor": "1"})
	w.offsets = newOffsets(w)
	w.history.dropped = w.offsets.drop
	w.caller = func(*rand.Rand) caller { return &client{dial: w.network.dial} }
	w.leader = w.led
	w.undelete = w.undeleteNow
	w.faults = newNemesis(w, w.rand("nemesis"))
	return w
}

// Run goes through the whole run and returns the first broken rule, or nil.
func (w *World) Run() *Violation {
	w.begin()
	defer w.stop()
	w.event("plan %+v mutant %q", w.plan, w.mutant.Name)
	if p := w.revive(w.ctx); p != nil {
		w.work()
	}
	w.faults.heal()
	w.settle()
	if p := w.process(); p != nil {
		p.kill()
	}
	w.store.Wait()
	w.kv.Close()
	return w.verdict()
}

// work runs clients and nemesis side by side until the plan's time is over, or a rule is broken.
func (w *World) work() {
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(w.ctx, w.plan.length)
	defer cancel()
	for i := range w.plan.producers {
		wg.Go(func() { newProducer(&w.stage, i).run(ctx) })
	}
	for i := range w.plan.consumers {
		wg.Go(func() { newConsumer(&w.stage, i).run(ctx) })
	}
	wg.Go(func() { newOperator(&w.stage).run(ctx) })
	wg.Go(func() { newCommitter(w).run(ctx) })
	wg.Go(func() { w.auditAll(ctx) })
	w.faults.run(ctx)
	wg.Wait()
}

// revive starts a broker, again and again, as a supervisor would.
func (w *World) revive(ctx context.Context) *process {
	for ctx.Err() == nil {
		w.event("start")
		p, err := w.boot(ctx)
		if err == nil {
			w.event("serving")
			return p
		}
		pause(ctx, time.Second)
	}
	return nil
}

func (w *World) setRunning(p *process) {
	w.procMu.Lock()
	defer w.procMu.Unlock()
	w.running = p
}

func (w *World) process() *process {
	w.procMu.Lock()
	defer w.procMu.Unlock()
	return w.running
}

// led is the running process's partition, nil if there is none.
func (w *World) led(p *part) *replica.Partition {
	proc := w.process()
	if proc == nil || proc.replicas == nil {
		return nil
	}
	for _, rp := range proc.replicas.All() {
		if rp.ID() == p.id {
			return rp
		}
	}
	return nil
}

var errNoBroker = errors.New("no broker runs")

func (w *World) undeleteNow(ctx context.Context, id manifest.TopicID) error {
	proc := w.process()
	if proc == nil || proc.store == nil {
		return errNoBroker
	}
	return proc.store.UndeleteTopic(ctx, id)
}
