package broker

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/record"
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

func TestFormerLeaderCutsWhatOnlyItHas(t *testing.T) { // BUG-074, BUG-076
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		c.net.cut(1, 2)
		c.net.cut(1, 3)
		c.brokers[1].kv.Disconnect() // it does not hear of the election
		for range 5 {
			c.produce(1, tp, 1, "x", "x")
		}
		c.elect(tp, 2, 2, 3)
		c.mustProduce(2, tp, "b", "c")
		if p := c.produce(1, tp, 1, "x"); p.ErrorCode != 0 {
			t.Fatalf("the old leader knows already: code %d", p.ErrorCode)
		}
		stale := c.hosted(1, tp)
		if hw := stale.HighWatermark(); hw != 1 {
			t.Fatalf("old leader's high watermark %d, want 1", hw)
		}
		stop := make(chan struct{})
		seen := make(chan string, 1)
		go func() { // a consumer reads the old leader all the time
			for {
				select {
				case <-stop:
					seen <- ""
					return
				default:
				}
				if s, err := stale.ReadFollower(1, 1<<20, 0); err == nil {
					b := make([]byte, s.Size)
					if s.Size > 0 {
						s.Hot.ReadAt(b, 0)
					}
					s.Release()
					if bytes.Contains(b, []byte("x")) {
						seen <- "x"
						return
					}
				}
				time.Sleep(time.Millisecond)
			}
		}()
		c.brokers[1].kv.Connect()
		c.net.heal()
		c.isr(tp, 1, 2, 3)
		c.mustProduce(2, tp, "d")
		got := c.same(tp, 1, 2, 3)
		close(stop)
		if s := <-seen; s != "" {
			t.Fatal("a reader saw what never was committed")
		}
		if strings.Join(got, "") != "abcd" {
			t.Fatalf("records %q", got)
		}
	})
}

func TestFollowerRestartsWithLessOfItsLog(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		for range 10 {
			c.mustProduce(1, tp, "a", "b")
		}
		c.brokers[3].stop(false)
		c.brokers[3].fs.Crash(7)
		c.elect(tp, 1, 1, 2) // the controller takes out who may have lost its tail
		c.start(3)
		c.isr(tp, 1, 2, 3)
		if got := c.same(tp, 1, 2, 3); len(got) != 20 {
			t.Fatalf("%d records", len(got))
		}
	})
}

func TestRestartedLeaderWaitsForAnElection(t *testing.T) { // PROTOCOLS 7.3
	inBubble(t, 3, func(c *trio) { c.minISR = 1 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		time.Sleep(6 * time.Second) // its high watermark is in the checkpoint
		c.brokers[1].stop(true)
		c.start(1)
		c.until("hosted", func() bool { return c.hosted(1, tp) != nil })
		time.Sleep(3 * time.Second)
		if p := c.produce(1, tp, 1, "b"); p.ErrorCode != kerr.NotLeaderForPartition.Code && p.ErrorCode != kerr.LeaderNotAvailable.Code {
			t.Fatalf("code %d from a restarted leader", p.ErrorCode)
		}
		if hw := c.hosted(1, tp).HighWatermark(); hw != 1 {
			t.Fatalf("high watermark %d after a clean restart, want 1", hw)
		}
		c.elect(tp, 1)
		c.mustProduce(1, tp, "c")
		c.same(tp, 1, 2, 3)
	})
}

func TestMetadataGoneForTenMinutes(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		for _, m := range c.brokers {
			m.kv.Disconnect()
		}
		for range 100 {
			c.mustProduce(1, tp, "a")
			time.Sleep(6 * time.Second)
		}
		for _, m := range c.brokers {
			m.kv.Connect()
		}
		c.same(tp, 1, 2, 3)
		c.isr(tp, 1, 2, 3)
	})
}

func TestISRChangeWhoseAnswerIsLost(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 1 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		c.brokers[1].kv.FailTxn(1, memkv.Unknown)
		c.net.cut(1, 3)
		c.produce(1, tp, 1, "b")
		c.isr(tp, 1, 2)
		c.mustProduce(1, tp, "c")
		c.net.heal()
		c.isr(tp, 1, 2, 3)
		c.same(tp, 1, 2, 3)
	})
}

