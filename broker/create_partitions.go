package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/control"
	"github.com/varvelog/varve/meta"
)

// CreatePartitions v0-v3 (KIP-195).
func handleCreatePartitions(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.CreatePartitionsRequest)
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout(req.TimeoutMillis))
	defer cancel()
	eachTopicOnce(req.Topics, func(t *kmsg.CreatePartitionsRequestTopic) string { return t.Topic }, func(t *kmsg.CreatePartitionsRequestTopic, err error) {
		if err == nil {
			err = s.addPartitions(ctx, t, req.ValidateOnly)
		}
		a := kmsg.NewCreatePartitionsResponseTopic()
		a.Topic, a.ErrorCode, a.ErrorMessage = t.Topic, code(err), message(err)
		resp.Topics = append(resp.Topics, a)
	})
	return resp, nil
}

func (s *Server) addPartitions(ctx context.Context, t *kmsg.CreatePartitionsRequestTopic, validateOnly bool) error {
	img := s.Store.Image()
	topic := img.Topics[t.Topic]
	if topic == nil {
		return refuse(kerr.UnknownTopicOrPartition, "topic %q does not exist", t.Topic)
	}
	have := int32(len(topic.Partitions))
	if t.Count <= have {
		return refuse(kerr.InvalidPartitions, "topic %q has %d partitions; the new count must be larger, it is %d", t.Topic, have, t.Count)
	}
	if t.Count > maxPartitions {
		return refuse(kerr.InvalidPartitions, "%d partitions are more than a topic may have, %d", t.Count, maxPartitions)
	}
	add, err := newReplicas(img, topic, t, int(t.Count-have))
	if err != nil || validateOnly {
		return err
	}
	if err := s.Store.CreatePartitions(ctx, t.Topic, add); err != nil {
		return fmt.Errorf("add partitions to %q: %w", t.Topic, err)
	}
	return s.untilImage(ctx, func(img *meta.Image) bool {
		now := img.TopicsByID[topic.ID]
		return now == nil || int32(len(now.Partitions)) >= t.Count
	})
}

// newReplicas of n added partitions: as the client says, or placed.
func newReplicas(img *meta.Image, topic *meta.Topic, t *kmsg.CreatePartitionsRequestTopic, n int) ([][]int32, error) {
	rf := 1
	if len(topic.Partitions) > 0 {
		rf = len(topic.Partitions[0].Replicas)
	}
	if t.Assignment == nil {
		add, err := control.Place(img, n, rf)
		if err != nil {
			return nil, refuse(kerr.InvalidReplicationFactor, "%v", err)
		}
		return add, nil
	}
	if len(t.Assignment) != n {
		return nil, refuse(kerr.InvalidReplicaAssignment, "%d partitions are added, %d are assigned", n, len(t.Assignment))
	}
	var add [][]int32
	for i := range t.Assignment {
		if err := checkReplicas(img, t.Assignment[i].Replicas, rf); err != nil {
			return nil, err
		}
		add = append(add, t.Assignment[i].Replicas)
	}
	return add, nil
}
