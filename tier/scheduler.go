package tier

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// coalesce is the shortest time between two evaluations of a partition that nothing failed for: a partition that is
// appended to all the time costs a handful of looks a second, not one per append.
const coalesce = 200 * time.Millisecond

// job is what the scheduler runs: a partition. Due and step are never called at the same time for one job.
type job interface {
	// due says, from memory alone, whether there is something to do now, or else when (zero: only after a Notify).
	due(now time.Time) (bool, time.Time)
	// step does one unit of work. An error has been reported by the job; storeDown says that the store as a whole fails.
	step(ctx context.Context) (storeDown bool)
	// retire is called once, after the last due and step of a job that was stopped.
	retire()
}

// slot is a job's place in the scheduler, guarded by scheduler.mu.
type slot struct {
	job     job
	state   slotState
	again   bool      // notified while running
	stopped bool      // never run again
	at      time.Time // in the heap, if index >= 0
	index   int
	looked  time.Time // last evaluation
	cancel  context.CancelFunc
}

type slotState uint8

const (
	slotIdle slotState = iota
	slotQueued
	slotRunning
)

// scheduler runs the jobs that are due on a bounded number of workers, each job once at a time, in turn. One goroutine,
// in run, evaluates and hands out; an idle job has neither goroutine nor timer.
type scheduler struct {
	workers int
	wake    chan struct{} // capacity 1
	gate    outage        // owned by run

	mu    sync.Mutex
	queue []*slot
	times deadlines
}

func newScheduler(workers int) *scheduler {
	return &scheduler{workers: workers, wake: make(chan struct{}, 1)}
}

func newSlot(j job) *slot { return &slot{job: j, index: -1} }

// poke makes the job be looked at soon.
func (s *scheduler) poke(sl *slot) {
	s.mu.Lock()
	switch {
	case sl.stopped || sl.state == slotQueued:
	case sl.state == slotRunning:
		sl.again = true
	default:
		s.arm(sl, sl.looked.Add(coalesce))
	}
	s.mu.Unlock()
	s.ring()
}

// urge is poke without the pause between two looks.
func (s *scheduler) urge(sl *slot) {
	s.mu.Lock()
	sl.looked = time.Time{}
	s.mu.Unlock()
	s.poke(sl)
}

// stop takes the job out for good and cancels its running step.
func (s *scheduler) stop(sl *slot) {
	s.mu.Lock()
	if sl.stopped {
		s.mu.Unlock()
		return
	}
	sl.stopped = true
	s.disarm(sl)
	if sl.cancel != nil {
		sl.cancel()
	}
	running := sl.state == slotRunning // then look or requeue will see it
	s.mu.Unlock()
	if !running {
		sl.job.retire()
	}
}

func (s *scheduler) ring() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// arm sets the job's deadline if it is earlier than what it has. Callers hold mu.
func (s *scheduler) arm(sl *slot, at time.Time) {
	if sl.index >= 0 && !at.Before(sl.at) {
		return
	}
	sl.at = at
	if sl.index >= 0 {
		heap.Fix(&s.times, sl.index)
		return
	}
	heap.Push(&s.times, sl)
}

func (s *scheduler) disarm(sl *slot) {
	if sl.index >= 0 {
		heap.Remove(&s.times, sl.index)
	}
}

type finished struct {
	slot      *slot
	storeDown bool
}

// run hands out jobs until ctx ends, and returns after all workers have.
func (s *scheduler) run(ctx context.Context) {
	work := make(chan *slot)
	done := make(chan finished, s.workers)
	var wg sync.WaitGroup
	for range s.workers {
		wg.Go(func() { s.work(ctx, work, done) })
	}
	defer wg.Wait()
	defer close(work)

	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	free := s.workers
	for ctx.Err() == nil {
		now := time.Now()
		for free > 0 && s.gate.open(now, s.workers-free) {
			sl := s.next(now)
			if sl == nil {
				break
			}
			if s.look(sl, now) {
				work <- sl
				free--
			}
		}
		timer.Reset(s.pause(now, free))
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		case f := <-done:
			free++
			s.gate.report(time.Now(), f.storeDown)
			s.requeue(f.slot)
		}
	}
}

// next pops a job to look at: due deadlines join the queue behind what is there.
func (s *scheduler) next(now time.Time) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.times) > 0 && !s.times[0].at.After(now) {
		sl := heap.Pop(&s.times).(*slot)
		sl.state = slotQueued
		s.queue = append(s.queue, sl)
	}
	for len(s.queue) > 0 {
		sl := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		if sl.stopped {
			sl.state = slotIdle
			continue
		}
		sl.state, sl.again, sl.looked = slotRunning, false, now
		return sl
	}
	return nil
}

// look evaluates a job outside the lock: it takes locks of its own.
func (s *scheduler) look(sl *slot, now time.Time) bool {
	ready, at := sl.job.due(now)
	if ready {
		return true
	}
	s.mu.Lock()
	sl.state = slotIdle
	stopped := sl.stopped
	if !stopped && sl.again {
		s.arm(sl, now.Add(coalesce))
	}
	if !stopped && !at.IsZero() {
		s.arm(sl, at)
	}
	s.mu.Unlock()
	if stopped {
		sl.job.retire()
	}
	return false
}

// requeue puts a job whose step has ended at the end of the line: whether there is more to do, its next look tells.
func (s *scheduler) requeue(sl *slot) {
	s.mu.Lock()
	sl.cancel = nil
	sl.state = slotIdle
	stopped := sl.stopped
	if !stopped {
		sl.state = slotQueued
		s.queue = append(s.queue, sl)
	}
	s.mu.Unlock()
	if stopped {
		sl.job.retire()
	}
}

func (s *scheduler) pause(now time.Time, free int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if free == 0 || s.gate.closed() && free < s.workers {
		return time.Hour // a worker will report
	}
	var d time.Duration
	if len(s.queue) == 0 {
		if len(s.times) == 0 {
			return time.Hour
		}
		d = s.times[0].at.Sub(now)
	}
	if s.gate.closed() {
		d = max(d, s.gate.until.Sub(now))
	}
	return max(d, 0)
}

func (s *scheduler) work(ctx context.Context, work <-chan *slot, done chan<- finished) {
	for sl := range work {
		done <- finished{sl, s.step(ctx, sl)}
	}
}

func (s *scheduler) step(ctx context.Context, sl *slot) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	sl.cancel = cancel
	stopped := sl.stopped
	s.mu.Unlock()
	if stopped {
		return false
	}
	return sl.job.step(ctx)
}

// outage slows the whole broker down while the object store fails, whatever the number of partitions: after a few
// failures in a row one step at a time, with growing pauses of at most outageMax; the first success opens it again.
type outage struct {
	failures int
	until    time.Time
}

const (
	outageAfter = 4
	outageMin   = 100 * time.Millisecond
	outageMax   = 3 * time.Second
)

func (g *outage) closed() bool { return g.failures >= outageAfter }

func (g *outage) open(now time.Time, running int) bool {
	return !g.closed() || running == 0 && !now.Before(g.until)
}

func (g *outage) report(now time.Time, down bool) {
	if !down {
		g.failures = 0
		return
	}
	g.failures++
	if n := g.failures - outageAfter; n >= 0 {
		g.until = now.Add(min(outageMin<<min(n, 10), outageMax))
	}
}

// deadlines is a heap by time.
type deadlines []*slot

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}
func (d *deadlines) Push(x any) {
	sl := x.(*slot)
	sl.index = len(*d)
	*d = append(*d, sl)
}
func (d *deadlines) Pop() any {
	old := *d
	sl := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	sl.index = -1
	return sl
}
