package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

// DeleteTopics v1-v6 (KIP-516: by id from v6). The topic's archive stays for the restore window; `varve topic undelete` brings it
// back until then.
func handleDeleteTopics(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout(req.TimeoutMillis))
	defer cancel()
	for i := range req.TopicNames {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &req.TopicNames[i]
		req.Topics = append(req.Topics, t)
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		a := kmsg.NewDeleteTopicsResponseTopic()
		a.Topic, a.TopicID = t.Topic, t.TopicID
		topic, err := s.toDelete(t)
		if topic != nil {
			a.Topic, a.TopicID = &topic.Name, topic.ID
		}
		if err == nil {
			err = s.deleteTopic(ctx, topic)
		}
		a.ErrorCode, a.ErrorMessage = code(err), message(err)
		resp.Topics = append(resp.Topics, a)
	}
	return resp, nil
}

// toDelete finds the topic that an entry names, by name or by id, not by both.
func (s *Server) toDelete(t *kmsg.DeleteTopicsRequestTopic) (*meta.Topic, error) {
	img := s.Store.Image()
	switch {
	case !s.config().Bool("delete.topic.enable"):
		return nil, refuse(kerr.TopicDeletionDisabled, "delete.topic.enable is false")
	case t.Topic != nil && t.TopicID != [16]byte{}:
		return nil, refuse(kerr.InvalidRequest, "topic %q is named by name and by id; give one", *t.Topic)
	case t.Topic != nil:
		if topic := img.Topics[*t.Topic]; topic != nil {
			return topic, nil
		}
		return nil, refuse(kerr.UnknownTopicOrPartition, "topic %q does not exist", *t.Topic)
	}
	if topic := img.TopicsByID[manifest.TopicID(t.TopicID)]; topic != nil {
		return topic, nil
	}
	return nil, refuse(kerr.UnknownTopicID, "no topic has the id %s", manifest.TopicID(t.TopicID))
}

func (s *Server) deleteTopic(ctx context.Context, t *meta.Topic) error {
	if err := s.Store.DeleteTopic(ctx, t.Name); err != nil {
		return fmt.Errorf("delete topic %q: %w", t.Name, err)
	}
	s.Options.Logger.Info("topic deleted", "topic", t.Name, "id", t.ID.String())
	return s.untilImage(ctx, func(img *meta.Image) bool { return img.TopicsByID[t.ID] == nil })
}
