package broker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/tier"
)

// offlineReplicas asks a broker's Metadata for the offline replicas and the leader of partition 0.
func offlineReplicas(cl *client, tp *meta.Topic) (offline []int32, leader int32, code int16) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &tp.Name
	req.Topics = append(req.Topics, rt)
	p := cl.do(req).(*kmsg.MetadataResponse).Topics[0].Partitions[0]
	return p.OfflineReplicas, p.Leader, p.ErrorCode
}

// logDirs asks a broker's DescribeLogDirs for the directory's error and the topics that it has.
func logDirs(cl *client) (code int16, topics []string) {
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Version = 4
	d := cl.do(req).(*kmsg.DescribeLogDirsResponse).Dirs[0]
	for _, t := range d.Topics {
		topics = append(topics, t.Topic)
	}
	return d.ErrorCode, topics
}

func TestFailedLogOfALeaderIsFollowedByAnotherReplica(t *testing.T) {
	for what, breakDisk := range map[string]func(*vfs.Mem){
		"disk error": func(m *vfs.Mem) { m.FailNth(1, "write", ".log", nil) },
		"disk full":  func(m *vfs.Mem) { m.SetSpace(20) },
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, 3, func(c *trio) { c.minISR, c.control = 2, true }, func(c *trio) {
				tp, other := c.topic("t", 1, 2, 3), c.topic("u", 1, 2, 3)
				c.mustProduce(1, tp, "a")
				c.mustProduce(1, other, "a")
				breakDisk(c.brokers[1].fs)
				began := time.Now()
				if p := c.produce(1, tp, -1, "b"); p.ErrorCode != kerr.KafkaStorageError.Code {
					t.Fatalf("code %d, want KAFKA_STORAGE_ERROR", p.ErrorCode)
				}
				c.brokers[1].fs.SetSpace(-1)
				c.until("another leads", func() bool { p := c.hosted(2, tp); return p != nil && p.Leading() })
				c.isr(tp, 2, 3)
				if d := time.Since(began); d > time.Second {
					t.Errorf("it took %s", d)
				}
				c.mustProduce(2, tp, "c")
				if got := c.same(tp, 2, 3); !slices.Equal(got, []string{"a", "c"}) {
					t.Fatalf("records %q", got)
				}
				if p := c.produce(1, tp, -1, "d"); p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != 2 {
					t.Fatalf("once another leads: code %d, leader %+v, want NOT_LEADER_OR_FOLLOWER and broker 2", p.ErrorCode, p.CurrentLeader)
				}
				c.mustProduce(1, other, "b") // the broker stays
				for id := range c.brokers {
					cl := c.dial(id)
					if offline, leader, code := offlineReplicas(cl, tp); !slices.Equal(offline, []int32{1}) || leader != 2 || code != 0 {
						t.Errorf("broker %d: offline replicas %v, leader %d, code %d", id, offline, leader, code)
					}
					code, topics := logDirs(cl)
					slices.Sort(topics)
					if id == 1 && (code != kerr.KafkaStorageError.Code || !slices.Equal(topics, []string{"u"})) ||
						id != 1 && (code != 0 || !slices.Equal(topics, []string{"t", "u"})) {
						t.Errorf("broker %d: log directory has code %d, topics %v", id, code, topics)
					}
					cl.conn.Close()
				}
				// A new process recovers the log, catches up, and is in sync again.
				c.brokers[1].stop(false)
				c.start(1)
				c.isr(tp, 1, 2, 3)
				if got := c.same(tp, 1, 2, 3); !slices.Equal(got, []string{"a", "c"}) {
					t.Fatalf("records %q", got)
				}
				if off := c.record(tp).Offline; len(off) > 0 {
					t.Errorf("offline replicas %v", off)
				}
			})
		})
	}
}

func TestProduceThatWaitsIsToldOfTheFailedLog(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR, c.control = 2, true }, func(c *trio) {
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
		c.brokers[1].fs.FailNth(1, "write", ".log", nil)
		c.produce(1, tp, 1, "c")
		if p := <-late; p.ErrorCode != kerr.KafkaStorageError.Code && p.ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Fatalf("code %d, want KAFKA_STORAGE_ERROR or NOT_LEADER_OR_FOLLOWER", p.ErrorCode)
		}
	})
}

func TestFailedLogOfAFollowerLeavesTheISR(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR, c.control = 2, true }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		c.brokers[3].fs.FailNth(1, "write", ".log", nil)
		began := time.Now()
		c.mustProduce(1, tp, "b")
		if d := time.Since(began); d > time.Second {
			t.Errorf("acknowledged after %s, replica.lag.time.max.ms is 10 s", d)
		}
		c.isr(tp, 1, 2)
		time.Sleep(30 * time.Second)
		c.mustProduce(1, tp, "c")
		c.isr(tp, 1, 2) // it is not let in again while its log is offline
		c.same(tp, 1, 2)
	})
}

