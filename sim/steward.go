package sim

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// steward is the operator of a cluster: beside what an operator does it moves partitions, takes leaderships back and changes how many
// in-sync replicas acks=all needs.
type steward struct {
	*operator
	cluster *Cluster
}

func newSteward(c *Cluster) *steward {
	s := &steward{operator: newOperator(&c.stage), cluster: c}
	s.replicas = c.shape.replicas
	s.minISR = "2"
	s.extra, s.extraChance = s.step, 2
	return s
}

func (s *steward) step(ctx context.Context, p *part) {
	switch s.rng.IntN(4) {
	case 0, 1:
		s.reassign(ctx, p)
	case 2:
		s.prefer(ctx, p)
	default:
		s.demand(ctx, p.topic)
	}
}

// reassign moves a partition to other replicas, or to the same in another order, or cancels that.
func (s *steward) reassign(ctx context.Context, p *part) {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Version, req.TimeoutMillis = 0, 5000
	rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	rp.Partition = p.id.Partition
	if s.rng.IntN(5) > 0 {
		rp.Replicas = s.assignment()
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

// assignment draws brokers: three, or two at times.
func (s *steward) assignment() []int32 {
	n := int(s.replicas)
	if s.rng.IntN(4) == 0 {
		n = 2
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
	rt := kmsg.NewElectLeadersRequestTopic()
	rt.Topic, rt.Partitions = p.topic.name, []int32{p.id.Partition}
	req.Topics = append(req.Topics, rt)
	if resp, err := s.operator.c.do(ctx, nil, req); err == nil {
		s.w.event("elect %s-%d: code %d", p.topic.name, p.id.Partition, resp.(*kmsg.ElectLeadersResponse).ErrorCode)
	}
}

// demand changes min.insync.replicas. 1 would allow to lose what is acknowledged with the one disk that has it.
func (s *steward) demand(ctx context.Context, t *topic) {
	s.alter(ctx, t, "min.insync.replicas", s.pick("2", "2", "3"))
}
