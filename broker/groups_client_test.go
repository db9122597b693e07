package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta/memkv"
)

// TestConsumersShareATopic: three consumers of one group come and go; each record is read by one of them, those that were committed only
// once, whatever rebalances came between, and after a restart of the broker the group goes on where it was.
func TestConsumersShareATopic(t *testing.T) {
	set := settings{dir: t.TempDir()}
	w := groupWorld(t, set, map[string]string{"group.min.session.timeout.ms": "1000"})
	const partitions, each = 6, 50
	w.topic("t", partitions, nil)
	seen := newSightings()

	produceEach(t, w.addr, "t", partitions, 0, each)
	a := startConsumer(t, w.addr, "a", seen)
	b := startConsumer(t, w.addr, "b", seen)
	w.until("two consumers have read all", func() bool { return seen.count() == partitions*each })
	c := startConsumer(t, w.addr, "c", seen)
	w.until("three consumers have partitions", func() bool {
		return len(a.assigned()) == 2 && len(b.assigned()) == 2 && len(c.assigned()) == 2
	})
	produceEach(t, w.addr, "t", partitions, each, 2*each)
	w.until("three consumers have read all", func() bool { return seen.count() == 2*partitions*each })

	a.stop() // leaves
	w.until("two consumers have the partitions of the one that left", func() bool {
		return len(b.assigned())+len(c.assigned()) == partitions
	})
	produceEach(t, w.addr, "t", partitions, 2*each, 3*each)
	w.until("two consumers have read all", func() bool { return seen.count() == 3*partitions*each })
	b.stop()
	c.stop()
	if n := seen.repeated(); n != 0 {
		t.Errorf("%d records were read twice, though each consumer commits before it gives up a partition", n)
	}
	raw := w.dial()
	for p := range int32(partitions) {
		if got := raw.committedOffset("g", "t", p); got != 3*each {
			t.Errorf("partition %d: committed %d, want %d", p, got, 3*each)
		}
	}
}

func TestGroupGoesOnAfterARestart(t *testing.T) {
	kv := memkv.New()
	set := settings{kv: kv, dir: t.TempDir()}
	w := groupWorld(t, set, nil)
	w.topic("t", 2, nil)
	seen := newSightings()
	produceEach(t, w.addr, "t", 2, 0, 20)
	a := startConsumer(t, w.addr, "a", seen)
	w.until("all is read", func() bool { return seen.count() == 40 })
	a.stop()
	w.stop()

	w = groupWorld(t, set, nil)
	produceEach(t, w.addr, "t", 2, 20, 30)
	b := startConsumer(t, w.addr, "b", seen)
	w.until("what came later is read", func() bool { return seen.count() == 60 })
	b.stop()
	if n := seen.repeated(); n != 0 {
		t.Errorf("%d records were read twice", n)
	}
}

// BUG-054 over the wire.
func TestUnusedMemberIDDoesNotHoldUpARebalance(t *testing.T) {
	w := groupWorld(t, settings{}, map[string]string{"group.min.session.timeout.ms": "500"})
	w.topic("t", 2, nil)
	seen := newSightings()
	a := startConsumer(t, w.addr, "a", seen)
	w.until("the first consumer has all", func() bool { return len(a.assigned()) == 2 })

	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 9, "g", 600, 60_000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "cooperative-sticky"
	req.Protocols = append(req.Protocols, p)
	raw := w.dial()
	resp := raw.do(req).(*kmsg.JoinGroupResponse)
	want(t, "handshake", resp.ErrorCode, kerr.MemberIDRequired.Code)
	begun := time.Now()
	b := startConsumer(t, w.addr, "b", seen)
	w.until("both have a partition", func() bool { return len(a.assigned()) == 1 && len(b.assigned()) == 1 })
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("the rebalance took %v", took)
	}
	req.MemberID = resp.MemberID
	want(t, "the id later", raw.do(req).(*kmsg.JoinGroupResponse).ErrorCode, kerr.UnknownMemberID.Code)
	req.MemberID = "never-given"
	want(t, "an id that was not given", raw.do(req).(*kmsg.JoinGroupResponse).ErrorCode, kerr.UnknownMemberID.Code)
}

func produceEach(t *testing.T, addr, topic string, partitions, from, to int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var rs []*kgo.Record
	for p := range partitions {
		for i := from; i < to; i++ {
			rs = append(rs, &kgo.Record{Topic: topic, Partition: int32(p), Value: fmt.Appendf(nil, "%d/%d", p, i)})
		}
	}
	if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// sightings counts how often each record was read.
type sightings struct {
	mu   sync.Mutex
	seen map[string]int // guarded by mu
}

func newSightings() *sightings { return &sightings{seen: map[string]int{}} }

func (s *sightings) add(r *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[string(r.Value)]++
}

func (s *sightings) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

func (s *sightings) repeated() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for v := range maps.Values(s.seen) {
		n += v - 1
	}
	return n
}

// consumer is a member of group "g" that commits what it has read, also before it gives up partitions.
type consumer struct {
	cl     *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	have map[int32]struct{} // guarded by mu
}

func startConsumer(t *testing.T, addr, id string, seen *sightings) *consumer {
	t.Helper()
	c := &consumer{done: make(chan struct{}), have: map[int32]struct{}{}}
	change := func(f func(p int32)) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(ctx context.Context, cl *kgo.Client, ps map[string][]int32) {
			if err := cl.CommitMarkedOffsets(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Logf("%s: commit: %v", id, err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, p := range slices.Concat(slices.Collect(maps.Values(ps))...) {
				f(p)
			}
		}
	}
	var err error
	c.cl, err = kgo.NewClient(
		kgo.SeedBrokers(addr), kgo.ClientID(id), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(50*time.Millisecond), kgo.SessionTimeout(6*time.Second), kgo.RebalanceTimeout(10*time.Second),
		kgo.FetchMaxWait(50*time.Millisecond),
		kgo.OnPartitionsAssigned(change(func(p int32) { c.have[p] = struct{}{} })),
		kgo.OnPartitionsRevoked(change(func(p int32) { delete(c.have, p) })),
		kgo.OnPartitionsLost(change(func(p int32) { delete(c.have, p) })),
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go c.poll(ctx, seen)
	t.Cleanup(c.stop)
	return c
}

func (c *consumer) poll(ctx context.Context, seen *sightings) {
	defer close(c.done)
	for ctx.Err() == nil {
		fs := c.cl.PollFetches(ctx)
		if fs.IsClientClosed() {
			return
		}
		fs.EachRecord(func(r *kgo.Record) {
			seen.add(r)
			c.cl.MarkCommitRecords(r)
		})
		c.cl.AllowRebalance()
	}
}

func (c *consumer) assigned() []int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.have))
}

// stop commits, leaves the group and closes. Idempotent.
func (c *consumer) stop() {
	c.cancel()
	<-c.done
	c.cl.CloseAllowingRebalance()
}
