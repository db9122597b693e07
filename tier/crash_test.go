package tier

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore/fault"
)

// life is a fixed history that touches every step: tails, rolled segments, supersession, DeleteRecords, retention, doom,
// deletion, trimming.
func life(w *world, n *node) {
	for i := range 6 {
		w.append(9)
		n.p.Notify()
		time.Sleep(12 * time.Second)
		if i == 3 {
			_ = w.src.log.SetLogStart(20)
			n.p.DeleteBefore(20)
		}
	}
	w.roll()
	settle(n)
	time.Sleep(9 * time.Minute)
	synctest.Wait()
}

// A broker dies at the k-th call to the bucket or the metadata store, which may or may not have been done. The next leader
// goes on: nothing committed is lost, nothing listed is missing, and in the end only listed objects are left.
func TestCrashAtEveryStepLosesNothingAndLeavesNothing(t *testing.T) {
	// A mark is written every ten seconds: the window is a short one, so that most of the calls are others.
	const window = 3 * time.Minute
	config := TopicConfig{RestoreWindowMs: window.Milliseconds()}
	for _, effect := range []string{"before", "after", "pointer before", "pointer after"} {
		for k := 1; ; k++ {
			reached := false
			in(t, func(t *testing.T, w *world) {
				w.opts.RestoreWindow, w.opts.SupersededGrace, w.opts.SweepInterval = window, window, window
				w.opts.RetryMin, w.opts.RetryMax = 10*time.Hour, 10*time.Hour // what fails first is the last it does
				n := w.lead(config)
				arm(w, effect, k)
				life(w, n)
				through := n.p.Through()
				n.stop()
				reached = hit(w, effect, k)
				w.fault.SetRules()
				w.ptrs.failAt = 0
				w.check()
				w.opts.RetryMin, w.opts.RetryMax = 0, 0
				n = w.lead(config)
				if got := n.p.Through(); got < through {
					t.Fatalf("%s %d: through went back from %d to %d", effect, k, through, got)
				}
				w.append(17)
				w.roll()
				settle(n)
				time.Sleep(15 * time.Minute)
				synctest.Wait()
				m := w.check()
				start := w.src.log.LogStart()
				w.wantArchived(n.p, start, w.src.log.LEO())
				if got := w.segments(); got != len(m.Entries) || count(m, manifest.Doomed) != 0 {
					t.Fatalf("%s %d: %d objects for %d entries, %d doomed", effect, k, got, len(m.Entries), count(m, manifest.Doomed))
				}
			})
			if !reached {
				t.Logf("%s: %d calls", effect, k-1)
				if k < 10 {
					t.Fatalf("%s: only %d calls", effect, k)
				}
				break
			}
		}
	}
}

func arm(w *world, effect string, k int) {
	switch effect {
	case "before":
		w.fault.SetRules(fault.Rule{From: k, Effect: fault.Fail})
	case "after":
		w.fault.SetRules(fault.Rule{From: k, Count: 1, Effect: fault.Lost}, fault.Rule{From: k, Effect: fault.Fail})
	case "pointer before", "pointer after":
		w.ptrs.mu.Lock()
		w.ptrs.failAt, w.ptrs.lost = w.ptrs.calls+k, effect == "pointer after"
		w.ptrs.mu.Unlock()
	}
}

func hit(w *world, effect string, k int) bool {
	if effect == "before" || effect == "after" {
		return w.fault.Calls(fault.Any) >= k
	}
	w.ptrs.mu.Lock()
	defer w.ptrs.mu.Unlock()
	return w.ptrs.calls >= w.ptrs.failAt
}

