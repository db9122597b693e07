package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// journal is what a run is made from, what happened in it, and the first rule that it broke. All methods may be called concurrently.
type journal struct {
	seed  uint64
	world string // the value of SIM_WORLD that replays it
	log   *slog.Logger
	began time.Time

	ctx  context.Context // of the workload
	stop context.CancelFunc

	mu      sync.Mutex
	failure *Violation // guarded by mu; the first one
	trace   []string   // guarded by mu; the last events
}

// Violation is a rule that a run broke.
type Violation struct {
	Seed   uint64
	World  string // "broker" or "cluster"
	Rule   string
	Detail string
	Trace  []string // the last events before
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s, seed %d: broken rule: %s\n\t%s\nlast events:\n\t%s\nreplay: SIM_WORLD=%s SIM_SEED=%d go test -run TestSeeds ./sim",
		v.World, v.Seed, v.Rule, v.Detail, strings.Join(v.Trace, "\n\t"), v.World, v.Seed)
}

// begin starts the clock of the run.
func (j *journal) begin() {
	j.began = time.Now()
	j.ctx, j.stop = context.WithCancel(context.Background())
}

// rand is a generator of its own for each part of the run, so that they do not disturb each other.
func (j *journal) rand(part string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, c := range []byte(part) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(j.seed, h))
}

const traceLength = 100

// event remembers what happened, for the report of a violation.
func (j *journal) event(format string, args ...any) {
	s := fmt.Sprintf("%9.3fs ", time.Since(j.began).Seconds()) + fmt.Sprintf(format, args...)
	j.log.Info("sim: " + s)
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.trace) == traceLength {
		j.trace = j.trace[1:]
	}
	j.trace = append(j.trace, s)
}

// violate ends the run with a broken rule; the first one counts.
func (j *journal) violate(rule, detail string) {
	j.event("BROKEN: %s: %s", rule, detail)
	j.mu.Lock()
	if j.failure == nil {
		j.failure = &Violation{Seed: j.seed, World: j.world, Rule: rule, Detail: detail, Trace: append([]string(nil), j.trace...)}
	}
	j.mu.Unlock()
	j.stop()
}

// verdict is the first broken rule, nil if there is none.
func (j *journal) verdict() *Violation {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failure
}

func (j *journal) failed() bool { return j.verdict() != nil }
