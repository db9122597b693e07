package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/meta"
)

// CreateTopics v2-v7 (KIP-4, 464: -1 partitions or replicas are the defaults, 525: configs in the answer, 516: topic ids).
// Two configs are varve's own: restoreConfig makes the topic out of an archive, undeleteConfig brings a deleted one back.
func handleCreateTopics(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.CreateTopicsRequest)
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout(req.TimeoutMillis))
	defer cancel()
	eachTopicOnce(req.Topics, func(t *kmsg.CreateTopicsRequestTopic) string { return t.Topic }, func(t *kmsg.CreateTopicsRequestTopic, err error) {
		a := kmsg.NewCreateTopicsResponseTopic()
		a.Topic, a.NumPartitions, a.ReplicationFactor = t.Topic, -1, -1
		if err == nil {
			s.createOne(ctx, t, req.ValidateOnly, &a)
		} else {
			a.ErrorCode, a.ErrorMessage = code(err), message(err)
		}
		resp.Topics = append(resp.Topics, a)
	})
	return resp, nil
}

func (s *Server) createOne(ctx context.Context, t *kmsg.CreateTopicsRequestTopic, validateOnly bool, a *kmsg.CreateTopicsResponseTopic) {
	img := s.Store.Image()
	n, x, err := wanted(t)
	if err == nil && x.undelete != nil {
		s.undeleteOne(ctx, img, n.name, *x.undelete, validateOnly, a)
		return
	}
	var spec meta.TopicSpec
	if err == nil && x.plan != nil {
		spec, err = s.restored(ctx, img, n, *x.plan, validateOnly)
	} else if err == nil {
		spec, err = s.spec(img, n)
	}
	if err == nil && !validateOnly {
		var made *meta.Topic
		if made, err = s.createTopic(ctx, spec); err == nil {
			a.TopicID = made.ID
			s.Options.Logger.Info("topic created", "topic", made.Name, "id", made.ID.String(), "partitions", len(made.Partitions))
		}
	}
	if err != nil {
		a.ErrorCode, a.ErrorMessage = code(err), message(err)
		return
	}
	a.NumPartitions = int32(len(spec.Assignment))
	if len(spec.Assignment) > 0 {
		a.ReplicationFactor = int16(len(spec.Assignment[0]))
	}
	for _, e := range s.config().DescribeTopic(s.dynamic(img), spec.Configs) {
		rc := kmsg.NewCreateTopicsResponseTopicConfig()
		rc.Name, rc.Value, rc.ReadOnly, rc.Source, rc.IsSensitive = e.Key.Name, e.Value, e.ReadOnly, int8(e.Source), e.Sensitive
		a.Configs = append(a.Configs, rc)
	}
}

// Two topic configs, in CreateTopics alone, are varve's own: whoever may reach and use the Kafka port needs no other one. They are
// never stored or described.
const (
	restoreConfig  = "varve.restore.plan" // a restore plan, as `varve restore --into` sends it
	undeleteConfig = "varve.undelete"     // brings a deleted topic back: its id, or empty for the one of the name that was deleted last
)

// extension is what of the request is varve's own, nil where it is not there.
type extension struct{ plan, undelete *string }

// wanted reads a topic of the request.
func wanted(t *kmsg.CreateTopicsRequestTopic) (n newTopic, x extension, err error) {
	n = newTopic{name: t.Topic, partitions: t.NumPartitions, replication: t.ReplicationFactor, configs: map[string]string{}}
	if internalTopic(t.Topic) {
		n.internal = true
	}
	for i := range t.ReplicaAssignment {
		ra := &t.ReplicaAssignment[i]
		if n.assignment == nil {
			n.assignment = map[int32][]int32{}
		}
		if _, twice := n.assignment[ra.Partition]; twice {
			return n, x, refuse(kerr.InvalidReplicaAssignment, "partition %d is assigned twice", ra.Partition)
		}
		n.assignment[ra.Partition] = ra.Replicas
	}
	for i := range t.Configs {
		c := &t.Configs[i]
		switch {
		case c.Name == restoreConfig && c.Value != nil:
			x.plan = c.Value
		case c.Name == undeleteConfig && c.Value != nil:
			x.undelete = c.Value
		case c.Value == nil && config.TopicKey(c.Name) == nil:
			return n, x, refuse(kerr.InvalidConfig, "%s: unknown topic configuration key", c.Name)
		case c.Value == nil:
			return n, x, refuse(kerr.InvalidConfig, "%s: null is no value; leave the key out for its default", c.Name)
		default:
			n.configs[c.Name] = *c.Value
		}
	}
	return n, x, nil
}

// restored completes a topic that is made out of an archive: who may do so is handed in with Options.
func (s *Server) restored(ctx context.Context, img *meta.Image, n newTopic, plan string, validateOnly bool) (meta.TopicSpec, error) {
	if s.Options.Restore == nil {
		return meta.TopicSpec{}, refuse(kerr.InvalidConfig, "%s: this broker has no archive; set archive.url", restoreConfig)
	}
	if err := checkTopicName(n.name); err != nil {
		return meta.TopicSpec{}, err
	}
	if _, ok := img.Topics[n.name]; ok {
		return meta.TopicSpec{}, refuse(kerr.TopicAlreadyExists, "topic %q exists", n.name)
	}
	restored, err := s.Options.Restore(ctx, n.name, plan, validateOnly)
	if err != nil {
		return meta.TopicSpec{}, refuse(kerr.InvalidRequest, "restore into %q: %v", n.name, err)
	}
	n.partitions, n.assignment = int32(len(restored.Pointers)), nil
	if n.replication == -1 && restored.Replication > 0 {
		n.replication = restored.Replication
	}
	set := n.configs
	n.configs = restored.Configs
	if n.configs == nil {
		n.configs = map[string]string{}
	}
	for k, v := range set { // what the request says itself wins over what the archive has
		n.configs[k] = v
	}
	spec, err := s.spec(img, n)
	if err != nil {
		return meta.TopicSpec{}, err
	}
	spec.ID, spec.Pointers, spec.FirstEpochs = restored.ID, restored.Pointers, restored.FirstEpochs
	return spec, nil
}