func TestNewFollowerStartsFromTheArchive(t *testing.T) {
	inBubble(t, 3, func(c *trio) {
		c.bucket, c.local = mem.New(mem.Options{}), 1
	}, func(c *trio) {
		tp := c.topic("t", 1, 2)
		for range 40 {
			c.mustProduce(1, tp, strings.Repeat("a", 500))
		}
		c.until("archived", func() bool { return c.record(tp).Pointer.Through == 40 })
		c.until("local data has gone", func() bool { return c.hosted(1, tp).Log().LocalStart() > 0 })
		// Another follower is assigned.
		c.until("assigned", func() bool {
			rec := *c.record(tp)
			rec.Replicas = []int32{1, 2, 3}
			rec.PartitionEpoch++
			_, err := c.brokers[1].store.UpdatePartition(context.Background(), &rec)
			return err == nil
		})
		c.isr(tp, 1, 2, 3)
		p := c.hosted(3, tp)
		if start := p.Log().LocalStart(); start != 40 {
			t.Fatalf("the new follower begins at %d, want 40: it copied what is archived", start)
		}
		c.mustProduce(1, tp, "b")
		c.same(tp, 1, 2, 3)
		c.elect(tp, 3)
		c.mustProduce(3, tp, "c")
		c.same(tp, 1, 2, 3)
		// The whole history can be read from it.
		cl := c.dial(3)
		n, off := 0, int64(0)
		c.until("all is read", func() bool {
			req := fetchReq(13, tp, off, 0)
			req.MaxWaitMillis = 500
			rp := cl.do(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			for b := rp.RecordBatches; len(b) > 0; n++ {
				batch, rest, err := record.Next(b)
				if err != nil || batch.BaseOffset() != off {
					t.Fatalf("batch at %d: %v", off, err)
				}
				off, b = batch.NextOffset(), rest
			}
			return off == 42
		})
	})
}

func TestFollowerOfADivergedArchiveStartsFromIt(t *testing.T) { // PROTOCOLS 1.6
	inBubble(t, 3, func(c *trio) {
		c.bucket, c.local, c.minISR = mem.New(mem.Options{}), 1, 1
	}, func(c *trio) {
		tp := c.topic("t", 1, 2)
		c.mustProduce(1, tp, "a")
		c.isr(tp, 1, 2)
		c.net.cut(1, 2)
		c.brokers[1].kv.Disconnect()
		for range 20 { // never committed
			c.produce(1, tp, 1, strings.Repeat("x", 500))
		}
		c.elect(tp, 2, 2)
		for range 30 {
			c.mustProduce(2, tp, strings.Repeat("b", 500))
		}
		c.until("archived", func() bool { return c.record(tp).Pointer.Through == 31 })
		c.brokers[1].kv.Connect()
		c.net.heal()
		c.isr(tp, 1, 2)
		if start := c.hosted(1, tp).Log().LocalStart(); start != 31 {
			t.Fatalf("log begins at %d, want 31", start)
		}
		c.mustProduce(2, tp, "c")
		c.same(tp, 1, 2)
	})
}

func TestFollowerServesNothingThatTheArchiveHasOtherwise(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.bucket, c.minISR = mem.New(mem.Options{}), 1 }, func(c *trio) {
		tp := c.topic("t", 1, 2)
		c.mustProduce(1, tp, "a")
		c.isr(tp, 1, 2)
		c.net.cut(1, 2)
		c.brokers[1].kv.Disconnect()
		c.produce(1, tp, 1, "x", "y") // never committed
		c.brokers[1].stop(false)
		c.elect(tp, 2, 2)
		c.mustProduce(2, tp, "b", "c", "d")
		c.until("archived", func() bool { return c.record(tp).Pointer.Through == 4 })
		c.start(1) // it cannot reach the leader
		c.until("opened", func() bool { return c.hosted(1, tp) != nil })
		if p := c.hosted(1, tp); p.LEO() != 3 || p.HighWatermark() > 1 {
			t.Fatalf("high watermark %d of %d: what is archived in their place is not what this log has", p.HighWatermark(), p.LEO())
		}
		c.net.heal()
		c.isr(tp, 1, 2)
		c.same(tp, 1, 2)
	})
}

