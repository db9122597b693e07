package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// steward is the operator of a cluster: beside what an operator does it moves partitions, takes leaderships back and changes how many
// in-sync replicas acks=all needs.
type steward struct {
	*operator
	cluster *Cluster
	kinds   *rand.Rand // owned by run
}

func newSteward(c *Cluster) *steward {
	s := &steward{operator: newOperator(&c.stage), cluster: c}
	s.replicas = c.shape.replicas
	s.minISR = "2"
	s.extra, s.extraChance = s.step, 2
	if c.shape.unclean || c.shape.sole {
		s.kind = s.draw
		s.kinds = c.rand("kinds of topics")
	}
	return s
}

func (s *steward) step(ctx context.Context, p *part) {
	if s.cluster.plan.topics && s.rng.IntN(4) == 0 {
		s.comeAndGo(ctx, p.topic)
		return
	}
	if inner := s.cluster.offsetsParts(); len(inner) > 0 && s.rng.IntN(3) == 0 {
		p = inner[s.rng.IntN(len(inner))]
	}
	switch k := s.rng.IntN(4); {
	case p.topic.fixed:
	case k < 2:
		s.reassign(ctx, p)
	case k == 2:
		s.prefer(ctx, p)
	case p.topic.name != offsetsTopic && !p.topic.sole:
		s.demand(ctx, p.topic)
	}
}

// comeAndGo deletes a topic, and mostly brings it back soon: some brokers hear of both at once, or after they have been down.
func (s *steward) comeAndGo(ctx context.Context, t *topic) {
	after := time.Duration(s.rng.IntN(8000)) * time.Millisecond
	s.delete(ctx, t)
	pause(ctx, after)
	if ctx.Err() == nil && s.rng.IntN(5) > 0 {
		s.undelete(ctx)
	}
}

// reassign moves a partition to other replicas, or to the same in another order, or cancels that.
func (s *steward) reassign(ctx context.Context, p *part) {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Version, req.TimeoutMillis = 0, 5000
	rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	rp.Partition = p.id.Partition
	if s.rng.IntN(5) > 0 {
		rp.Replicas = s.assignment(p.topic)
	}
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic, rt.Partitions = p.topic.name, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	if resp, err := s.operator.c.do(ctx, nil, req); err == nil {
		a := resp.(*kmsg.AlterPartitionAssignmentsResponse)
		code := a.ErrorCode
		if len(a.Topics) > 0 {
			code = a.Topics[0].Partitions[0].ErrorCode
		}
		s.w.event("reassign %s-%d to %v: code %d", p.topic.name, p.id.Partition, rp.Replicas, code)
	}
}

// assignment draws brokers: three, or two at times; one where there is one.
func (s *steward) assignment(t *topic) []int32 {
	n := int(s.replicas)
	if s.rng.IntN(4) == 0 {
		n = 2
	}
	if t.sole {
		n = 1
	}
	var out []int32
	for _, i := range s.rng.Perm(len(s.cluster.nodes))[:n] {
		out = append(out, int32(i+1))
	}
	return out
}

func (s *steward) prefer(ctx context.Context, p *part) {
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version, req.TimeoutMillis = 2, 5000
	if p.topic.unclean && s.kinds.IntN(2) == 0 {
		req.ElectionType = 1
	}
	rt := kmsg.NewElectLeadersRequestTopic()
	rt.Topic, rt.Partitions = p.topic.name, []int32{p.id.Partition}
	req.Topics = append(req.Topics, rt)
	if resp, err := s.operator.c.do(ctx, nil, req); err == nil {
		s.w.event("elect %s-%d: code %d", p.topic.name, p.id.Partition, resp.(*kmsg.ElectLeadersResponse).ErrorCode)
	}
}

// demand changes min.insync.replicas. 1 would allow to lose what is acknowledged with the one disk that has it.
func (s *steward) demand(ctx context.Context, t *topic) {
	value := s.pick("2", "2", "3")
	if t.unclean {
		value = "1"
	}
	s.alter(ctx, t, "min.insync.replicas", value)
}
