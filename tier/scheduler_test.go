package tier

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// chore is a job with a number of steps to do.
type chore struct {
	name    string
	left    int
	took    time.Duration
	down    bool
	mu      *sync.Mutex
	done    *[]string
	retired int
}

func (c *chore) due(time.Time) (bool, time.Time) { return c.left > 0, time.Time{} }
func (c *chore) retire()                         { c.retired++ }
func (c *chore) step(context.Context) bool {
	time.Sleep(c.took)
	c.mu.Lock()
	*c.done = append(*c.done, c.name)
	c.mu.Unlock()
	if !c.down {
		c.left--
	}
	return c.down
}

func runScheduler(t *testing.T, workers int) *scheduler {
	t.Helper()
	s := newScheduler(workers)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return s
}

func TestJobsTakeTurnsOnFewWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runScheduler(t, 1)
		var mu sync.Mutex
		var done []string
		for _, name := range []string{"a", "b", "c"} {
			s.poke(newSlot(&chore{name: name, left: 3, took: time.Second, mu: &mu, done: &done}))
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if len(done) != 9 {
			t.Fatalf("done %v", done)
		}
		for i := 0; i < 9; i += 3 {
			turn := slices.Sorted(slices.Values(done[i : i+3]))
			if !slices.Equal(turn, []string{"a", "b", "c"}) {
				t.Fatalf("done %v: not in turn", done)
			}
		}
	})
}

func TestStoppedJobIsRetiredOnceAndNeverRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runScheduler(t, 2)
		var mu sync.Mutex
		var done []string
		idle := &chore{name: "idle", mu: &mu, done: &done}
		busy := &chore{name: "busy", left: 100, took: time.Second, mu: &mu, done: &done}
		a, b := newSlot(idle), newSlot(busy)
		s.poke(a)
		s.poke(b)
		time.Sleep(1500 * time.Millisecond)
		for range 2 {
			s.stop(a)
			s.stop(b)
		}
		s.poke(a)
		s.poke(b)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if idle.retired != 1 || busy.retired != 1 || len(done) != 2 {
			t.Fatalf("retired %d and %d times, done %v", idle.retired, busy.retired, done)
		}
	})
}

func TestAnOutageSlowsAllJobsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runScheduler(t, 4)
		var mu sync.Mutex
		var done []string
		for range 500 {
			s.poke(newSlot(&chore{name: "x", left: 1, down: true, mu: &mu, done: &done}))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(done) < 15 || len(done) > 60 {
			t.Fatalf("%d steps in a minute of outage", len(done))
		}
	})
}

func TestIdleJobsHaveNeitherGoroutineNorTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runScheduler(t, 4)
		synctest.Wait()
		before := runtime.NumGoroutine()
		var mu sync.Mutex
		var done []string
		for range 2000 {
			s.poke(newSlot(&chore{mu: &mu, done: &done}))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := runtime.NumGoroutine(); got > before || len(s.times) != 0 || len(s.queue) != 0 {
			t.Fatalf("%d goroutines, before %d; %d deadlines, %d queued", got, before, len(s.times), len(s.queue))
		}
	})
}
