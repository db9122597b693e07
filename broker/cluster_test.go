package broker

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/control"
	"github.com/varvelog/varve/meta"
)

// fellows registers more brokers, of which only the metadata knows.
func (w *world) fellows(ids ...int32) map[int32]*meta.Store {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	out := map[int32]*meta.Store{}
	for _, id := range ids {
		s, err := meta.Open(ctx, w.kv, "", meta.Options{})
		if err != nil {
			w.t.Fatal(err)
		}
		b := meta.Broker{ID: id, Directory: fmt.Sprint(id), Listeners: []meta.Listener{{Name: "PLAINTEXT", Host: "h", Port: 9000 + id}}}
		if _, _, err := s.Register(ctx, b, 60_000); err != nil {
			w.t.Fatal(err)
		}
		out[id] = s
	}
	w.until("the image has the brokers", func() bool { return len(w.store.Image().Brokers) == 1+len(ids) })
	return out
}

// controls runs a controller on the world's own broker.
func (w *world) controls() {
	w.t.Helper()
	c := control.New(w.store, control.Options{NodeID: 1})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done })
	w.until("broker 1 is the controller", func() bool { return w.store.Image().Controller == 1 })
	w.until("all are admitted", func() bool { return len(w.store.Image().Known) == len(w.store.Image().Brokers) })
}

// place makes a topic of one partition, with the replicas given, all in sync and led by the first.
func (w *world) place(name string, replicas ...int32) *meta.Partition {
	w.t.Helper()
	t, err := w.store.CreateTopic(context.Background(), meta.TopicSpec{Name: name, Assignment: [][]int32{replicas}})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.now(t.Name)
}

func (w *world) now(topic string) *meta.Partition {
	return w.store.Image().Topics[topic].Partitions[0]
}

// edit changes partition 0 of a topic as its leader or a controller might.
func (w *world) edit(topic string, change func(*meta.Partition)) {
	w.t.Helper()
	p := *w.now(topic)
	p.PartitionEpoch++
	change(&p)
	now, err := w.store.UpdatePartition(context.Background(), &p)
	if err != nil {
		w.t.Fatal(err)
	}
	w.until("the image shows it", func() bool { return w.now(topic).ModRev >= now.ModRev })
}