func TestNewFollowerOfALogThatStartsInsideABatch(t *testing.T) { // DeleteRecords to an offset that no batch begins at
	inBubble(t, 3, nil, func(c *trio) {
		tp := c.topic("t", 1, 2)
		c.mustProduce(1, tp, "a", "b", "c", "d", "e", "f")
		if _, err := c.hosted(1, tp).DeleteRecords(4); err != nil {
			t.Fatal(err)
		}
		c.until("assigned", func() bool {
			rec := *c.record(tp)
			rec.Replicas = []int32{1, 2, 3}
			rec.PartitionEpoch++
			_, err := c.brokers[1].store.UpdatePartition(context.Background(), &rec)
			return err == nil
		})
		c.isr(tp, 1, 2, 3)
		c.mustProduce(1, tp, "g")
		c.same(tp, 1, 2, 3)
		c.until("the log start has come", func() bool { return c.hosted(3, tp).LogStart() == 4 })
	})
}

func TestConsumerIsSentToAReplicaOfItsRack(t *testing.T) { // KIP-392
	for _, racks := range []bool{true, false} {
		inBubble(t, 3, func(c *trio) { c.racks = racks }, func(c *trio) {
			tp := c.topic("t", 1, 2, 3)
			c.mustProduce(1, tp, "a", "b")
			ask := func(to int32, version int16, rack string, off int64) kmsg.FetchResponseTopicPartition {
				req := fetchReq(version, tp, off, 0)
				req.Rack = rack
				return c.dial(to).do(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			}
			p := ask(1, 13, "rack2", 0)
			if want := map[bool]int32{true: 2, false: -1}[racks]; p.PreferredReadReplica != want || (want >= 0) != (len(p.RecordBatches) == 0) {
				t.Fatalf("racks %v: preferred %d with %d bytes, want %d", racks, p.PreferredReadReplica, len(p.RecordBatches), want)
			}
			if p := ask(1, 13, "rack1", 0); p.PreferredReadReplica != -1 || len(p.RecordBatches) == 0 {
				t.Fatalf("the leader's own rack: preferred %d", p.PreferredReadReplica)
			}
			if p := ask(1, 13, "nowhere", 0); p.PreferredReadReplica != -1 || len(p.RecordBatches) == 0 {
				t.Fatalf("unknown rack: preferred %d", p.PreferredReadReplica)
			}
			if racks {
				c.until("the follower knows the high watermark", func() bool { return c.hosted(2, tp).HighWatermark() == 2 })
			} else {
				c.mustProduce(1, tp, "c") // its answer tells the high watermark before
				c.until("the follower knows the high watermark", func() bool { return c.hosted(2, tp).HighWatermark() >= 2 })
			}
			if p := ask(2, 13, "rack2", 0); p.ErrorCode != 0 || len(p.RecordBatches) == 0 || p.HighWatermark < 2 {
				t.Fatalf("from the follower: %+v", p)
			}
			if p := ask(2, 10, "", 0); p.ErrorCode != kerr.NotLeaderForPartition.Code {
				t.Fatalf("version 10 from the follower: code %d", p.ErrorCode)
			}
			if p := c.produce(2, tp, 1, "x"); p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != 1 {
				t.Fatalf("produce to the follower: code %d, leader %+v", p.ErrorCode, p.CurrentLeader)
			}
		})
	}
}

func TestLatestIsNotToldBeforeTheHighWatermarkHasCaughtUp(t *testing.T) { // KIP-207
	inBubble(t, 3, func(c *trio) { c.minISR = 1 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a", "b")
		c.brokers[1].stop(false)
		c.net.cut(2, 3)
		c.elect(tp, 2, 2, 3)
		latest := func(version int16) int16 {
			req := kmsg.NewPtrListOffsetsRequest()
			req.Version, req.ReplicaID = version, -1
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = "t"
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Timestamp = -1
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			return c.dial(2).do(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode
		}
		if hw := c.hosted(2, tp).HighWatermark(); hw == 2 {
			t.Fatal("the follower has learned the high watermark already: the test shows nothing")
		}
		if got := latest(6); got != kerr.OffsetNotAvailable.Code {
			t.Fatalf("code %d, want OFFSET_NOT_AVAILABLE", got)
		}
		if got := latest(4); got != kerr.LeaderNotAvailable.Code {
			t.Fatalf("version 4: code %d, want LEADER_NOT_AVAILABLE", got)
		}
		c.net.heal()
		c.until("settled", func() bool { return latest(6) == 0 })
	})
}

func TestManyPartitionsShareASession(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		assignment := make([][]int32, 60)
		for i := range assignment {
			assignment[i] = []int32{int32(i%3) + 1, int32((i+1)%3) + 1, int32((i+2)%3) + 1}
		}
		tp, err := c.brokers[1].store.CreateTopic(context.Background(), meta.TopicSpec{Name: "many", Assignment: assignment})
		if err != nil {
			t.Fatal(err)
		}
		c.until("led", func() bool {
			return len(c.brokers[1].parts.Led()) == 20 && len(c.brokers[2].parts.Led()) == 20 && len(c.brokers[3].parts.Led()) == 20
		})
		for round := range 3 {
			for i := range assignment {
				req := produceReq(13, -1, tp, int32(i), valueBatch(t, "a"))
				p := c.dial(int32(i%3) + 1).do(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
				if p.ErrorCode != 0 || p.BaseOffset != int64(round) {
					t.Fatalf("partition %d: code %d at %d", i, p.ErrorCode, p.BaseOffset)
				}
			}
		}
	})
}

func TestGracefulMoveStallsNobody(t *testing.T) { // BUG-078
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		a, b := c.topic("a", 1, 2, 3), c.topic("b", 2, 1, 3)
		c.mustProduce(1, a, "a")
		c.mustProduce(2, b, "b")
		var longest time.Duration
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				began := time.Now()
				c.mustProduce(1, a, "a")
				longest = max(longest, time.Since(began))
			}
		}()
		for i, to := range []int32{1, 2, 3, 1, 3, 2} {
			time.Sleep(time.Duration(100*i+37) * time.Millisecond)
			c.elect(b, to, 1, 2, 3)
			began := time.Now()
			c.mustProduce(to, b, "b")
			if d := time.Since(began); d > 50*time.Millisecond {
				t.Errorf("move %d: the first record of the new leader took %s", i, d)
			}
		}
		close(stop)
		<-done
		if longest > 50*time.Millisecond {
			t.Errorf("another partition was held up for %s", longest)
		}
		c.same(a, 1, 2, 3)
		c.same(b, 1, 2, 3)
	})
}

