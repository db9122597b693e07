package broker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/meta"
)

// assign gives a topic these replicas.
func (c *trio) assign(tp *meta.Topic, replicas ...int32) {
	c.t.Helper()
	c.until("assigned", func() bool {
		rec := *c.record(tp)
		rec.Replicas = replicas
		rec.PartitionEpoch++
		_, err := c.brokers[replicas[0]].store.UpdatePartition(context.Background(), &rec)
		return err == nil
	})
}

func TestThrottledReplicaCatchesUpAtTheRate(t *testing.T) { // KIP-73
	const total, rate = 400_000, 20_000
	for name, set := range map[string]func(*trio){
		"leader":   func(c *trio) { c.leaderRate = rate },
		"follower": func(c *trio) { c.followerRate = rate },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, set, func(c *trio) {
				slow, fast := c.topic("slow", 1, 2), c.topic("fast", 1, 2)
				for range total / 2000 {
					c.mustProduce(1, slow, strings.Repeat("a", 1950))
					c.mustProduce(1, fast, strings.Repeat("a", 1950))
				}
				time.Sleep(time.Second)
				began := time.Now()
				c.assign(slow, 1, 2, 3)
				c.assign(fast, 1, 2, 3)
				c.isr(fast, 1, 2, 3)
				if d := time.Since(began); d > 3*time.Second {
					t.Errorf("a topic that is not throttled took %s", d)
				}
				// Who is in sync is not held up meanwhile.
				for range 20 {
					at := time.Now()
					c.mustProduce(1, slow, "b")
					if d := time.Since(at); d > 100*time.Millisecond {
						t.Fatalf("acknowledged after %s", d)
					}
				}
				c.isr(slow, 1, 2, 3)
				if d := time.Since(began); d < (total/rate-2)*time.Second || d > (total/rate+4)*time.Second {
					t.Errorf("%d bytes took %s at %d bytes a second", total, d, rate)
				}
				// Once it is in sync it is not throttled.
				at := time.Now()
				for range 100 {
					c.mustProduce(1, slow, strings.Repeat("a", 1950))
				}
				if d := time.Since(at); d > time.Second {
					t.Errorf("200,000 bytes took %s with everybody in sync", d)
				}
				c.same(slow, 1, 2, 3)
			})
		})
	}
}