func reassignReq(version int16, topic string, partition int32, replicas []int32) *kmsg.AlterPartitionAssignmentsRequest {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Version, req.TimeoutMillis = version, 5000
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	t.Topic = topic
	p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	p.Partition, p.Replicas = partition, replicas
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (c *client) reassign(req *kmsg.AlterPartitionAssignmentsRequest) *kerr.Error {
	c.t.Helper()
	resp := c.do(req).(*kmsg.AlterPartitionAssignmentsResponse)
	p := resp.Topics[0].Partitions[0]
	if (p.ErrorCode == 0) != (p.ErrorMessage == nil) {
		c.t.Fatalf("code %d, message %s", p.ErrorCode, str(p.ErrorMessage))
	}
	if p.ErrorCode == 0 {
		return nil
	}
	return kerr.TypedErrorForCode(p.ErrorCode)
}

func (c *client) reassignments() map[string]kmsg.ListPartitionReassignmentsResponseTopicPartition {
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	out := map[string]kmsg.ListPartitionReassignmentsResponseTopicPartition{}
	for _, t := range c.do(req).(*kmsg.ListPartitionReassignmentsResponse).Topics {
		for _, p := range t.Partitions {
			out[fmt.Sprintf("%s-%d", t.Topic, p.Partition)] = p
		}
	}
	return out
}

func TestReassignmentIsListedAndEndsWhenTheNewReplicaIsInSync(t *testing.T) {
	w := newWorld(t, settings{})
	w.fellows(2, 3)
	w.controls()
	w.place("t", 1, 2)
	w.place("u", 1)
	c := w.dial()
	if err := c.reassign(reassignReq(1, "t", 0, []int32{3, 1})); err != nil {
		t.Fatal(err)
	}
	p := w.now("t")
	if !slices.Equal(p.Replicas, []int32{3, 1, 2}) || !slices.Equal(p.Adding, []int32{3}) || !slices.Equal(p.Removing, []int32{2}) || p.Leader != 1 {
		t.Fatalf("partition %+v", p)
	}
	l := c.reassignments()
	if r := l["t-0"]; len(l) != 1 || !slices.Equal(r.Replicas, p.Replicas) || !slices.Equal(r.AddingReplicas, p.Adding) || !slices.Equal(r.RemovingReplicas, p.Removing) {
		t.Fatalf("listed %+v", l)
	}
	w.edit("t", func(p *meta.Partition) { p.ISR = []int32{1, 2, 3} })
	w.until("the reassignment has ended", func() bool { return len(w.now("t").Removing) == 0 })
	p = w.now("t")
	if !slices.Equal(p.Replicas, []int32{3, 1}) || !slices.Equal(p.ISR, []int32{1, 3}) || len(p.Adding) != 0 || p.Leader != 1 || p.LeaderEpoch != 0 {
		t.Fatalf("partition %+v", p)
	}
	if l := c.reassignments(); len(l) != 0 {
		t.Fatalf("still listed: %+v", l)
	}
}

func TestReassignmentIsCancelled(t *testing.T) {
	w := newWorld(t, settings{})
	w.fellows(2, 3)
	w.place("t", 1, 2)
	c := w.dial()
	if err := c.reassign(reassignReq(0, "t", 0, nil)); err != kerr.NoReassignmentInProgress {
		t.Fatal(err)
	}
	if err := c.reassign(reassignReq(0, "t", 0, []int32{2, 3})); err != nil {
		t.Fatal(err)
	}
	if err := c.reassign(reassignReq(0, "t", 0, nil)); err != nil {
		t.Fatal(err)
	}
	if p := w.now("t"); !slices.Equal(p.Replicas, []int32{2, 1}) || len(p.Adding)+len(p.Removing) != 0 || !slices.Equal(p.ISR, []int32{1, 2}) {
		t.Fatalf("partition %+v", p)
	}
}

func TestReassignmentsThatAreRefused(t *testing.T) {
	w := newWorld(t, settings{})
	w.fellows(2)
	w.place("t", 1)
	c := w.dial()
	sameFactor := reassignReq(1, "t", 0, []int32{1, 2})
	sameFactor.AllowReplicationFactorChange = false
	for name, x := range map[string]struct {
		req  *kmsg.AlterPartitionAssignmentsRequest
		want *kerr.Error
	}{
		"dead broker":          {reassignReq(1, "t", 0, []int32{1, 9}), kerr.InvalidReplicaAssignment},
		"twice":                {reassignReq(1, "t", 0, []int32{2, 2}), kerr.InvalidReplicaAssignment},
		"none":                 {reassignReq(1, "t", 0, []int32{}), kerr.InvalidReplicaAssignment},
		"unknown partition":    {reassignReq(1, "t", 7, []int32{1}), kerr.UnknownTopicOrPartition},
		"unknown topic":        {reassignReq(1, "x", 0, []int32{1}), kerr.UnknownTopicOrPartition},
		"factor not to change": {sameFactor, kerr.InvalidReplicationFactor},
	} {
		if err := c.reassign(x.req); err != x.want {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
	if p := w.now("t"); p.PartitionEpoch != 0 {
		t.Fatalf("partition changed: %+v", p)
	}
}

func electReq(version int16, kind int8, topics ...string) *kmsg.ElectLeadersRequest {
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version, req.ElectionType, req.TimeoutMillis = version, kind, 5000
	for _, name := range topics {
		t := kmsg.NewElectLeadersRequestTopic()
		t.Topic, t.Partitions = name, []int32{0}
		req.Topics = append(req.Topics, t)
	}
	return req
}

func (c *client) elect(req *kmsg.ElectLeadersRequest) map[string]int16 {
	c.t.Helper()
	out := map[string]int16{}
	for _, t := range c.do(req).(*kmsg.ElectLeadersResponse).Topics {
		for _, p := range t.Partitions {
			out[fmt.Sprintf("%s-%d", t.Topic, p.Partition)] = p.ErrorCode
		}
	}
	return out
}

func TestElectLeadersPreferred(t *testing.T) {
	for v := int16(0); v <= 2; v++ {
		w := newWorld(t, settings{})
		w.fellows(2)
		for _, name := range []string{"away", "home", "lost"} {
			w.place(name, 1, 2)
		}
		w.edit("away", func(p *meta.Partition) { p.Leader = 2 })
		w.edit("lost", func(p *meta.Partition) { p.Leader, p.ISR = 2, []int32{2} })
		c := w.dial()
		got := c.elect(electReq(v, 0, "away", "home", "lost", "none"))
		want := map[string]int16{"away-0": 0, "home-0": kerr.ElectionNotNeeded.Code, "lost-0": kerr.PreferredLeaderNotAvailable.Code, "none-0": kerr.UnknownTopicOrPartition.Code}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("v%d: %v, want %v", v, got, want)
		}
		if p := w.now("away"); p.Leader != 1 || p.LeaderEpoch != 1 {
			t.Fatalf("v%d: %+v", v, p)
		}
		if got := c.elect(electReq(v, 0)); len(got) != 1 || got["lost-0"] != kerr.PreferredLeaderNotAvailable.Code {
			t.Fatalf("v%d, all: %v: those that need no election are left out", v, got)
		}
	}
}

func TestElectLeadersUnclean(t *testing.T) {
	w := newWorld(t, settings{})
	w.fellows(2)
	w.place("dead", 3, 2)
	w.edit("dead", func(p *meta.Partition) { p.Leader, p.ISR = -1, []int32{3} })
	w.place("fine", 1, 2)
	w.place("lost", 3)
	w.edit("lost", func(p *meta.Partition) { p.Leader, p.ISR = -1, []int32{3} })
	c := w.dial()
	got := c.elect(electReq(2, 1, "dead", "fine", "lost"))
	want := map[string]int16{"dead-0": 0, "fine-0": kerr.ElectionNotNeeded.Code, "lost-0": kerr.EligibleLeadersNotAvailable.Code}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%v, want %v", got, want)
	}
	if p := w.now("dead"); p.Leader != 2 || p.LeaderEpoch != 1 || !slices.Equal(p.ISR, []int32{2}) {
		t.Fatalf("%+v", p)
	}
}

// evict ends the registration of a broker.
func (w *world) evict(id int32) {
	w.t.Helper()
	if err := w.store.Evict(w.t.Context(), id, w.store.Image().Brokers[id].Epoch); err != nil {
		w.t.Fatal(err)
	}
	w.until("a broker is gone", func() bool { return w.store.Image().Brokers[id] == nil })
}

// Who is gone and stays in the ISR, since too few would be left, is shown as Kafka 4 shows it: as eligible to lead, not as in sync.
func TestWhoIsGoneIsNotShownInSync(t *testing.T) {
	w := newWorld(t, settings{})
	w.fellows(2, 3)
	for _, name := range []string{"leads", "follows", "failed"} {
		w.place(name, 1, 2, 3)
		w.edit(name, func(p *meta.Partition) { p.ISR = []int32{2, 1} })
	}
	w.edit("leads", func(p *meta.Partition) { p.Leader = 2 })
	w.edit("failed", func(p *meta.Partition) { p.ISR, p.Offline = []int32{2, 1, 3}, []int32{3} })
	w.evict(2)
	c := w.dial()
	names := []string{"failed", "follows", "leads"}
	md, dp := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrDescribeTopicPartitionsRequest()
	md.Version = 12
	for _, name := range names {
		a, b := kmsg.NewMetadataRequestTopic(), kmsg.NewDescribeTopicPartitionsRequestTopic()
		a.Topic, b.Topic = &name, name
		md.Topics, dp.Topics = append(md.Topics, a), append(dp.Topics, b)
	}
	dp.ResponsePartitionLimit = 100
	was, is := c.do(md).(*kmsg.MetadataResponse), c.do(dp).(*kmsg.DescribeTopicPartitionsResponse)
	for i, want := range []struct{ leader, isr, eligible, offline string }{
		{"1", "[1]", "[2 3]", "[2 3]"}, {"1", "[1]", "[2]", "[2]"}, {"-1", "[1]", "[2]", "[2]"},
	} {
		m, d := was.Topics[i].Partitions[0], is.Topics[i].Partitions[0]
		if got := fmt.Sprint(m.Leader, m.ISR, m.OfflineReplicas); got != fmt.Sprintf("%s %s %s", want.leader, want.isr, want.offline) {
			t.Errorf("%s: Metadata has leader, ISR, offline %s, want %+v", names[i], got, want)
		}
		if got := fmt.Sprint(d.LeaderID, d.ISR, d.EligibleLeaderReplicas, d.OfflineReplicas); got != fmt.Sprintf("%s %s %s %s", want.leader, want.isr, want.eligible, want.offline) {
			t.Errorf("%s: DescribeTopicPartitions has leader, ISR, eligible, offline %s, want %+v", names[i], got, want)
		}
	}
	if n := control.UnderReplicated(w.store.Image()); n != 3 {
		t.Errorf("%d partitions are under-replicated, want 3", n)
	}
}

func TestUnregisterBrokerForgetsTheDeadOnly(t *testing.T) {
	w := newWorld(t, settings{})
	w.fellows(2)
	w.controls()
	c := w.dial()
	fenced := func() []int32 {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.EndpointType, req.IncludeFencedBrokers = 2, 1, true
		var out []int32
		for _, b := range c.do(req).(*kmsg.DescribeClusterResponse).Brokers {
			if b.IsFenced {
				out = append(out, b.NodeID)
				if b.Host != "h" || b.Port != 9002 {
					t.Fatalf("broker %+v", b)
				}
			}
		}
		return out
	}
	unregister := func(id int32) int16 {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = id
		return c.do(req).(*kmsg.UnregisterBrokerResponse).ErrorCode
	}
	if got := unregister(2); got != kerr.InvalidRequest.Code {
		t.Fatalf("a living broker: code %d", got)
	}
	if got := unregister(7); got != kerr.BrokerIDNotRegistered.Code {
		t.Fatalf("an unknown broker: code %d", got)
	}
	w.evict(2)
	if got := fenced(); !slices.Equal(got, []int32{2}) {
		t.Fatalf("fenced %v, want 2", got)
	}
	if got := unregister(2); got != 0 {
		t.Fatalf("a dead broker: code %d", got)
	}
	if got := fenced(); len(got) != 0 {
		t.Fatalf("fenced %v, want none", got)
	}
}

func TestDescribeQuorumNamesTheController(t *testing.T) {
	w := newWorld(t, settings{})
	w.fellows(2)
	w.controls()
	c := w.dial()
	for v := int16(0); v <= 2; v++ {
		req := kmsg.NewPtrDescribeQuorumRequest()
		req.Version = v
		rt := kmsg.NewDescribeQuorumRequestTopic()
		rt.Topic = metadataTopic
		for _, n := range []int32{0, 1} {
			rp := kmsg.NewDescribeQuorumRequestTopicPartition()
			rp.Partition = n
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		resp := c.do(req).(*kmsg.DescribeQuorumResponse)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.LeaderID != 1 || p.LeaderEpoch < 1 || p.HighWatermark < 1 || len(p.CurrentVoters) != 2 {
			t.Fatalf("v%d: %+v", v, p)
		}
		if v == 2 && (len(resp.Nodes) != 2 || resp.Nodes[1].Listeners[0].Port != 9002) {
			t.Fatalf("nodes %+v", resp.Nodes)
		}
		if got := resp.Topics[0].Partitions[1].ErrorCode; got != kerr.UnknownTopicOrPartition.Code {
			t.Fatalf("v%d: partition 1 has code %d", v, got)
		}
	}
	// One that is away is shown, with what it had.
	b := w.store.Image().Brokers[2]
	w.evict(2)
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Version = 2
	rt, rp := kmsg.NewDescribeQuorumRequestTopic(), kmsg.NewDescribeQuorumRequestTopicPartition()
	rt.Topic, rt.Partitions = metadataTopic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	p := c.do(req).(*kmsg.DescribeQuorumResponse).Topics[0].Partitions[0]
	if len(p.CurrentVoters) != 2 {
		t.Fatalf("%+v", p)
	}
	if v := p.CurrentVoters[1]; v.ReplicaID != 2 || v.LogEndOffset != b.Epoch || v.LogEndOffset >= p.HighWatermark || v.LastFetchTimestamp != -1 || v.LastCaughtUpTimestamp != -1 {
		t.Fatalf("%+v of %+v", v, p)
	}
}