func TestRequestForAStoppingLeaderWaitsForItsSuccessor(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		began := time.Now()
		if p := c.produce(2, tp, -1, "x"); p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != 1 || time.Since(began) > 50*time.Millisecond {
			t.Fatalf("code %d, leader %+v after %s", p.ErrorCode, p.CurrentLeader, time.Since(began))
		}
		if err := c.brokers[1].store.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		c.until("all know", func() bool { return c.brokers[2].store.Image().Brokers[1].Draining })
		began = time.Now()
		if p := c.produce(3, tp, -1, "x"); p.ErrorCode != kerr.NotLeaderForPartition.Code || time.Since(began) > 150*time.Millisecond {
			t.Fatalf("before anybody is elected: code %d after %s", p.ErrorCode, time.Since(began))
		}
		// The client was sent here a moment before this broker's own image says so.
		late := make(chan kmsg.ProduceResponseTopicPartition, 1)
		go func() { late <- c.produce(2, tp, -1, "b") }()
		time.Sleep(20 * time.Millisecond)
		c.elect(tp, 2, 2, 3)
		if p := <-late; p.ErrorCode != 0 {
			t.Fatalf("code %d, leader %+v", p.ErrorCode, p.CurrentLeader)
		}
		if got := c.same(tp, 2, 3); strings.Join(got, "") != "ab" {
			t.Fatalf("records %q", got)
		}
	})
}

