package recovery

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestATimeBetweenTwoWritesMillisecondsApartHasTheFirstOnly(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after time.Duration
		roll          bool // one object with both, that supersedes what went up before it was there
	}{
		{"in a rolled object", 25, 25, true},
		{"in a tail", 25, 25, false},
		{"right after the first", 0, 20, true},
		{"right before the second", 19, 1, true},
	} {
		inBubble(t, func(t *testing.T, n *net) {
			a := newCluster(t, n, "mem://a")
			topic := a.topic("orders", 1)
			a.produce(topic, 0, 3)
			a.pass(time.Minute) // an object of its own
			a.produce(topic, 0, 7)
			a.pass(c.before * time.Millisecond)
			at := now()
			a.pass(c.after * time.Millisecond)
			a.produce(topic, 0, 5)
			if c.roll {
				a.roll(topic, 0)
			}
			a.pass(time.Minute)
			plan, err := a.plan(atTime(at))
			if err != nil {
				t.Fatal(err)
			}
			if p := plan.Topics[0].Partitions[0]; p.LeftOut != 0 || p.ResolutionMs != 0 {
				t.Fatalf("%s: %d left out within %d ms", c.name, p.LeftOut, p.ResolutionMs)
			}
			b := a.restore("mem://b", atTime(at))
			b.wantRange(a, "orders", 0, 0, 10)
		})
	}
}

func TestAPlanTellsWhatACutAmidWritesLeavesOut(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		a.produce(topic, 0, 10)
		a.pass(100 * time.Millisecond)
		a.produce(topic, 0, 3)
		a.pass(5 * time.Millisecond)
		at := now()
		a.pass(5 * time.Millisecond)
		a.produce(topic, 0, 4)
		a.pass(time.Minute)
		plan, err := a.plan(atTime(at))
		if err != nil {
			t.Fatal(err)
		}
		if p := plan.Topics[0].Partitions[0]; p.End != 10 || p.LeftOut != 7 || p.ResolutionMs != 10 {
			t.Fatalf("end %d, up to %d left out within %d ms", p.End, p.LeftOut, p.ResolutionMs)
		}
		a.restore("mem://b", atTime(at)).wantRange(a, "orders", 0, 0, 10)
	})
}

// Through rolls, tails and what supersedes them: no cut has a record too many, one in a pause is exact, the others lack less than
// 20 ms, and the plan says how much.
func TestEveryMomentIsCutToTheResolution(t *testing.T) {
	for seed := range uint64(4) {
		inBubble(t, func(t *testing.T, n *net) {
			r := rand.New(rand.NewPCG(seed, 11))
			a := newCluster(t, n, "mem://a")
			topic := a.topic("orders", 1)
			type write struct{ ms, end int64 }
			var writes []write
			for range 60 {
				a.produce(topic, 0, 1+r.IntN(3))
				writes = append(writes, write{now(), a.part(topic, 0).log.LEO()})
				a.pass(time.Duration([]int{0, 1, 5, 19, 20, 21, 40, 4000}[r.IntN(8)]) * time.Millisecond)
				if r.IntN(12) == 0 {
					a.roll(topic, 0)
				}
			}
			a.pass(time.Minute)
			s, inv := a.source(), a.inventory()
			for i, w := range writes {
				for _, at := range []int64{w.ms, w.ms + 10, w.ms + 19} {
					plan, err := Prepare(t.Context(), s, inv, atTime(at))
					if err != nil {
						t.Fatal(err)
					}
					p := plan.Topics[0].Partitions[0]
					exact, atLeast, last, next := int64(0), int64(0), int64(0), at+20
					for _, x := range writes {
						if x.ms <= at {
							exact, last = x.end, x.ms
						} else {
							next = min(next, x.ms)
						}
						if x.ms <= at-20 {
							atLeast = x.end
						}
					}
					if p.End > exact || p.End < atLeast || next-last >= 20 && p.End != exact || p.End+p.LeftOut < exact || p.ResolutionMs >= 20 {
						t.Fatalf("seed %d, write %d: as of %d the end is %d, %d left out within %d ms; want %d, appends at %d and %d around",
							seed, i, at, p.End, p.LeftOut, p.ResolutionMs, exact, last, next)
					}
				}
			}
		})
	}
}
