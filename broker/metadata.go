package broker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

// noAuthorizedOperations is Kafka's value for "not asked for".
const noAuthorizedOperations = -2147483648

// autoCreateTimeout bounds the creation of a topic by its first mention.
const autoCreateTimeout = 5 * time.Second

// Metadata (3), versions 0 to 13. Topics null means all, empty means none (in version 0 all); versions before 4 always allow
// auto-creation (BUG-066). A topic just created is answered with LEADER_NOT_AVAILABLE: the client asks again.
func handleMetadata(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.MetadataRequest)
	resp := kmsg.NewPtrMetadataResponse()
	resp.SetVersion(req.Version)
	img := s.Store.Image()
	nodes := c.nodes()
	alive := living{}
	for i := range nodes {
		n := &nodes[i]
		alive[n.id] = true
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.id, n.host, n.port, n.rack
		resp.Brokers = append(resp.Brokers, b)
	}
	resp.ClusterID = &img.Cluster
	resp.ControllerID = img.Controller
	if !alive[img.Controller] {
		resp.ControllerID = s.Options.NodeID // any broker takes administrative requests
	}
	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		for _, name := range slices.Sorted(maps.Keys(img.Topics)) {
			resp.Topics = append(resp.Topics, topicMetadata(img.Topics[name], alive))
		}
		return resp, nil
	}
	create := s.Options.AutoCreateTopics && (req.AllowAutoTopicCreation || req.Version < 4)
	for i := range req.Topics {
		resp.Topics = append(resp.Topics, s.oneMetadata(c, img, &req.Topics[i], req.Version, create, alive))
	}
	return resp, nil
}

// oneMetadata answers for one topic of the request, by name or, from version 12 on, by id.
func (s *Server) oneMetadata(c *conn, img *meta.Image, t *kmsg.MetadataRequestTopic, version int16, create bool, alive living) kmsg.MetadataResponseTopic {
	byID := t.TopicID != [16]byte{}
	out := kmsg.NewMetadataResponseTopic()
	out.AuthorizedOperations = noAuthorizedOperations
	out.Topic, out.TopicID = t.Topic, t.TopicID
	switch {
	case t.Topic == nil && !byID, byID && (t.Topic != nil || version < 12):
		out.ErrorCode = kerr.InvalidRequest.Code
		if t.Topic == nil && version < 12 {
			out.Topic = new(string)
		}
		return out
	case byID:
		if found := img.TopicsByID[manifest.TopicID(t.TopicID)]; found != nil && img.Topics[found.Name] == found {
			return topicMetadata(found, alive)
		}
		out.ErrorCode = kerr.UnknownTopicID.Code
		return out
	}
	if found := img.Topics[*t.Topic]; found != nil {
		return topicMetadata(found, alive)
	}
	out.IsInternal = internalTopic(*t.Topic)
	if err := checkTopicName(*t.Topic); err != nil {
		out.ErrorCode = code(err)
		return out
	}
	if !create {
		out.ErrorCode = kerr.UnknownTopicOrPartition.Code
		return out
	}
	ctx, cancel := context.WithTimeout(c.ctx, autoCreateTimeout)
	defer cancel()
	out.ErrorCode = code(s.autoCreate(ctx, *t.Topic))
	if out.ErrorCode == 0 || out.ErrorCode == kerr.TopicAlreadyExists.Code {
		out.ErrorCode = kerr.LeaderNotAvailable.Code
	}
	return out
}

// topicMetadata describes a topic. A partition whose leader is not alive, or has lost its log, has none.
func topicMetadata(t *meta.Topic, alive living) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, t.Internal
	out.AuthorizedOperations = noAuthorizedOperations
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(t.Partitions))
	for i, p := range t.Partitions {
		a := kmsg.NewMetadataResponseTopicPartition()
		a.Partition, a.Leader, a.LeaderEpoch = int32(i), p.Leader, p.LeaderEpoch
		a.Replicas, a.OfflineReplicas = p.Replicas, alive.offline(p)
		a.ISR, _ = alive.eligible(p)
		if alive.gone(p, p.Leader) {
			a.Leader, a.ErrorCode = -1, kerr.LeaderNotAvailable.Code
		}
		out.Partitions = append(out.Partitions, a)
	}
	return out
}

// autoCreate makes a topic with the cluster's defaults.
func (s *Server) autoCreate(ctx context.Context, name string) error {
	if name == offsetsTopic {
		_, err := s.groups.topic(ctx)
		return err
	}
	spec, err := s.spec(s.Store.Image(), newTopic{name: name, partitions: -1, replication: -1, internal: internalTopic(name)})
	if err != nil {
		return err
	}
	_, err = s.createTopic(ctx, spec)
	return err
}
