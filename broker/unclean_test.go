package broker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/mem"
)

// outOfSync has broker 3 leave the ISR of a topic of 1, 2 and 3 without the last records, which 1 and 2 acknowledge, and then all three
// are down.
func (c *trio) outOfSync(tp *meta.Topic, values ...string) {
	c.t.Helper()
	c.net.cut(1, 3)
	c.net.cut(2, 3)
	c.produce(1, tp, 1, values[0])
	c.isr(tp, 1, 2)
	for _, v := range values[1:] {
		c.mustProduce(1, tp, v)
	}
}

// leader waits until the metadata has this leader.
func (c *trio) leader(tp *meta.Topic, id int32) {
	c.t.Helper()
	c.until("it leads", func() bool { return c.record(tp).Leader == id })
}

// read lists all values from the log start on, archived and local, as a consumer of that broker gets them.
func (c *trio) read(id int32, tp *meta.Topic) []string {
	c.t.Helper()
	end := c.hosted(id, tp).HighWatermark()
	c.consume(id, tp, 0, end, 0)
	p := c.hosted(id, tp)
	var out []string
	for off := int64(0); off < end; {
		s, err := p.ReadHot(off, 1<<20, 0)
		if err != nil {
			s, err = p.ReadCold(context.Background(), off, 1<<20, 0)
		}
		if err != nil {
			c.t.Fatalf("read %d: %v", off, err)
		}
		parts := s.Cold
		if s.Hot.Size > 0 {
			b := make([]byte, s.Hot.Size)
			s.Hot.ReadAt(b, 0)
			parts = [][]byte{b}
		}
		for _, b := range parts {
			out = append(out, batchValues(c.t, b)...)
		}
		off = s.Next
		s.Release()
	}
	return out
}

func TestUncleanElectionIsOffByDefault(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.control = true }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		c.outOfSync(tp, "b", "c")
		c.brokers[1].stop(false)
		c.brokers[2].stop(false)
		c.leader(tp, -1)
		time.Sleep(time.Minute)
		if p := c.produce(3, tp, 1, "x"); p.ErrorCode != kerr.NotLeaderForPartition.Code || c.record(tp).Leader != -1 {
			t.Fatalf("code %d, leader %d", p.ErrorCode, c.record(tp).Leader)
		}
		// The last member of the ISR leads when it comes back, and nothing is lost.
		c.net.heal()
		c.start(1)
		c.start(2)
		c.isr(tp, 1, 2, 3)
		if got := c.same(tp, 1, 2, 3); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Fatalf("records %q", got)
		}
	})
}

func TestUncleanElection(t *testing.T) {
	for name, set := range map[string]func(*trio){
		"by configuration": func(c *trio) { c.control, c.unclean = true, true },
		"by ElectLeaders":  func(c *trio) { c.control = true },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, set, func(c *trio) {
				tp := c.topic("t", 1, 2, 3)
				c.mustProduce(1, tp, "a")
				c.outOfSync(tp, "b", "c")
				epoch := c.record(tp).LeaderEpoch
				c.brokers[1].stop(false)
				c.brokers[2].stop(false)
				if !c.unclean {
					c.leader(tp, -1)
					req := electReq(2, 1, "t")
					c.until("elected", func() bool {
						got := c.dial(3).elect(req)
						if code, ok := got["t-0"]; !ok || code != 0 && code != kerr.ElectionNotNeeded.Code {
							t.Fatalf("ElectLeaders: %v", got)
						}
						return got["t-0"] == 0
					})
				}
				c.leader(tp, 3)
				if p := c.record(tp); !slices.Equal(p.ISR, []int32{3}) || p.LeaderEpoch <= epoch {
					t.Fatalf("%+v", p)
				}
				c.mustProduce(3, tp, "d")
				c.mustProduce(3, tp, "e")
				// Those that had more cut it off, below what they had shown as committed.
				c.net.heal()
				c.start(1)
				c.start(2)
				c.isr(tp, 1, 2, 3)
				if got := c.same(tp, 1, 2, 3); !slices.Equal(got, []string{"a", "d", "e"}) {
					t.Fatalf("records %q", got)
				}
			})
		})
	}
}

