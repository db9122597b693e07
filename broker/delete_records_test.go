package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

func (c *trio) deleteRecords(to int32, tp *meta.Topic, offset int64, timeout time.Duration) kmsg.DeleteRecordsResponseTopicPartition {
	c.t.Helper()
	cl := c.dial(to)
	defer cl.conn.Close()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = 2, int32(timeout.Milliseconds())
	dt := kmsg.NewDeleteRecordsRequestTopic()
	dt.Topic = tp.Name
	dp := kmsg.NewDeleteRecordsRequestTopicPartition()
	dp.Offset = offset
	dt.Partitions = append(dt.Partitions, dp)
	req.Topics = append(req.Topics, dt)
	return cl.do(req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
}

func TestDeletedRecordsAreGoneOnAllReplicasWhenItIsAnswered(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		for range 10 {
			c.mustProduce(1, tp, "a")
		}
		began := time.Now()
		if p := c.deleteRecords(1, tp, 4, time.Minute); p.ErrorCode != 0 || p.LowWatermark != 4 {
			t.Fatalf("%+v, want low watermark 4", p)
		}
		for id := range c.brokers {
			if start := c.hosted(id, tp).LogStart(); start != 4 {
				t.Errorf("broker %d begins at %d", id, start)
			}
		}
		if d := time.Since(began); d > 50*time.Millisecond {
			t.Errorf("it took %s: followers were not told at once", d)
		}
		if p := c.deleteRecords(1, tp, 2, time.Minute); p.ErrorCode != 0 || p.LowWatermark != 4 {
			t.Fatalf("below the log start: %+v", p)
		}
		c.brokers[1].stop(false)
		c.elect(tp, 2, 2, 3)
		if p := c.deleteRecords(2, tp, -1, time.Minute); p.ErrorCode != 0 || p.LowWatermark != 10 {
			t.Fatalf("without the dead one: %+v, want low watermark 10", p)
		}
	})
}

func TestDeleteRecordsWaitsForFollowersThatLiveOrAreInSync(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		for range 10 {
			c.mustProduce(1, tp, "a")
		}
		c.net.cut(1, 3)
		began := time.Now()
		if p := c.deleteRecords(1, tp, 4, 3*time.Second); p.ErrorCode != kerr.RequestTimedOut.Code || p.LowWatermark != 0 {
			t.Fatalf("%+v, want REQUEST_TIMED_OUT, low watermark 0", p)
		}
		if d := time.Since(began); d < 3*time.Second || d > 4*time.Second {
			t.Fatalf("answered after %s, timeout 3 s", d)
		}
		if start := c.hosted(1, tp).LogStart(); start != 4 {
			t.Fatalf("the leader begins at %d: it is deleted, whoever has not heard of it", start)
		}
		c.brokers[3].stop(false)
		if p := c.deleteRecords(1, tp, 5, 3*time.Second); p.ErrorCode != kerr.RequestTimedOut.Code {
			t.Fatalf("%+v: the dead one is in sync, and may be elected when it is back", p)
		}
		c.produce(1, tp, 1, "b") // it lags from now on
		c.isr(tp, 1, 2)
		if p := c.deleteRecords(1, tp, 5, time.Minute); p.ErrorCode != 0 || p.LowWatermark != 5 {
			t.Fatalf("once the follower is out of sync and dead: %+v, want low watermark 5", p)
		}
	})
}

func TestDeleteRecordsThatWaitsIsToldOfTheNewLeader(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		for range 10 {
			c.mustProduce(1, tp, "a")
		}
		c.net.cut(1, 3)
		done := make(chan kmsg.DeleteRecordsResponseTopicPartition, 1)
		go func() { done <- c.deleteRecords(1, tp, 5, time.Minute) }()
		time.Sleep(100 * time.Millisecond)
		c.elect(tp, 2, 1, 2)
		if p := <-done; p.ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Fatalf("%+v, want NOT_LEADER_OR_FOLLOWER", p)
		}
	})
}

func TestFollowerThatWasAwayDoesNotBringDeletedRecordsBack(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 1 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		for range 10 {
			c.mustProduce(1, tp, "a")
		}
		c.brokers[3].stop(false)
		c.elect(tp, 1, 1, 2)
		if p := c.deleteRecords(1, tp, 4, time.Minute); p.ErrorCode != 0 || p.LowWatermark != 4 {
			t.Fatalf("%+v, want low watermark 4", p)
		}
		c.start(3)
		began := time.Now()
		c.until("its log begins where the leader's does", func() bool {
			inSync, start := slices.Contains(c.record(tp).ISR, 3), int64(-1)
			if p := c.hosted(3, tp); p != nil {
				start = p.LogStart()
			}
			if inSync && start != 4 {
				t.Fatalf("broker 3 is in sync and its log begins at %d: it may be elected", start)
			}
			return start == 4
		})
		if d := time.Since(began); d > 300*time.Millisecond {
			t.Errorf("it was told after %s, and not at once, where the log begins", d)
		}
		c.isr(tp, 1, 2, 3)
	})
}
