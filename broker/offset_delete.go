package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/group"
)

// OffsetDelete v0 (KIP-496). Partitions that do not exist are refused one by one.
func handleOffsetDelete(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.OffsetDeleteRequest)
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	img := s.Store.Image()
	q := group.DeleteOffsetsRequest{Group: req.Group}
	var answers [][2]int // of the partitions in q: topic and partition in the response
	for i, t := range req.Topics {
		topic := img.Topics[t.Topic]
		a := kmsg.NewOffsetDeleteResponseTopic()
		a.Topic = t.Topic
		ask := group.FetchTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			ap := kmsg.NewOffsetDeleteResponseTopicPartition()
			ap.Partition = p.Partition
			if topic == nil || p.Partition < 0 || int(p.Partition) >= len(topic.Partitions) {
				ap.ErrorCode = kerr.UnknownTopicOrPartition.Code
			} else {
				answers = append(answers, [2]int{i, len(a.Partitions)})
				ask.Partitions = append(ask.Partitions, p.Partition)
			}
			a.Partitions = append(a.Partitions, ap)
		}
		q.Topics = append(q.Topics, ask)
		resp.Topics = append(resp.Topics, a)
	}
	res := s.groups.coord.DeleteOffsets(c.ctx, q)
	if res.Err != nil {
		resp.ErrorCode, resp.Topics = code(res.Err), nil
		return resp, nil
	}
	for i, at := range answers {
		resp.Topics[at[0]].Partitions[at[1]].ErrorCode = code(res.Errs[i])
	}
	return resp, nil
}