// A client that is told by the broker it was sent to that the one it comes from leads backs off, for a quarter of a second or longer.
func TestRequestIsFasterThanTheNewLeadersMetadata(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp, other := c.topic("t", 1, 2, 3), c.topic("other", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		late := make(chan kmsg.ProduceResponseTopicPartition, 1)
		go func() { late <- c.produce(2, tp, -1, "b") }()
		time.Sleep(20 * time.Millisecond)
		c.elect(tp, 2, 1, 2, 3)
		if p := <-late; p.ErrorCode != 0 {
			t.Fatalf("code %d, leader %+v", p.ErrorCode, p.CurrentLeader)
		}
		// Who still comes to the last leader does not know better.
		began := time.Now()
		if p := c.produce(1, tp, -1, "x"); p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != 2 || time.Since(began) > 0 {
			t.Fatalf("code %d, leader %+v after %s", p.ErrorCode, p.CurrentLeader, time.Since(began))
		}
		// All partitions of a request wait together.
		req := produceReq(12, -1, tp, 0, valueBatch(t, "x"))
		more := produceReq(12, -1, other, 0, valueBatch(t, "x"))
		req.Topics = append(req.Topics, more.Topics...)
		began = time.Now()
		c.dial(3).do(req)
		if d := time.Since(began); d == 0 || d > 50*time.Millisecond {
			t.Fatalf("two partitions that are led by others were refused after %s", d)
		}
	})
}

func TestStoppingLeaderTakesNothingMoreUntilAnotherLeads(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp, only := c.topic("t", 1, 2, 3), c.topic("only", 1)
		c.mustProduce(1, tp, "a")
		if err := c.brokers[1].store.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // it has heard of it
		late := make(chan kmsg.ProduceResponseTopicPartition, 1)
		go func() { late <- c.produce(1, tp, 1, "x") }()
		time.Sleep(20 * time.Millisecond)
		began := time.Now()
		if p := c.produce(1, only, 1, "o"); p.ErrorCode != 0 || time.Since(began) > 0 {
			t.Fatalf("what nobody else can lead: code %d after %s", p.ErrorCode, time.Since(began))
		}
		if leo := c.hosted(1, tp).LEO(); leo != 1 {
			t.Fatalf("the log ends at %d: followers have different ends at the election", leo)
		}
		c.elect(tp, 2, 2, 3)
		if p := <-late; p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != 2 {
			t.Fatalf("code %d, leader %+v", p.ErrorCode, p.CurrentLeader)
		}
		c.mustProduce(2, tp, "b")
		if got := c.same(tp, 1, 2, 3); strings.Join(got, "") != "ab" {
			t.Fatalf("records %q", got)
		}
	})
}

func TestStoppingLeaderGoesOnWhereNobodyIsElected(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		if err := c.brokers[1].store.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // it has heard of it
		for i, longest := range []time.Duration{100 * time.Millisecond, 5 * time.Millisecond} {
			began := time.Now()
			if p := c.produce(1, tp, -1, "a"); p.ErrorCode != 0 || time.Since(began) > longest {
				t.Fatalf("record %d: code %d after %s", i, p.ErrorCode, time.Since(began))
			}
		}
	})
}

// The archive, and with it a restore to a time, goes by when the leader appended; the next leader has to know.
func TestFollowerKnowsWhenTheLeaderAppended(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		c.net.cut(1, 3)
		c.produce(1, tp, 1, "b")
		c.isr(tp, 1, 2)
		for _, v := range []string{"c", "d"} {
			time.Sleep(time.Hour)
			c.mustProduce(1, tp, v)
			time.Sleep(time.Hour)
		}
		c.net.heal()
		c.isr(tp, 1, 2, 3)
		c.mustProduce(1, tp, "e")
		c.same(tp, 1, 2, 3)
		want, err := c.hosted(1, tp).Log().AppendTimes(0, 5)
		if err != nil || len(want) < 4 || want[2].Ms-want[1].Ms < time.Hour.Milliseconds() {
			t.Fatalf("append times %+v, %v", want, err)
		}
		for off := range int64(5) {
			at := func(id int32) record.AppendTime {
				list, err := c.hosted(id, tp).Log().AppendTimes(off, off+1)
				if err != nil || len(list) != 1 {
					t.Fatalf("broker %d, offset %d: %+v, %v", id, off, list, err)
				}
				return list[0]
			}
			for _, id := range []int32{2, 3} {
				if got, want := at(id), at(1); got.LastMs() > want.LastMs() || got.Ms < want.Ms {
					t.Fatalf("broker %d has %+v of offset %d; the leader %+v", id, got, off, want)
				}
			}
		}
	})
}
