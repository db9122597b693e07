package broker

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/group"
	"github.com/varvelog/varve/meta"
)

// OffsetFetch v1-v10: topics null, all, from v2; only stable offsets from v7 (KIP-447); several groups from v8 (KIP-709); topics by id from v10.
// A group that does not exist has no offsets, which is no error. The member of v9 is of the newer protocol (KIP-848), not looked at.
func handleOffsetFetch(s *Server, _ *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.OffsetFetchRequest)
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if req.Version >= 8 {
		for i := range req.Groups {
			resp.Groups = append(resp.Groups, s.fetchGroup(&req.Groups[i], req.RequireStable, req.Version >= 10))
		}
		return resp, nil
	}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics != nil || req.Version < 2 {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range req.Topics {
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = t.Topic, t.Partitions
		g.Topics = append(g.Topics, gt)
	}
	one := s.fetchGroup(&g, req.RequireStable, false)
	resp.ErrorCode = one.ErrorCode
	if one.ErrorCode != 0 && req.Version < 2 {
		one.Topics = refusedOffsets(g.Topics, one.ErrorCode)
	}
	for _, t := range one.Topics {
		a := kmsg.NewOffsetFetchResponseTopic()
		a.Topic = t.Topic
		for _, p := range t.Partitions {
			ap := kmsg.NewOffsetFetchResponseTopicPartition()
			ap.Partition, ap.Offset, ap.LeaderEpoch, ap.Metadata, ap.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			a.Partitions = append(a.Partitions, ap)
		}
		resp.Topics = append(resp.Topics, a)
	}
	return resp, nil
}

// refusedOffsets is for versions that have no place for an error of the whole request.
func refusedOffsets(topics []kmsg.OffsetFetchRequestGroupTopic, code int16) []kmsg.OffsetFetchResponseGroupTopic {
	var out []kmsg.OffsetFetchResponseGroupTopic
	for _, t := range topics {
		a := kmsg.NewOffsetFetchResponseGroupTopic()
		a.Topic = t.Topic
		for _, p := range t.Partitions {
			a.Partitions = append(a.Partitions, noOffset(p, code))
		}
		out = append(out, a)
	}
	return out
}

// fetchGroup answers for one group.
func (s *Server) fetchGroup(g *kmsg.OffsetFetchRequestGroup, stable, byID bool) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = g.Group
	img := s.Store.Image()
	if g.Topics == nil {
		fs, err := s.groups.coord.Fetch(g.Group, nil, stable)
		out.ErrorCode, out.Topics = code(err), allOffsets(img, fs, byID)
		return out
	}
	var known []group.FetchTopic
	for _, t := range g.Topics {
		name := t.Topic
		if byID {
			topic, _ := namedTopic(img, "", t.TopicID, true)
			if topic == nil {
				continue
			}
			name = topic.Name
		}
		known = append(known, group.FetchTopic{Topic: name, Partitions: t.Partitions})
	}
	fs := []group.Fetched{}
	if len(known) > 0 {
		var err error
		if fs, err = s.groups.coord.Fetch(g.Group, known, stable); err != nil {
			out.ErrorCode = code(err)
			return out
		}
	}
	for _, t := range g.Topics {
		a := kmsg.NewOffsetFetchResponseGroupTopic()
		a.Topic, a.TopicID = t.Topic, t.TopicID
		topic, unknown := namedTopic(img, t.Topic, t.TopicID, byID)
		for _, p := range t.Partitions {
			if byID && topic == nil {
				a.Partitions = append(a.Partitions, noOffset(p, unknown))
				continue
			}
			a.Partitions = append(a.Partitions, fetchedOffset(fs[0]))
			fs = fs[1:]
		}
		out.Topics = append(out.Topics, a)
	}
	return out
}

// allOffsets groups offsets by topic, in order; where topics go by id, those that do not exist are left out.
func allOffsets(img *meta.Image, fs []group.Fetched, byID bool) []kmsg.OffsetFetchResponseGroupTopic {
	slices.SortFunc(fs, func(a, b group.Fetched) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	var out []kmsg.OffsetFetchResponseGroupTopic
	for i, f := range fs {
		if i == 0 || f.Topic != fs[i-1].Topic {
			a := kmsg.NewOffsetFetchResponseGroupTopic()
			a.Topic = f.Topic
			if t := img.Topics[f.Topic]; t != nil {
				a.TopicID = t.ID
			}
			out = append(out, a)
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, fetchedOffset(f))
	}
	if byID {
		out = slices.DeleteFunc(out, func(t kmsg.OffsetFetchResponseGroupTopic) bool { return t.TopicID == [16]byte{} })
	}
	return out
}

func fetchedOffset(f group.Fetched) kmsg.OffsetFetchResponseGroupTopicPartition {
	if f.Unstable {
		return noOffset(f.Partition, kerr.UnstableOffsetCommit.Code)
	}
	a := noOffset(f.Partition, 0)
	a.Offset, a.LeaderEpoch, a.Metadata = f.Offset.Offset, f.LeaderEpoch, &f.Metadata
	return a
}

func noOffset(partition int32, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
	a := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	a.Partition, a.Offset, a.LeaderEpoch, a.Metadata, a.ErrorCode = partition, -1, -1, new(string), code
	return a
}
