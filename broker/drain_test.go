package broker

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvelog/varve/meta"
)

// drain tells the cluster that a broker is about to stop.
func (c *trio) drain(id int32) {
	c.t.Helper()
	if err := c.brokers[id].store.Drain(context.Background()); err != nil {
		c.t.Fatal(err)
	}
}

func TestFollowerThatIsAboutToStopIsNotLetIntoTheISRAgain(t *testing.T) { // BUG-078
	inBubble(t, 3, func(c *trio) { c.minISR, c.control = 2, true }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		c.drain(3)
		c.isr(tp, 1, 2)
		left := c.record(tp)
		for range 100 {
			c.mustProduce(1, tp, "b")
			time.Sleep(100 * time.Millisecond)
			if now := c.record(tp); now.PartitionEpoch != left.PartitionEpoch {
				t.Fatalf("ISR %v with partition epoch %d, it had left with %d: it has been in again", now.ISR, now.PartitionEpoch, left.PartitionEpoch)
			}
		}
		c.same(tp, 1, 2, 3) // it goes on fetching
		c.brokers[3].stop(true)
		c.start(3)
		c.isr(tp, 1, 2, 3)
	})
}

// stream writes to a partition, one record after the other, wherever it is led, until stop is called, and watches the logs. stop says for
// how long no record was acknowledged, and for how long the log of a broker that runs stood still.
func (c *trio) stream(tp *meta.Topic) (stop func() (acked time.Duration, logs map[int32]time.Duration)) {
	const every = 3 * time.Millisecond
	var g sync.WaitGroup
	done := make(chan struct{})
	over := func(d time.Duration) bool {
		select {
		case <-done:
			return true
		case <-time.After(d):
			return false
		}
	}
	var longest time.Duration
	g.Go(func() {
		last, to := time.Now(), tp.Partitions[0].Leader
		for !over(every) {
			p := c.produce(to, tp, -1, "s")
			switch {
			case p.ErrorCode == 0:
				longest = max(longest, time.Since(last))
				last = time.Now()
			case p.ErrorCode == kerr.NotLeaderForPartition.Code && p.CurrentLeader.LeaderID >= 0:
				to = p.CurrentLeader.LeaderID
			default:
				c.t.Errorf("broker %d: code %d %s", to, p.ErrorCode, str(p.ErrorMessage))
				return
			}
		}
	})
	still := map[int32]time.Duration{}
	g.Go(func() {
		ends, since := map[int32]int64{}, map[int32]time.Time{}
		for !over(every) {
			for id := range c.brokers {
				p := c.hosted(id, tp)
				if p == nil {
					delete(since, id)
					continue
				}
				if at, ok := since[id]; !ok || p.LEO() != ends[id] {
					ends[id], since[id] = p.LEO(), time.Now()
				} else {
					still[id] = max(still[id], time.Since(at))
				}
			}
		}
	})
	return func() (time.Duration, map[int32]time.Duration) {
		close(done)
		g.Wait()
		return longest, still
	}
}

func TestLeaderThatIsAboutToStopStallsNeitherProducersNorFollowers(t *testing.T) { // BUG-078
	const most = 200 * time.Millisecond // replica.lag.time.max.ms and the session are 10 s
	inBubble(t, 3, func(c *trio) { c.minISR, c.control = 2, true }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		for _, id := range []int32{1, 2} {
			c.isr(tp, 1, 2, 3)
			c.elect(tp, id)
			c.until("all know", func() bool { return c.brokers[id].store.Image().Partition(tp.Partitions[0].ID).Leader == id })
			led := *tp
			led.Partitions = []*meta.Partition{c.record(tp)}
			stop := c.stream(&led)
			time.Sleep(time.Second)
			c.drain(id)
			c.until("another leads", func() bool { return c.record(tp).Leader != id })
			time.Sleep(2 * time.Second)
			acked, logs := stop()
			if acked > most {
				t.Errorf("broker %d was about to stop: no acknowledgement for %s", id, acked)
			}
			for b, d := range logs {
				if d > most {
					t.Errorf("broker %d was about to stop: the log of broker %d stood still for %s", id, b, d)
				}
			}
			c.brokers[id].stop(true)
			c.start(id)
		}
		c.isr(tp, 1, 2, 3)
		c.same(tp, 1, 2, 3)
	})
}