func TestUncleanLeaderTakesFromTheArchiveWhatItLacks(t *testing.T) { // PROTOCOLS 1.6
	inBubble(t, 3, func(c *trio) {
		c.control, c.unclean, c.bucket = true, true, mem.New(mem.Options{})
	}, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		c.outOfSync(tp, "b", "c", "d")
		c.until("archived", func() bool { return c.record(tp).Pointer.Through == 4 })
		c.brokers[1].stop(false)
		c.brokers[2].stop(false)
		c.leader(tp, 3)
		c.until("it serves", func() bool { return c.produce(3, tp, -1, "e").ErrorCode == 0 })
		want := []string{"a", "b", "c", "d", "e"}
		if got := c.read(3, tp); !slices.Equal(got, want) {
			t.Fatalf("records %q", got)
		}
		c.net.heal()
		c.start(1)
		c.start(2)
		c.isr(tp, 1, 2, 3)
		c.mustProduce(3, tp, "f")
		c.same(tp, 1, 2, 3)
		c.until("archived", func() bool { return c.record(tp).Pointer.Through == 6 })
		for id := range c.brokers {
			c.until("all knows it", func() bool { return c.hosted(id, tp).HighWatermark() == 6 })
			if id == 3 {
				if got := c.read(id, tp); !slices.Equal(got, append(want, "f")) {
					t.Fatalf("broker %d: records %q", id, got)
				}
			}
		}
		if c.record(tp).Recovering {
			t.Error("the record still says that the leader recovers")
		}
	})
}

func TestUncleanLeaderWithALongerLogServesNothingBeforeItIsCompared(t *testing.T) {
	bucket := fault.New(mem.New(mem.Options{}), fault.Options{})
	inBubble(t, 3, func(c *trio) {
		c.control, c.bucket = true, bucket
	}, func(c *trio) {
		tp := c.topic(offsetsTopic, 3, 1, 2)
		c.mustProduce(3, tp, "a")
		// 3 is cut off from all, and goes on by itself.
		c.net.cut(1, 3)
		c.net.cut(2, 3)
		c.brokers[3].kv.Disconnect()
		for range 6 {
			c.produce(3, tp, 1, "x")
		}
		c.leader(tp, 1)
		c.isr(tp, 1, 2)
		c.mustProduce(1, tp, "b")
		c.mustProduce(1, tp, "c")
		c.until("archived", func() bool { return c.record(tp).Pointer.Through == 3 })
		c.brokers[3].kv.Connect()
		c.brokers[3].stop(false)
		c.brokers[1].stop(false)
		c.brokers[2].stop(false)
		// It comes back alone, with a longer log than the archive, of another epoch; the store is away.
		c.start(3)
		bucket.SetRules(fault.Rule{Effect: fault.Fail})
		c.until("elected", func() bool { return c.dial(3).elect(electReq(2, 1, offsetsTopic))[offsetsTopic+"-0"] == 0 })
		c.until("it knows", func() bool { return c.hosted(3, tp).Leading() })
		for range 5 {
			if p := c.produce(3, tp, -1, "y"); p.ErrorCode != kerr.LeaderNotAvailable.Code {
				t.Fatalf("produce: code %d, want LEADER_NOT_AVAILABLE", p.ErrorCode)
			}
			req := fetchReq(13, tp, 0, 0)
			if p := c.dial(3).do(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != kerr.LeaderNotAvailable.Code {
				t.Fatalf("fetch: code %d with %d bytes, want LEADER_NOT_AVAILABLE", p.ErrorCode, len(p.RecordBatches))
			}
			if _, err := (groupLogs{c.brokers[3].parts}).Open(t.Context(), 0, c.hosted(3, tp).LeaderEpoch()); err == nil {
				t.Fatal("the coordinator of groups takes the log for what was committed")
			}
			time.Sleep(10 * time.Second)
		}
		bucket.SetRules()
		c.until("it serves", func() bool { return c.produce(3, tp, -1, "d").ErrorCode == 0 })
		if got := c.read(3, tp); strings.Join(got, "") != "abcd" {
			t.Fatalf("records %q", got)
		}
		c.net.heal()
		c.start(1)
		c.start(2)
		c.isr(tp, 1, 2, 3)
		c.mustProduce(3, tp, "e")
		c.same(tp, 1, 2, 3)
		if got := c.read(3, tp); strings.Join(got, "") != "abcde" {
			t.Fatalf("records %q", got)
		}
	})
}