// Random histories with a failing store, a failing metadata store, elections, deletions and followers that start from the
// archive: what is committed can be read, is what was appended, and is what the bucket alone shows.
func TestRandomHistories(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			in(t, func(t *testing.T, w *world) { randomHistory(t, w, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func randomHistory(t *testing.T, w *world, r *rand.Rand) {
	var mu sync.Mutex
	keys := rand.New(rand.NewPCG(r.Uint64(), 1))
	w.opts.Rand = func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return keys.Uint64()
	}
	config := TopicConfig{RestoreWindowMs: hour, RetentionMs: []int64{-1, hour, 20 * 60_000}[r.IntN(3)]}
	n := w.lead(config)
	through := int64(0)
	for range 40 {
		switch r.IntN(10) {
		case 0:
			w.roll()
		case 1:
			w.fault.SetRules(fault.Rule{Chance: 0.3, Effect: []fault.Effect{fault.Fail, fault.Lost, fault.Throttle}[r.IntN(3)]},
				fault.Rule{Op: fault.Put, Chance: 0.2, Effect: fault.Late, Delay: time.Duration(r.IntN(300)) * time.Second},
				fault.Rule{Op: fault.Delete, Chance: 0.2, Effect: fault.Late, Delay: time.Duration(r.IntN(300)) * time.Second})
		case 2:
			w.fault.SetRules()
		case 3:
			w.ptrs.mu.Lock()
			w.ptrs.failAt, w.ptrs.lost = w.ptrs.calls+1+r.IntN(4), r.IntN(2) == 0
			w.ptrs.mu.Unlock()
		case 4: // an election; the old leader lives on for a while as a zombie
			old := n
			w.fault.SetRules()
			w.ptrs.mu.Lock()
			w.ptrs.failAt = 0
			w.ptrs.mu.Unlock()
			if r.IntN(2) == 0 {
				old.stop()
			}
			if r.IntN(3) == 0 { // the new leader's log begins at archived-through
				w.restart()
			}
			n = w.lead(config)
		case 5:
			if start, leo := w.src.log.LogStart(), w.src.log.LEO(); leo > start {
				_ = w.src.log.SetLogStart(start + r.Int64N(leo-start+1)/3)
				n.p.DeleteBefore(0)
			}
		case 6:
			w.ptrs.change(partA, func(p *Pointer) {
				p.Pins = nil
				if r.IntN(2) == 0 {
					p.Pins = []Pin{{ID: "x"}}
				}
			})
		case 7:
			time.Sleep(time.Duration(r.IntN(60)) * time.Minute)
		case 8:
			_, _ = w.src.log.Retain(time.Now().UnixMilli(), n.p.Through())
		}
		w.append(r.IntN(12))
		n.p.Notify()
		time.Sleep(time.Duration(r.IntN(20000)) * time.Millisecond)
		synctest.Wait()
		if got := n.p.Through(); got < through {
			t.Fatalf("through went back from %d to %d", through, got)
		}
		through = n.p.Through()
	}
	w.fault.SetRules()
	w.fault.Wait()
	w.ptrs.mu.Lock()
	w.ptrs.failAt = 0
	w.ptrs.mu.Unlock()
	w.ptrs.change(partA, func(p *Pointer) { p.Pins = nil })
	if n.p.Err() != nil {
		t.Fatalf("the leader has stopped: %v", n.p.Err())
	}
	time.Sleep(2 * time.Minute)
	w.append(1)
	settle(n)
	time.Sleep(time.Minute)
	synctest.Wait()
	w.check()
	if n.p.Through() != w.src.log.LEO() {
		t.Fatalf("archived through %d of %d", n.p.Through(), w.src.log.LEO())
	}
	w.wantArchived(n.p, w.src.log.LogStart(), w.src.log.LEO())
	time.Sleep(5 * time.Hour)
	w.append(1) // so that it looks for orphans again
	settle(n)
	time.Sleep(3 * time.Hour)
	synctest.Wait()
	m := w.check()
	if got := w.segments(); got != len(m.Entries) && len(m.Groups) == 0 {
		w.explain(m)
		t.Fatalf("%d objects for %d entries", got, len(m.Entries))
	}
}

// explain logs what is in the bucket and not in the manifest.
func (w *world) explain(m *manifest.Manifest) {
	listed := map[string]manifest.State{}
	for _, e := range m.Entries {
		listed[e.Object] = e.State
	}
	for _, key := range w.keys(manifest.SegmentPrefix(partA)) {
		if _, ok := listed[key]; !ok {
			w.t.Logf("not listed in epoch %d: %s", w.epoch, key)
		}
	}
}

// restart replaces the log by one that begins at archived-through.
func (w *world) restart() {
	w.t.Helper()
	s, err := New(w.mem, w.info, w.ptrs, nil, w.opts).StartState(w.t.Context(), partA)
	if err != nil {
		w.t.Fatal(err)
	}
	w.newLog()
	if err := w.src.log.StartAt(s.LogStart, s.Through, s.Epochs, s.Producers, s.LastAppend); err != nil {
		w.t.Fatal(err)
	}
}
