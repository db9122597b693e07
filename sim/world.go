package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/meta/memkv"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/mem"
)

// World is one run. New and Run belong into the same synctest bubble.
type World struct {
	seed   uint64
	plan   plan
	mutant Mutant
	log    *slog.Logger
	config *config.Broker

	bucket *mem.Bucket   // the truth
	store  *fault.Bucket // what brokers see of it
	files  *vfs.Mem
	ages   *ages
	kv     *memkv.KV
	faults *nemesis

	network network
	history *History
	offsets *offsets
	moments *moments
	cluster string // written before the first process serves

	ctx  context.Context // of the workload
	stop context.CancelFunc

	mu      sync.Mutex
	running *process   // guarded by mu; nil: none
	failure *Violation // guarded by mu; the first one
	trace   []string   // guarded by mu; the last events
	began   time.Time
}

// Violation is a rule that a run broke.
type Violation struct {
	Seed   uint64
	Rule   string
	Detail string
	Trace  []string // the last events before
}

func (v *Violation) Error() string {
	return fmt.Sprintf("seed %d: broken rule: %s\n\t%s\nlast events:\n\t%s\nreplay: SIM_SEED=%d go test -run TestSeeds ./sim",
		v.Seed, v.Rule, v.Detail, strings.Join(v.Trace, "\n\t"), v.Seed)
}

// Options of a run. The zero value is a run without planted bugs that logs nothing.
type Options struct {
	Mutant Mutant
	Logger *slog.Logger
}

// New draws a world from the seed; nothing runs yet.
func New(seed uint64, o Options) *World {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &World{seed: seed, plan: draw(rng), mutant: o.Mutant, log: o.Logger, bucket: mem.New(mem.Options{PageKeys: 50}), files: vfs.NewMem(), ages: &ages{at: map[string]time.Time{}}, kv: memkv.New()}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	w.mutant.adjust(&w.plan)
	w.store = fault.New(newLedger(w.bucket, w.violate), fault.Options{Seed: seed})
	w.history = newHistory(w)
	w.offsets = newOffsets(w)
	w.moments = &moments{}
	w.faults = newNemesis(w, w.rand("nemesis"))
	var err error
	w.config, _, err = config.New(map[string]string{
		"node.id": "1", "offsets.topic.num.partitions": "2", "offsets.topic.replication.factor": "1", "auto.create.topics.enable": "false",
		"archive.max.lag.ms": strconv.FormatInt(w.plan.maxLagMs, 10), "archive.restore.window.ms": strconv.FormatInt(w.plan.windowMs, 10),
	})
	if err != nil {
		panic(err) // the keys are ours
	}
	return w
}

// rand is a generator of its own for each part of the run, so that they do not disturb each other.
func (w *World) rand(part string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, c := range []byte(part) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(w.seed, h))
}

// Run goes through the whole run and returns the first broken rule, or nil.
func (w *World) Run() *Violation {
	w.began = time.Now()
	w.ctx, w.stop = context.WithCancel(context.Background())
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
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure
}

// work runs clients and nemesis side by side until the plan's time is over, or a rule is broken.
func (w *World) work() {
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(w.ctx, w.plan.length)
	defer cancel()
	for i := range w.plan.producers {
		wg.Go(func() { newProducer(w, i).run(ctx) })
	}
	for i := range w.plan.consumers {
		wg.Go(func() { newConsumer(w, i).run(ctx) })
	}
	wg.Go(func() { newOperator(w).run(ctx) })
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
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = p
}

func (w *World) process() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running
}

const traceLength = 100

// event remembers what happened, for the report of a violation.
func (w *World) event(format string, args ...any) {
	s := fmt.Sprintf("%9.3fs ", time.Since(w.began).Seconds()) + fmt.Sprintf(format, args...)
	w.log.Info("sim: " + s)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.trace) == traceLength {
		w.trace = w.trace[1:]
	}
	w.trace = append(w.trace, s)
}

// violate ends the run with a broken rule; the first one counts.
func (w *World) violate(rule, detail string) {
	w.event("BROKEN: %s: %s", rule, detail)
	w.mu.Lock()
	if w.failure == nil {
		w.failure = &Violation{Seed: w.seed, Rule: rule, Detail: detail, Trace: append([]string(nil), w.trace...)}
	}
	w.mu.Unlock()
	w.stop()
}

func (w *World) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure != nil
}