func TestLogThatCannotBeOpenedIsOffline(t *testing.T) {
	inBubble(t, 3, func(c *trio) { c.minISR, c.control = 1, true }, func(c *trio) {
		tp, other := c.topic("t", 1, 2), c.topic("u", 1, 2)
		c.mustProduce(1, tp, "a")
		c.mustProduce(1, other, "a")
		c.brokers[1].stop(true)
		c.brokers[1].fs.FailNth(1, "", "t-0/00000000000000000000.log", nil)
		c.start(1)
		c.until("named", func() bool { return slices.Equal(c.record(tp).Offline, []int32{1}) })
		c.until("another leads", func() bool { return c.hosted(2, tp).Leading() })
		c.isr(other, 1, 2)
		c.mustProduce(2, tp, "b")
	})
}

func TestOnlyReplicaGoesOfflineAndTheBrokerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv, files := memkv.New(), vfs.NewMem()
		w := newWorld(t, settings{pipes: true, fs: files, dir: "/data", kv: kv})
		tp, other := w.topic("t", 1, nil), w.topic("u", 1, nil)
		cl := w.dial()
		put := func(tp *meta.Topic, value string) int16 {
			return cl.do(produceReq(13, -1, tp, 0, valueBatch(t, value))).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
		}
		for range 3 {
			if code := put(tp, "a"); code != 0 {
				t.Fatalf("code %d", code)
			}
		}
		files.FailNth(1, "write", ".log", nil)
		for range 3 {
			if code := put(tp, "b"); code != kerr.KafkaStorageError.Code {
				t.Fatalf("produce: code %d, want KAFKA_STORAGE_ERROR", code)
			}
		}
		req := fetchReq(18, tp, 0, 0, 1)
		if p := cl.do(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != kerr.KafkaStorageError.Code {
			t.Fatalf("fetch: code %d, want KAFKA_STORAGE_ERROR", p.ErrorCode)
		}
		if code := put(other, "a"); code != 0 {
			t.Fatalf("another log: code %d", code)
		}
		time.Sleep(time.Second)
		if offline, leader, code := offlineReplicas(cl, tp); !slices.Equal(offline, []int32{1}) || leader != -1 || code != kerr.LeaderNotAvailable.Code {
			t.Errorf("offline replicas %v, leader %d, code %d", offline, leader, code)
		}
		w.stop()
		w = newWorld(t, settings{pipes: true, fs: files, dir: "/data", kv: kv})
		cl = w.dial()
		if offline, leader, code := offlineReplicas(cl, tp); len(offline) > 0 || leader != 1 || code != 0 {
			t.Errorf("after a restart: offline replicas %v, leader %d, code %d", offline, leader, code)
		}
		p := cl.do(fetchReq(18, tp, 0, 0, 1)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.HighWatermark < 3 {
			t.Fatalf("after a restart: code %d, high watermark %d, want all 3", p.ErrorCode, p.HighWatermark)
		}
		if code := put(tp, "c"); code != 0 {
			t.Fatalf("after a restart: code %d", code)
		}
		w.stop()
	})
}

func TestUndeletedTopicIsNotOfflineAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := vfs.NewMem()
		w := newWorld(t, settings{
			pipes: true, fs: files, dir: "/data", bucket: mem.New(mem.Options{}),
			config: func(t *meta.Topic) (localseg.Config, tier.TopicConfig) {
				return localseg.Config{Delete: true, RetentionMs: -1, Tiered: true}, tier.TopicConfig{Name: t.Name, RetentionMs: -1, RetentionBytes: -1}
			},
		})
		tp := w.topic("t", 1, nil)
		cl := w.dial()
		put := func(value string) int16 {
			return cl.do(produceReq(13, -1, tp, 0, valueBatch(t, value))).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
		}
		if code := put("a"); code != 0 {
			t.Fatalf("code %d", code)
		}
		time.Sleep(time.Second) // it is archived
		files.FailNth(1, "write", ".log", nil)
		if code := put("b"); code != kerr.KafkaStorageError.Code {
			t.Fatalf("code %d, want KAFKA_STORAGE_ERROR", code)
		}
		time.Sleep(time.Second)
		if err := w.store.DeleteTopic(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := w.store.UndeleteTopic(t.Context(), tp.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if offline, leader, code := offlineReplicas(cl, tp); len(offline) > 0 || leader != 1 || code != 0 {
			t.Errorf("offline replicas %v, leader %d, code %d", offline, leader, code)
		}
		if code := put("c"); code != 0 {
			t.Fatalf("code %d", code)
		}
		w.stop()
	})
}
