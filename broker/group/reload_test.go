package group

import (
	"fmt"
	"math/rand"
	"reflect"
	"testing"
)

// TestReplayGivesTheSameState drives a core with random requests and compares it, whenever nothing is on its way, with one that was
// made from its log.
func TestReplayGivesTheSameState(t *testing.T) {
	for seed := range int64(30) {
		rnd := rand.New(rand.NewSource(seed))
		w := newWorld(t)
		w.conf.InitialDelayMs, w.conf.RetentionMs = -1, 50_000
		w.core = NewCore(w.conf)
		members := []string{""}
		for step := range 300 {
			g := fmt.Sprintf("g%d", rnd.Intn(3))
			m := members[rnd.Intn(len(members))]
			gen := rnd.Intn(4) + 1
			if d, ok := w.core.Describe(g); ok {
				gen = int(d.Generation)
				if len(d.Members) > 0 {
					m = d.Members[rnd.Intn(len(d.Members))].ID
				}
			}
			w.run([]string{
				"join " + g + " as=a v=3", "join " + g + " as=s static=s" + fmt.Sprint(rnd.Intn(2)), "join " + g + " " + m,
				fmt.Sprintf("sync %s %s gen=%d give=%s:X", g, m, gen, m), fmt.Sprintf("sync %s %s gen=%d give=%s:Y", g, m, gen, m),
				fmt.Sprintf("beat %s %s gen=%d", g, m, gen), "leave " + g + " " + m,
				fmt.Sprintf("commit %s gen=-1 t/%d=%d id=%d", g, rnd.Intn(3), step, rnd.Intn(3)),
				fmt.Sprintf("commit %s %s gen=%d u/%d=%d", g, m, gen, rnd.Intn(3), step),
				"expire", "drop-topic t id=" + fmt.Sprint(rnd.Intn(3)), "delete-groups " + g, "delete-offsets " + g + " t/1 u/1",
				"hold", "commit-log", "fail-log", "wait " + fmt.Sprint(rnd.Intn(8000)),
			}[rnd.Intn(17)])
			if len(w.held) == 0 && len(w.core.again) == 0 { // nor hidden by a deletion that the log refused
				sameState(t, seed, step, w)
			}
		}
	}
}

func sameState(t *testing.T, seed int64, step int, w *world) {
	t.Helper()
	again := replayed(t, w.conf, w.log)
	again.Loaded(w.now, nil)
	for _, g := range []string{"g0", "g1", "g2"} {
		want, got := offsetsOf(w.core, g), offsetsOf(again, g)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d, step %d: offsets of %s after a reload are %v, want %v", seed, step, g, got, want)
		}
		d, ok := w.core.Describe(g)
		if !ok || d.State != Stable && d.State != Empty || d.ProtocolType == "" {
			continue
		}
		if d2, _ := again.Describe(g); d.State == Stable && fmt.Sprint(d) != fmt.Sprint(d2) {
			t.Fatalf("seed %d, step %d: %s after a reload is\n%+v, want\n%+v", seed, step, g, d2, d)
		}
	}
}

func offsetsOf(c *Core, g string) map[topicPartition]int64 {
	m := map[topicPartition]int64{}
	for _, f := range c.Fetch(g, nil, false) {
		m[topicPartition{f.Topic, f.Partition}] = f.Offset.Offset
	}
	return m
}
