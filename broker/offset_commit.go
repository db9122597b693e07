package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/group"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

// OffsetCommit v2-v10: a retention of its own in v2 to v4 (KIP-211 ended it), leader epochs from v6, static members from v7,
// GROUP_ID_NOT_FOUND from v9, topics by id from v10. Partitions that do not exist are refused one by one; the others are committed.
func handleOffsetCommit(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.OffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	q := group.CommitRequest{Group: req.Group, Member: req.MemberID, Instance: orEmpty(req.InstanceID), Generation: req.Generation,
		RetentionMs: req.RetentionTimeMillis, NotFound: req.Version >= 9}
	img := s.Store.Image()
	var answers [][2]int // of q.Offsets: topic and partition in the response
	for i := range req.Topics {
		t := &req.Topics[i]
		topic, unknown := namedTopic(img, t.Topic, t.TopicID, req.Version >= 10)
		a := kmsg.NewOffsetCommitResponseTopic()
		a.Topic, a.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			ap := kmsg.NewOffsetCommitResponseTopicPartition()
			ap.Partition, ap.ErrorCode = p.Partition, unknown
			switch {
			case topic == nil:
			case p.Partition < 0 || int(p.Partition) >= len(topic.Partitions):
				ap.ErrorCode = kerr.UnknownTopicOrPartition.Code
			default:
				answers = append(answers, [2]int{i, len(a.Partitions)})
				q.Offsets = append(q.Offsets, group.Offset{Topic: topic.Name, TopicID: topic.ID, Partition: p.Partition,
					Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: orEmpty(p.Metadata)})
			}
			a.Partitions = append(a.Partitions, ap)
		}
		resp.Topics = append(resp.Topics, a)
	}
	if len(q.Offsets) == 0 {
		return resp, nil
	}
	res := s.groups.coord.Commit(c.ctx, q)
	for i, at := range answers {
		err := res.Err
		if err == nil {
			err = res.Errs[i]
		}
		resp.Topics[at[0]].Partitions[at[1]].ErrorCode = code(err)
	}
	return resp, nil
}

// namedTopic finds a topic by name or by id; nil with the code that says so.
func namedTopic(img *meta.Image, name string, id [16]byte, byID bool) (*meta.Topic, int16) {
	if byID {
		if t := img.TopicsByID[manifest.TopicID(id)]; t != nil {
			return t, 0
		}
		return nil, kerr.UnknownTopicID.Code
	}
	if t := img.Topics[name]; t != nil {
		return t, 0
	}
	return nil, kerr.UnknownTopicOrPartition.Code
}
