package broker

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/control"
	"github.com/varvelog/varve/meta"
)

// AlterPartitionReassignments v0-v1 (KIP-455, 860: replication factor kept on demand). Null replicas cancel. Any broker begins it; the
// controller ends it when the new replicas are in sync.
func handleAlterPartitionReassignments(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.AlterPartitionAssignmentsRequest)
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout(req.TimeoutMillis))
	defer cancel()
	img := s.Store.Image()
	var edits []meta.Edit
	var of []*kmsg.AlterPartitionAssignmentsResponseTopicPartition
	resp.Topics = make([]kmsg.AlterPartitionAssignmentsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, a := &req.Topics[i], &resp.Topics[i]
		*a = kmsg.NewAlterPartitionAssignmentsResponseTopic()
		a.Topic = t.Topic
		a.Partitions = make([]kmsg.AlterPartitionAssignmentsResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p, ap := &t.Partitions[j], &a.Partitions[j]
			*ap = kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			ap.Partition = p.Partition
			e, err := s.reassigned(img, t.Topic, p, req.Version < 1 || req.AllowReplicationFactorChange)
			if err == nil && slices.ContainsFunc(edits, func(o meta.Edit) bool { return o.Base == e.Base }) {
				err = refuse(kerr.InvalidRequest, "partition %d of %q is more than once in the request", p.Partition, t.Topic)
			}
			if err != nil {
				ap.ErrorCode, ap.ErrorMessage = code(err), message(err)
				continue
			}
			edits, of = append(edits, e), append(of, ap)
		}
	}
	if err := s.Store.EditPartitions(ctx, 0, edits); err != nil {
		now := s.Store.Image()
		for i, e := range edits {
			if p := now.Partition(e.Base.ID); p == nil || p.PartitionEpoch == e.Base.PartitionEpoch || !slices.Equal(p.Removing, e.Removing) {
				of[i].ErrorCode, of[i].ErrorMessage = code(err), message(err)
			}
		}
	}
	return resp, nil
}

// reassigned is what the request makes of one partition.
func (s *Server) reassigned(img *meta.Image, topic string, p *kmsg.AlterPartitionAssignmentsRequestTopicPartition, anyFactor bool) (meta.Edit, error) {
	t := img.Topics[topic]
	if t == nil || p.Partition < 0 || int(p.Partition) >= len(t.Partitions) {
		return meta.Edit{}, refuse(kerr.UnknownTopicOrPartition, "topic %q has no partition %d", topic, p.Partition)
	}
	mp := t.Partitions[p.Partition]
	rules := control.Rules{MinISR: s.Options.MinISR}
	var e meta.Edit
	var err error
	if p.Replicas == nil {
		e, err = control.Cancel(img, t, mp, rules)
	} else {
		if had := len(mp.Replicas) - len(mp.Adding); !anyFactor && had != len(p.Replicas) {
			return e, refuse(kerr.InvalidReplicationFactor, "partition %d of %q has %d replicas, %d are asked for", p.Partition, topic, had, len(p.Replicas))
		}
		e, err = control.Reassign(img, t, mp, p.Replicas, rules)
	}
	switch {
	case errors.Is(err, control.ErrNoReassignment):
		err = refuse(kerr.NoReassignmentInProgress, "partition %d of %q: %v", p.Partition, topic, err)
	case errors.Is(err, control.ErrBadReplicas):
		err = refuse(kerr.InvalidReplicaAssignment, "partition %d of %q: %v", p.Partition, topic, err)
	}
	return e, err
}

// ListPartitionReassignments v0 (KIP-455). Null topics mean all.
func handleListPartitionReassignments(s *Server, _ *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.ListPartitionReassignmentsRequest)
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	img := s.Store.Image()
	add := func(name string, partitions []int32) {
		t := img.Topics[name]
		a := kmsg.NewListPartitionReassignmentsResponseTopic()
		a.Topic = name
		for _, n := range partitions {
			if t == nil || n < 0 || int(n) >= len(t.Partitions) {
				continue
			}
			p := t.Partitions[n]
			if len(p.Adding) == 0 && len(p.Removing) == 0 {
				continue
			}
			ap := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			ap.Partition, ap.Replicas, ap.AddingReplicas, ap.RemovingReplicas = n, p.Replicas, p.Adding, p.Removing
			a.Partitions = append(a.Partitions, ap)
		}
		if len(a.Partitions) > 0 {
			resp.Topics = append(resp.Topics, a)
		}
	}
	if req.Topics == nil {
		for _, name := range slices.Sorted(maps.Keys(img.Topics)) {
			all := make([]int32, len(img.Topics[name].Partitions))
			for i := range all {
				all[i] = int32(i)
			}
			add(name, all)
		}
	}
	for i := range req.Topics {
		add(req.Topics[i].Topic, req.Topics[i].Partitions)
	}
	return resp, nil
}
