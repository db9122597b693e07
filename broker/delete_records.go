package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/replica"
)

// DeleteRecords (21), versions 0 to 2: raises the log start of partitions; -1 means up to the high watermark. It is answered when the logs
// of all followers that live or are in sync begin there, too, or after the request's timeout with REQUEST_TIMED_OUT. A compacted topic that is not also
// deleted from answers POLICY_VIOLATION, as with Kafka.
func handleDeleteRecords(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.DeleteRecordsRequest)
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.SetVersion(req.Version)
	deadline := time.Now().Add(time.Duration(max(req.TimeoutMillis, 0)) * time.Millisecond)
	var deleted []deletedRecords
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			a := kmsg.NewDeleteRecordsResponseTopicPartition()
			a.Partition = p.Partition
			d, err := s.deleteRecords(t.Topic, p.Partition, p.Offset)
			a.LowWatermark, a.ErrorCode = d.start, code(err)
			if err == nil {
				d.topic, d.at = i, j
				deleted = append(deleted, d)
			}
			out.Partitions = append(out.Partitions, a)
		}
		resp.Topics = append(resp.Topics, out)
	}
	ctx, cancel := context.WithDeadline(c.ctx, deadline)
	defer cancel()
	for _, d := range deleted {
		low, err := d.p.WaitDeleted(ctx, d.start)
		a := &resp.Topics[d.topic].Partitions[d.at]
		a.LowWatermark, a.ErrorCode = low, code(err)
	}
	return resp, nil
}

// deletedRecords is a partition whose log begins at start now, or later, and its place in the answer.
type deletedRecords struct {
	p         *replica.Partition
	start     int64
	topic, at int
}

func (s *Server) deleteRecords(topic string, partition int32, offset int64) (deletedRecords, error) {
	none := deletedRecords{start: -1}
	if internalTopic(topic) {
		return none, fmt.Errorf("topic %s is the broker's own: %w", topic, errInvalidTopic)
	}
	p, err := s.Replicas.Leader(replica.TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		return none, err
	}
	if c := p.Log().Config(); c.Compact && !c.Delete {
		return none, fmt.Errorf("records of a compacted topic cannot be deleted by offset: %w", kerr.PolicyViolation)
	}
	start, err := p.DeleteRecords(offset)
	if err != nil {
		return none, err
	}
	if offset >= 0 {
		start = min(start, offset) // nobody waits for what retention has deleted besides
	}
	return deletedRecords{p: p, start: start}, nil
}
