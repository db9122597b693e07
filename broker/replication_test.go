package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRecordsAreReplicatedBeforeTheyAreAcknowledged(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		for range 20 {
			c.mustProduce(1, tp, "a", "b")
			for _, id := range []int32{2, 3} {
				if p := c.hosted(id, tp); p.LEO() != c.hosted(1, tp).LEO() {
					t.Fatalf("acknowledged, but broker %d has %d of %d", id, p.LEO(), c.hosted(1, tp).LEO())
				}
			}
		}
		if got := c.same(tp, 1, 2, 3); len(got) != 40 {
			t.Fatalf("%d records", len(got))
		}
	})
}

func TestAckedRecordsSurviveTheLeader(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a", "b", "c")
		c.brokers[1].stop(false)
		c.elect(tp, 2, 2, 3)
		c.mustProduce(2, tp, "d")
		if got := c.same(tp, 2, 3); len(got) != 4 {
			t.Fatalf("records %q", got)
		}
		// It comes back, catches up, and is let in again.
		c.start(1)
		c.isr(tp, 1, 2, 3)
		c.same(tp, 1, 2, 3)
		c.elect(tp, 1)
		c.mustProduce(1, tp, "e")
		if got := c.same(tp, 1, 2, 3); len(got) != 5 {
			t.Fatalf("records %q", got)
		}
	})
}

func TestFollowerThatIsCutOffLeavesTheISRAndComesBack(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		c.net.cut(1, 3)
		began := time.Now()
		c.produce(1, tp, 1, "b") // only so that the follower lags
		c.isr(tp, 1, 2)
		if d := time.Since(began); d < 9*time.Second || d > 20*time.Second {
			t.Errorf("it left after %s, replica.lag.time.max.ms is 10 s", d)
		}
		c.mustProduce(1, tp, "c")
		c.net.heal()
		c.isr(tp, 1, 2, 3)
		c.same(tp, 1, 2, 3)
	})
}

func TestProduceWithoutEnoughReplicasIsRefused(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		c.net.cut(1, 2)
		c.net.cut(1, 3)
		// Appended while two were in sync, but they are gone before they have it.
		late := make(chan kmsg.ProduceResponseTopicPartition, 1)
		cl := c.dial(1)
		req := produceReq(13, -1, tp, 0, valueBatch(t, "b"))
		req.TimeoutMillis = 60_000
		go func() {
			late <- cl.do(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		}()
		c.isr(tp, 1)
		if p := <-late; p.ErrorCode != kerr.NotEnoughReplicasAfterAppend.Code {
			t.Fatalf("appended before: code %d, want NOT_ENOUGH_REPLICAS_AFTER_APPEND", p.ErrorCode)
		}
		if p := c.produce(1, tp, -1, "c"); p.ErrorCode != kerr.NotEnoughReplicas.Code {
			t.Fatalf("code %d, want NOT_ENOUGH_REPLICAS", p.ErrorCode)
		}
		if p := c.produce(1, tp, 1, "d"); p.ErrorCode != 0 {
			t.Fatalf("acks=1: code %d", p.ErrorCode)
		}
		if hw := c.hosted(1, tp).HighWatermark(); hw != 1 {
			t.Fatalf("high watermark %d, want 1: nothing is committed below min.insync.replicas", hw)
		}
		c.net.heal()
		c.isr(tp, 1, 2, 3)
		c.mustProduce(1, tp, "e")
		c.same(tp, 1, 2, 3)
	})
}

func TestProduceThatWaitsIsToldOfTheNewLeader(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		c.net.cut(1, 2)
		c.net.cut(1, 3)
		cl := c.dial(1)
		late := make(chan kmsg.ProduceResponseTopicPartition, 1)
		go func() {
			late <- cl.do(produceReq(13, -1, tp, 0, valueBatch(t, "b"))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		}()
		c.until("appended", func() bool { return c.hosted(1, tp).LEO() == 2 })
		c.elect(tp, 2, 2, 3)
		p := <-late
		if p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != 2 {
			t.Fatalf("code %d, leader %+v, want NOT_LEADER_OR_FOLLOWER and broker 2", p.ErrorCode, p.CurrentLeader)
		}
	})
}
