package broker

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/control"
	"github.com/varvelog/varve/meta"
)

// ElectLeaders v0-v2 (KIP-183: preferred, KIP-460: unclean). Null topics mean all partitions; then those that need no election are left
// out of the answer. Any broker does it: the transaction is guarded by the partition's record.
func handleElectLeaders(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.ElectLeadersRequest)
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	const preferred, unclean = 0, 1
	if req.ElectionType != preferred && req.ElectionType != unclean {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout(req.TimeoutMillis))
	defer cancel()
	img := s.Store.Image()
	asked := electAsked(img, req.Topics)
	var edits []meta.Edit
	for i := range asked {
		a := &asked[i]
		if a.p == nil {
			a.err = refuse(kerr.UnknownTopicOrPartition, "topic %q has no partition %d", a.topic, a.partition)
			continue
		}
		if req.ElectionType == unclean {
			a.edit, a.err = electUnclean(img, a.t, a.p)
		} else {
			a.edit, a.err = electPreferred(img, a.p)
		}
		if a.err == nil {
			edits = append(edits, a.edit)
		}
	}
	err := s.Store.EditPartitions(ctx, 0, edits)
	now := s.Store.Image()
	for _, a := range asked {
		if a.err == nil && err != nil {
			// Some may have been done.
			if p := now.Partition(a.p.ID); p == nil || p.Leader != a.edit.Leader {
				a.err = err
			}
		}
		if a.err != nil && req.Topics == nil && code(a.err) == kerr.ElectionNotNeeded.Code {
			continue
		}
		at := len(resp.Topics) - 1
		if at < 0 || resp.Topics[at].Topic != a.topic {
			t := kmsg.NewElectLeadersResponseTopic()
			t.Topic = a.topic
			resp.Topics = append(resp.Topics, t)
			at++
		}
		p := kmsg.NewElectLeadersResponseTopicPartition()
		p.Partition, p.ErrorCode, p.ErrorMessage = a.partition, code(a.err), message(a.err)
		resp.Topics[at].Partitions = append(resp.Topics[at].Partitions, p)
	}
	return resp, nil
}

// electing is one partition that an election is asked for.
type electing struct {
	topic     string
	partition int32
	t         *meta.Topic
	p         *meta.Partition // nil: there is none
	edit      meta.Edit
	err       error
}

// electAsked lists the partitions of the request by topic and number, each once; nil means all.
func electAsked(img *meta.Image, topics []kmsg.ElectLeadersRequestTopic) []electing {
	var out []electing
	if topics == nil {
		for name, t := range img.Topics {
			for i, p := range t.Partitions {
				out = append(out, electing{topic: name, partition: int32(i), t: t, p: p})
			}
		}
	}
	for i := range topics {
		t := img.Topics[topics[i].Topic]
		for _, n := range topics[i].Partitions {
			e := electing{topic: topics[i].Topic, partition: n, t: t}
			if t != nil && n >= 0 && int(n) < len(t.Partitions) {
				e.p = t.Partitions[n]
			}
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b electing) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	return slices.CompactFunc(out, func(a, b electing) bool { return a.topic == b.topic && a.partition == b.partition })
}

func electPreferred(img *meta.Image, p *meta.Partition) (meta.Edit, error) {
	e, ok := control.Prefer(img, p)
	switch {
	case ok:
		return e, nil
	case p.Leader == p.Replicas[0]:
		return e, refuse(kerr.ElectionNotNeeded, "broker %d leads already", p.Leader)
	}
	return e, refuse(kerr.PreferredLeaderNotAvailable, "broker %d is not alive or not in sync", p.Replicas[0])
}

func electUnclean(img *meta.Image, t *meta.Topic, p *meta.Partition) (meta.Edit, error) {
	e, ok := control.ElectUnclean(img, t, p)
	switch {
	case ok:
		return e, nil
	case p.Leader >= 0 && img.Alive(p.Leader):
		return e, refuse(kerr.ElectionNotNeeded, "broker %d leads", p.Leader)
	}
	return e, refuse(kerr.EligibleLeadersNotAvailable, "none of the replicas %v is alive", p.Replicas)
}
