package broker

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A leader that was just elected does not know how much of its log is committed. Who joins its ISR needs all of it, since it may lead alone
// the next moment (PROTOCOLS 7.2). What the follower asks for is under way long enough for it to be elected without, if it were let in on
// what it has at first.
func TestWhoJoinsANewLeadersISRHasAllThatWasAcknowledged(t *testing.T) { // BUG-030
	const rounds, records = 100, 100
	inBubble(t, 3, func(c *trio) { c.minISR, c.control = 2, true }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		var acked []string
		for round := range int32(rounds) {
			leader := c.record(tp).Leader
			joiner := (leader+round)%3 + 1
			if joiner == leader {
				joiner = leader%3 + 1
			}
			next := 6 - leader - joiner
			c.drain(joiner)
			c.until("it has left", func() bool { return !slices.Contains(c.record(tp).ISR, joiner) })
			c.brokers[joiner].stop(true)
			var values []string
			for i := range records {
				values = append(values, fmt.Sprintf("%d-%d", round, i))
			}
			c.mustProduce(leader, tp, values...)
			acked = append(acked, values...)
			c.brokers[leader].stop(false)
			c.leader(tp, next)
			if hw := c.hosted(next, tp).HighWatermark(); hw >= int64(len(acked)) {
				t.Fatalf("round %d: the new leader knows the high watermark: the test shows nothing", round)
			}
			c.net.delay(joiner, time.Second)
			c.start(joiner)
			c.until("it has joined", func() bool { return slices.Contains(c.record(tp).ISR, joiner) })
			c.brokers[next].stop(false)
			c.net.delay(joiner, 0)
			c.leader(tp, joiner)
			c.start(leader)
			c.start(next)
			c.isr(tp, 1, 2, 3)
			if got := c.same(tp, 1, 2, 3); !slices.Equal(got, acked) {
				t.Fatalf("round %d: %d records, %d were acknowledged, or they are others", round, len(got), len(acked))
			}
		}
	})
}
