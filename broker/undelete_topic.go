package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// undeleteOne answers a CreateTopics entry that brings a deleted topic back, with its id, partitions, configs and records.
func (s *Server) undeleteOne(ctx context.Context, img *meta.Image, name, id string, validateOnly bool, a *kmsg.CreateTopicsResponseTopic) {
	t, err := deletedTopic(img, name, id)
	if err == nil {
		window := s.config().Topic(s.dynamic(img), t.Configs).RestoreWindowMs
		if over := time.UnixMilli(t.DeletedMs + window); !s.Options.Wall.Now().Before(over) {
			err = refuse(kerr.InvalidRequest, "topic %q was deleted at %s; its restore window ended at %s", name,
				time.UnixMilli(t.DeletedMs).UTC().Format(time.RFC3339), over.UTC().Format(time.RFC3339))
		}
	}
	if err == nil && img.Topics[name] != nil {
		err = refuse(kerr.TopicAlreadyExists, "topic %q exists; delete or restore under another name", name)
	}
	if err == nil && !validateOnly {
		if err = s.Store.UndeleteTopic(ctx, t.ID); err == nil {
			err = s.untilImage(ctx, func(img *meta.Image) bool { return img.TopicsByID[t.ID] != nil })
			s.Options.Logger.Info("topic undeleted", "topic", t.Name, "id", t.ID.String())
		}
	}
	if err != nil {
		a.ErrorCode, a.ErrorMessage = code(err), message(fmt.Errorf("undelete %q: %w", name, err))
		return
	}
	a.TopicID, a.NumPartitions = t.ID, int32(len(t.Partitions))
	if len(t.Partitions) > 0 {
		a.ReplicationFactor = int16(len(t.Partitions[0].Replicas))
	}
}

// deletedTopic finds the deleted topic of that name and, where it is not empty, id; without an id the one deleted last.
func deletedTopic(img *meta.Image, name, id string) (*meta.Topic, error) {
	var found *meta.Topic
	for _, t := range img.Deleted {
		if t.Name == name && (id == "" || t.ID.String() == id) && (found == nil || t.DeletedMs > found.DeletedMs) {
			found = t
		}
	}
	switch {
	case found != nil:
		return found, nil
	case id != "":
		return nil, refuse(kerr.UnknownTopicID, "no deleted topic %q has the id %s; its restore window may have passed", name, id)
	}
	return nil, refuse(kerr.UnknownTopicOrPartition, "no deleted topic has that name; its restore window may have passed")
}
