package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/replica"
)

// OffsetForLeaderEpoch (23), versions 2 to 4 (KIP-101, 320): where an epoch ended, over the local and the archived history.
func handleOffsetForLeaderEpoch(s *Server, _ *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.OffsetForLeaderEpochRequest)
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.SetVersion(req.Version)
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			a := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			a.Partition = p.Partition
			part, err := s.Replicas.Leader(replica.TopicPartition{Topic: t.Topic, Partition: p.Partition})
			if err == nil {
				err = part.CheckEpoch(p.CurrentLeaderEpoch)
			}
			if err != nil {
				a.ErrorCode = code(err)
			} else {
				a.LeaderEpoch, a.EndOffset = part.EndOffsetForEpoch(p.LeaderEpoch)
			}
			out.Partitions = append(out.Partitions, a)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}
