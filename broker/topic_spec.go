package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/broker/control"
	"github.com/varvelog/varve/meta"
)

// newTopic is a topic that a client, or first use, wants created.
type newTopic struct {
	name        string
	partitions  int32             // -1: num.partitions
	replication int16             // -1: default.replication.factor
	assignment  map[int32][]int32 // or, by hand, the replicas of each partition
	configs     map[string]string
	internal    bool
}

// spec checks a new topic and completes it with defaults and a placement. Errors carry Kafka's codes and say what to do.
func (s *Server) spec(img *meta.Image, t newTopic) (meta.TopicSpec, error) {
	out := meta.TopicSpec{Name: t.name, Internal: t.internal, Configs: t.configs}
	if err := checkTopicName(t.name); err != nil {
		return out, err
	}
	if _, ok := img.Topics[t.name]; ok {
		return out, refuse(kerr.TopicAlreadyExists, "topic %q exists", t.name)
	}
	if other := collision(img, t.name); other != "" {
		return out, refuse(kerr.InvalidTopicException, "topic %q collides with %q: '.' and '_' are the same in metric names", t.name, other)
	}
	if err := s.config().CheckTopic(s.dynamic(img), t.configs); err != nil {
		return out, refuse(kerr.InvalidConfig, "%v", err)
	}
	var err error
	if len(t.assignment) > 0 {
		out.Assignment, err = byHand(img, t)
	} else {
		out.Assignment, err = s.placed(img, t)
	}
	return out, err
}

// placed lets the controller's arithmetic choose.
func (s *Server) placed(img *meta.Image, t newTopic) ([][]int32, error) {
	n, rf := t.partitions, t.replication
	if n == -1 {
		n = s.Options.DefaultPartitions
	}
	if rf == -1 {
		rf = s.Options.DefaultReplication
	}
	if n < 1 {
		return nil, refuse(kerr.InvalidPartitions, "number of partitions must be larger than 0, or -1 for the default; it is %d", n)
	}
	if n > maxPartitions {
		return nil, refuse(kerr.InvalidPartitions, "%d partitions are more than a topic may have, %d", n, maxPartitions)
	}
	if rf < 1 {
		return nil, refuse(kerr.InvalidReplicationFactor, "replication factor must be larger than 0, or -1 for the default; it is %d", rf)
	}
	a, err := control.Place(img, int(n), int(rf))
	if err != nil {
		return nil, refuse(kerr.InvalidReplicationFactor, "%v", err)
	}
	return a, nil
}

// maxPartitions of one topic: a bound on what one small request can make the cluster do.
const maxPartitions = 100_000

// byHand checks an assignment that the client gave.
func byHand(img *meta.Image, t newTopic) ([][]int32, error) {
	if t.partitions != -1 || t.replication != -1 {
		return nil, refuse(kerr.InvalidRequest, "both an assignment and a number of partitions or replicas are given; give one")
	}
	out := make([][]int32, len(t.assignment))
	for p := range out {
		replicas, ok := t.assignment[int32(p)]
		if !ok {
			return nil, refuse(kerr.InvalidReplicaAssignment, "partitions must be numbered from 0 without holes; %d is missing", p)
		}
		if err := checkReplicas(img, replicas, len(t.assignment[0])); err != nil {
			return nil, err
		}
		out[p] = replicas
	}
	return out, nil
}

// checkReplicas refuses empty, doubled and unknown brokers, another number of them than rf, and such of which none is alive. Others of them may
// be away, and join the ISR once they are back.
func checkReplicas(img *meta.Image, replicas []int32, rf int) error {
	if len(replicas) == 0 || len(replicas) != rf {
		return refuse(kerr.InvalidReplicaAssignment, "each partition needs the same number of replicas, at least one; %v has %d", replicas, len(replicas))
	}
	for i, r := range replicas {
		if slices.Contains(replicas[:i], r) {
			return refuse(kerr.InvalidReplicaAssignment, "broker %d is twice in %v", r, replicas)
		}
		if img.Brokers[r] == nil && img.Known[r] == nil {
			return refuse(kerr.InvalidReplicaAssignment, "broker %d of %v is unknown", r, replicas)
		}
	}
	if !slices.ContainsFunc(replicas, img.Eligible) {
		return refuse(kerr.InvalidReplicaAssignment, "no broker of %v is alive", replicas)
	}
	return nil
}

// collision returns a topic whose name differs from name only by '.' and '_', as Kafka refuses it.
func collision(img *meta.Image, name string) string {
	if !strings.ContainsAny(name, "._") {
		return ""
	}
	flat := strings.ReplaceAll(name, ".", "_")
	for other := range img.Topics {
		if len(other) == len(name) && other != name && strings.ReplaceAll(other, ".", "_") == flat {
			return other
		}
	}
	return ""
}

// createTopic creates it and waits until this broker's image has it, so that what the client asks next is answered by it.
func (s *Server) createTopic(ctx context.Context, spec meta.TopicSpec) (*meta.Topic, error) {
	t, err := s.Store.CreateTopic(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("create topic %q: %w", spec.Name, err)
	}
	return t, s.untilImage(ctx, func(img *meta.Image) bool { return img.TopicsByID[t.ID] != nil })
}

// untilImage waits until the image satisfies ok, or ctx ends.
func (s *Server) untilImage(ctx context.Context, ok func(*meta.Image) bool) error {
	for pause := 200 * time.Microsecond; !ok(s.Store.Image()); pause = min(2*pause, 10*time.Millisecond) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return nil
}

// refuse makes an error with a Kafka code and a text for the client.
func refuse(code *kerr.Error, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

type refusal struct {
	code *kerr.Error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.code }

// config is the broker's static configuration.
func (s *Server) config() *config.Broker { return s.Options.Config }

// dynamic is the part of the configuration that the metadata store holds.
func (s *Server) dynamic(img *meta.Image) config.Dynamic {
	return config.Dynamic{Broker: img.Configs[meta.BrokerResource(s.Options.NodeID)], Cluster: img.Configs[meta.ClusterResource]}
}

// requestTimeout bounds a request's work by what the client says, within what the broker allows.
func requestTimeout(millis int32) time.Duration {
	return min(max(time.Duration(millis)*time.Millisecond, time.Second), time.Minute)
}
