package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/replica"
)

// DeleteRecords (21), versions 0 to 2: raises the log start of partitions; -1 means up to the high watermark. A compacted topic that is
// not also deleted from answers POLICY_VIOLATION, as with Kafka.
func handleDeleteRecords(s *Server, _ *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.DeleteRecordsRequest)
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.SetVersion(req.Version)
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			a := kmsg.NewDeleteRecordsResponseTopicPartition()
			a.Partition = p.Partition
			start, err := s.deleteRecords(t.Topic, p.Partition, p.Offset)
			a.LowWatermark, a.ErrorCode = start, code(err)
			out.Partitions = append(out.Partitions, a)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

func (s *Server) deleteRecords(topic string, partition int32, offset int64) (int64, error) {
	if internalTopic(topic) {
		return -1, fmt.Errorf("topic %s is the broker's own: %w", topic, errInvalidTopic)
	}
	p, err := s.Replicas.Leader(replica.TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		return -1, err
	}
	if c := p.Log().Config(); c.Compact && !c.Delete {
		return -1, fmt.Errorf("records of a compacted topic cannot be deleted by offset: %w", kerr.PolicyViolation)
	}
	start, err := p.DeleteRecords(offset)
	if err != nil {
		return -1, err
	}
	return start, nil
}
