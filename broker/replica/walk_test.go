package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestWalks plays random stories: elections at any time of any in-sync replica, old leaders that do not know, restarts that lose the tail,
// fetches and transactions that arrive late or whose answers are lost. After each step no record that was exposed may be another one in
// any log that exposes it. Mutilated cores show that this can fail.
func TestWalks(t *testing.T) {
	const walks, steps = 1500, 150
	for seed := range uint64(walks) {
		if why := walk(t, seed, steps, nil); why != "" {
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
		"the leader acknowledges what it alone has": func(c *Core) {
			if c.role == leading {
				c.hw = c.leo
			}
		},
	} {
		found := false
		for seed := uint64(0); seed < walks && !found; seed++ {
			found = walk(t, seed, steps, m) != ""
		}
		if !found {
			t.Errorf("not found: %s", name)
		}
	}
}

func walk(t *testing.T, seed uint64, steps int, mutilate func(*Core)) (why string) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &play{t: t, nodes: map[int32]*actor{}}
	n := 2 + int32(r.IntN(2))
	w.step([]string{"brokers", fmt.Sprint(n), fmt.Sprintf("min=%d", 1+r.IntN(2))})
	w.step([]string{"elect", "1"})
	for range steps {
		a, b := w.nodes[1+r.Int32N(n)], w.nodes[1+r.Int32N(n)]
		words := []string{fmt.Sprint(a.id)}
		switch x := r.IntN(100); {
		case x < 15:
			words = []string{"append", words[0], "1"}
		case x < 50:
			if a == b || a.core.role != following {
				continue
			}
			words = []string{"fetch", words[0], fmt.Sprint(b.id)}
		case x < 55:
			if a == b || a.core.role != following || len(b.late) > 2 {
				continue
			}
			words = []string{"ask", words[0], fmt.Sprint(b.id)}
		case x < 60:
			if len(a.late) == 0 {
				continue
			}
			words = []string{"arrive", words[0], "lost"}[:2+r.IntN(2)]
		case x < 75:
			words = []string{"learn", words[0]}
		case x < 80:
			words = []string{"tick", words[0], "101"}
		case x < 88:
			words = []string{"write", words[0], "unheard"}[:2+r.IntN(2)]
		case x < 90:
			words = []string{"send", words[0]}
		case x < 92:
			words = []string{"land", words[0]}
		case x < 96:
			words = []string{"elect", fmt.Sprint(w.isr[r.IntN(len(w.isr))])}
		default:
			// As the controller does it: who may have lost its tail leaves every ISR of which it is not the last member.
			lose := 0
			if i := slices.Index(w.isr, a.id); i < 0 || len(w.isr) > 1 {
				lose = r.IntN(len(a.log) + 1)
				if i >= 0 {
					w.isr = slices.Delete(slices.Clone(w.isr), i, i+1)
				}
				w.version++
			}
			if w.leader == a.id {
				w.step([]string{"elect", fmt.Sprint(w.isr[r.IntN(len(w.isr))])})
			}
			words = []string{"restart", words[0], fmt.Sprintf("lose=%d", lose)}
		}
		w.step(words)
		if mutilate != nil {
			mutilate(&a.core)
			mutilate(&b.core)
		}
		if why := w.wrong(); why != "" {
			return fmt.Sprintf("%v: %s", words, why)
		}
	}
	return ""
}
