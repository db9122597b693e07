package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestWalks plays random stories: elections at any time of any in-sync replica, old leaders that do not know, restarts that lose the tail,
// fetches and transactions that arrive late or whose answers are lost. After each step no record that was exposed may be another one in
// any log that exposes it, or be missing where it is in sync. Mutilated cores show that this can fail.
func TestWalks(t *testing.T) {
	const walks, length = 6000, 150
	for seed := range uint64(walks) {
		if why := walk(t, seed, length, nil); why != "" {
			t.Fatalf("seed %d: %s", seed, why)
		}
	}
	for name, m := range map[string]func(*Core){
		"the high watermark does not count who is proposed to leave": func(c *Core) {
			if c.proposal != nil {
				for i := range c.followers {
					c.followers[i].inSync = slices.Contains(c.proposal.ISR, c.followers[i].id)
				}
			}
		},
		"a follower joins the ISR without what the leader had at its election": func(c *Core) {
			c.epochStart = 0
		},
		"who joins the ISR may be another process by then (KIP-903)": func(c *Core) {
			if c.proposal != nil {
				c.proposal.Joiners = nil
			}
		},
		"the leader acknowledges what it alone has": func(c *Core) {
			if c.role == leading {
				c.hw = c.leo
			}
		},
	} {
		found := false
		for seed := uint64(0); seed < walks && !found; seed++ {
			found = walk(t, seed, length, m) != ""
		}
		if !found {
			t.Errorf("not found: %s", name)
		}
	}
}

// taste is what one walk prefers, so that some walks have long quiet stretches, and others are all trouble.
type taste struct {
	weights [steps]int
	likely  float64 // that a step is one that can do something
	slow    int32   // this broker fetches seldom
}

// The kinds of steps.
const (
	doAppend = iota
	doFetch
	doAsk
	doArrive
	doLearn
	doTick
	doWrite
	doSend
	doLand
	doElect
	doRestart
	steps
)

func newTaste(r *rand.Rand, n int32) taste {
	t := taste{
		weights: [steps]int{doAppend: 12, doFetch: 35, doAsk: 5, doArrive: 5, doLearn: 15, doTick: 5, doWrite: 8, doSend: 2, doLand: 2, doElect: 4, doRestart: 4},
		likely:  0.5 + r.Float64()/2, slow: r.Int32N(n + 1),
	}
	for i := range t.weights {
		t.weights[i] *= 1 + r.IntN(4)
	}
	return t
}

func (t *taste) pick(r *rand.Rand) int {
	sum := 0
	for _, w := range t.weights {
		sum += w
	}
	x := r.IntN(sum)
	for i, w := range t.weights {
		if x -= w; x < 0 {
			return i
		}
	}
	return doAppend
}

func walk(t *testing.T, seed uint64, length int, mutilate func(*Core)) (why string) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &play{t: t, nodes: map[int32]*actor{}}
	n := 2 + int32(r.IntN(2))
	like := newTaste(r, n)
	w.step([]string{"brokers", fmt.Sprint(n), fmt.Sprintf("min=%d", 1+r.IntN(2))})
	w.step([]string{"elect", "1"})
	for range length {
		words := w.choose(r, &like, n)
		if words == nil {
			continue
		}
		w.step(words)
		if mutilate != nil {
			for _, a := range w.nodes {
				mutilate(&a.core)
			}
		}
		if why := w.wrong(); why != "" {
			return fmt.Sprintf("%v: %s", words, why)
		}
	}
	return ""
}

// choose makes the next step; nil where what it has picked makes no sense.
func (w *play) choose(r *rand.Rand, like *taste, n int32) []string {
	a, b := w.nodes[1+r.Int32N(n)], w.nodes[1+r.Int32N(n)]
	kind := like.pick(r)
	if r.Float64() < like.likely {
		switch leader := w.nodes[w.leader]; kind {
		case doFetch, doAsk:
			b = leader
		case doAppend, doTick, doWrite, doSend, doLand, doArrive:
			a = leader
		}
	}
	id := fmt.Sprint(a.id)
	switch kind {
	case doAppend:
		return []string{"append", id, "1"}
	case doFetch, doAsk:
		if a == b || a.core.role != following || a.id == like.slow && r.IntN(4) > 0 || kind == doAsk && len(b.late) > 2 {
			return nil
		}
		return []string{[]string{doFetch: "fetch", doAsk: "ask"}[kind], id, fmt.Sprint(b.id)}
	case doArrive:
		if len(a.late) == 0 {
			return nil
		}
		return []string{"arrive", id, "lost"}[:2+r.IntN(2)]
	case doLearn:
		return []string{"learn", id}
	case doTick:
		return []string{"tick", id, "101"}
	case doWrite:
		return []string{"write", id, "unheard"}[:2+r.IntN(2)]
	case doSend:
		return []string{"send", id}
	case doLand:
		return []string{"land", id}
	case doElect:
		return []string{"elect", fmt.Sprint(w.isr[r.IntN(len(w.isr))])}
	}
	return w.restart(r, a)
}

// restart is a new process of a broker, and what the controller does about it: who may have lost its tail leaves every ISR of which it is
// not the last member. Nothing changes in the record where it is in no ISR.
func (w *play) restart(r *rand.Rand, a *actor) []string {
	lose := 0
	i := slices.Index(w.isr, a.id)
	if i < 0 || len(w.isr) > 1 {
		lose = r.IntN(len(a.log) + 1)
	}
	if i >= 0 && len(w.isr) > 1 {
		w.isr = slices.Delete(slices.Clone(w.isr), i, i+1)
		w.version++
	}
	if w.leader == a.id {
		w.step([]string{"elect", fmt.Sprint(w.isr[r.IntN(len(w.isr))])})
	}
	return []string{"restart", fmt.Sprint(a.id), fmt.Sprintf("lose=%d", lose)}
}
