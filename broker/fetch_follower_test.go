package broker

import (
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/record"
)

// consume reads a partition from off until end, as a consumer of this broker does, and checks that it is dense and never beyond the high
// watermark that it is told.
func (c *trio) consume(id int32, tp *meta.Topic, off, end int64, iso int8) {
	c.t.Helper()
	cl := c.dial(id)
	defer cl.conn.Close()
	c.until("all is read", func() bool {
		req := fetchReq(13, tp, off, 0)
		req.MaxWaitMillis, req.IsolationLevel, req.MaxBytes = 500, iso, 3000
		rp := cl.do(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if rp.ErrorCode != 0 {
			c.t.Fatalf("broker %d at %d: code %d", id, off, rp.ErrorCode)
		}
		for b := rp.RecordBatches; len(b) > 0; {
			batch, rest, err := record.Next(b)
			if err != nil || batch.BaseOffset() != off || batch.NextOffset() > rp.HighWatermark {
				c.t.Fatalf("batch at %d, high watermark %d: %v", off, rp.HighWatermark, err)
			}
			off, b = batch.NextOffset(), rest
		}
		return off >= end
	})
}

func TestFollowerServesArchivedRecords(t *testing.T) { // KIP-392, KIP-405
	inBubble(t, 2, func(c *trio) {
		c.bucket, c.local, c.racks = mem.New(mem.Options{}), 1, true
	}, func(c *trio) {
		tp := c.topic("t", 1, 2)
		for range 40 {
			c.mustProduce(1, tp, strings.Repeat("a", 500))
		}
		c.until("archived", func() bool { return c.record(tp).Pointer.Through == 40 })
		for id := range c.brokers {
			c.until("local data has gone", func() bool { return c.hosted(id, tp).Log().LocalStart() > 0 })
		}
		c.until("the follower knows", func() bool { return c.hosted(2, tp).HighWatermark() == 40 })
		// The leader sends consumers of the follower's rack there, for archived records too.
		req := fetchReq(13, tp, 0, 0)
		req.Rack = "rack2"
		cl := c.dial(1)
		if p := cl.do(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.PreferredReadReplica != 2 || len(p.RecordBatches) > 0 {
			t.Fatalf("preferred %d with %d bytes, want broker 2", p.PreferredReadReplica, len(p.RecordBatches))
		}
		for iso := range int8(2) {
			c.consume(2, tp, 0, 40, iso)
		}
		// It does not need the leader, nor the metadata store, for that.
		c.brokers[2].kv.Disconnect()
		c.net.cut(1, 2)
		c.consume(2, tp, 0, 40, 0)
		// ListOffsets is the leader's, as with Kafka.
		lo := kmsg.NewPtrListOffsetsRequest()
		lo.Version, lo.ReplicaID = 8, -1
		lt := kmsg.NewListOffsetsRequestTopic()
		lt.Topic = tp.Name
		lp := kmsg.NewListOffsetsRequestTopicPartition()
		lp.Timestamp = -2
		lt.Partitions = append(lt.Partitions, lp)
		lo.Topics = append(lo.Topics, lt)
		if p := c.dial(2).do(lo).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; p.ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Fatalf("ListOffsets: code %d, want NOT_LEADER_OR_FOLLOWER", p.ErrorCode)
		}
		c.brokers[2].kv.Connect()
	})
}

func TestFollowerServesArchivedRecordsUpToItsOwnHighWatermark(t *testing.T) {
	inBubble(t, 2, func(c *trio) {
		c.bucket, c.local = mem.New(mem.Options{}), 1
	}, func(c *trio) {
		tp := c.topic("t", 1, 2)
		for range 20 {
			c.mustProduce(1, tp, strings.Repeat("a", 500))
		}
		p := c.hosted(2, tp)
		c.until("local data has gone", func() bool { return p.Log().LocalStart() > 0 && p.HighWatermark() == 20 })
		c.net.cut(1, 2)
		c.produce(1, tp, 1, strings.Repeat("a", 500)) // so that the follower lags
		c.isr(tp, 1)
		for range 19 {
			c.mustProduce(1, tp, strings.Repeat("a", 500))
		}
		c.until("archived", func() bool { return c.record(tp).Pointer.Through == 40 })
		if p.HighWatermark() != 20 {
			t.Fatalf("high watermark %d of a follower that is cut off", p.HighWatermark())
		}
		s, err := p.ReadCold(context.Background(), 0, 1<<20, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Release()
		if s.Next != 20 || s.HighWatermark != 20 {
			t.Fatalf("read up to %d, high watermark %d, want 20: the archive has 40", s.Next, s.HighWatermark)
		}
		n := int64(0)
		for _, part := range s.Cold {
			for len(part) > 0 {
				b, rest, err := record.Next(part)
				if err != nil || b.BaseOffset() != n {
					t.Fatalf("batch at %d: %v", n, err)
				}
				n, part = b.NextOffset(), rest
			}
		}
		if n != 20 {
			t.Fatalf("%d records", n)
		}
	})
}
