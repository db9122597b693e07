package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestFollowerThatCannotCutItsLogShowsNothingOfIt(t *testing.T) { // PROTOCOLS 7.4, KAFKA-14704
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		c.net.cut(1, 2)
		c.net.cut(1, 3)
		c.brokers[1].kv.Disconnect()
		for range 5 {
			c.produce(1, tp, 1, "x", "x") // never committed
		}
		c.elect(tp, 2, 2, 3)
		c.mustProduce(2, tp, "b", "c", "d")
		p := c.hosted(1, tp)
		if hw, leo := p.HighWatermark(), p.LEO(); hw != 1 || leo != 11 {
			t.Fatalf("high watermark %d of %d, want 1 of 11", hw, leo)
		}
		c.brokers[1].fs.FailNth(1, "truncate", ".log", nil)
		c.brokers[1].kv.Connect()
		c.net.heal()
		c.until("the log could not be cut", func() bool { return p.Offline() != nil })
		for range 10 {
			if hw, leo := p.HighWatermark(), p.LEO(); hw != 1 || leo != 11 {
				t.Fatalf("high watermark %d of %d: it shows what never was committed", hw, leo)
			}
			time.Sleep(time.Second)
		}
		c.brokers[1].stop(false)
		c.start(1)
		c.isr(tp, 1, 2, 3)
		if got := c.same(tp, 1, 2, 3); strings.Join(got, "") != "abcd" {
			t.Fatalf("records %q", got)
		}
	})
}

func TestOffsetOfAFollowerWithOtherRecordsDoesNotCount(t *testing.T) { // PROTOCOLS 7.4
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		before := c.record(tp).LeaderEpoch
		c.elect(tp, 1)
		c.mustProduce(1, tp, "b")
		c.same(tp, 1, 2, 3)
		c.net.cut(1, 2)
		c.net.cut(1, 3)
		c.produce(1, tp, 1, "c")
		p := c.hosted(1, tp)
		// Followers say that they have three records, the last one of that epoch.
		ask := func(id, epoch int32) kmsg.FetchResponseTopicPartition {
			req := fetchReq(replicaFetchVersion, tp, 3, 0)
			req.ReplicaState.ID, req.ReplicaState.Epoch = id, c.brokers[1].store.Image().Brokers[id].Epoch
			rp := &req.Topics[0].Partitions[0]
			rp.CurrentLeaderEpoch, rp.LastFetchedEpoch, rp.LogStartOffset = p.LeaderEpoch(), epoch, 0
			cl := c.dial(1)
			defer cl.conn.Close()
			return cl.do(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		}
		for _, id := range []int32{2, 3} {
			if a := ask(id, before); a.ErrorCode != 0 || a.DivergingEpoch.Epoch != before || a.DivergingEpoch.EndOffset != 1 {
				t.Fatalf("code %d, diverging %+v, want epoch %d that ends at 1", a.ErrorCode, a.DivergingEpoch, before)
			}
		}
		for _, f := range p.InSync() {
			if f.LEO != 2 {
				t.Errorf("broker %d counts with %d records, want the 2 that it has", f.ID, f.LEO)
			}
		}
		if hw := p.HighWatermark(); hw != 2 {
			t.Fatalf("high watermark %d, want 2: the third record is on the leader alone", hw)
		}
		for _, id := range []int32{2, 3} {
			ask(id, p.LeaderEpoch())
		}
		if hw := p.HighWatermark(); hw != 3 {
			t.Fatalf("high watermark %d, want 3: both say that they have the leader's records", hw)
		}
	})
}
