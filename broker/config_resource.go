package broker

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/meta"
)

// configResource is what DescribeConfigs and the two Alter APIs speak of: a topic, this broker, or all brokers ("").
type configResource struct {
	kind    kmsg.ConfigResourceType
	name    string
	topic   *meta.Topic
	cluster bool
}

// resource resolves a type and a name. The answer echoes both, whatever they are (BUG-110).
func (s *Server) resource(img *meta.Image, kind kmsg.ConfigResourceType, name string) (configResource, error) {
	r := configResource{kind: kind, name: name}
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if err := checkTopicName(name); err != nil {
			return r, err
		}
		if r.topic = img.Topics[name]; r.topic == nil {
			return r, refuse(kerr.UnknownTopicOrPartition, "topic %q does not exist", name)
		}
		return r, nil
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			r.cluster = true
			return r, nil
		}
		if id, err := strconv.ParseInt(name, 10, 32); err != nil || int32(id) != s.Options.NodeID {
			return r, refuse(kerr.InvalidRequest, "this is broker %d; ask broker %q itself", s.Options.NodeID, name)
		}
		return r, nil
	case kmsg.ConfigResourceTypeGroupConfig:
		return r, nil // no group has a configuration of its own yet: an empty list
	}
	return r, refuse(kerr.InvalidRequest, "configurations of resource type %d are not kept here", kind)
}

// set returns the dynamic configs of the resource, as stored.
func (s *Server) set(img *meta.Image, r configResource) map[string]string {
	switch {
	case r.topic != nil:
		return r.topic.Configs
	case r.cluster:
		return img.Configs[meta.ClusterResource]
	case r.kind == kmsg.ConfigResourceTypeBroker:
		return img.Configs[meta.BrokerResource(s.Options.NodeID)]
	}
	return nil
}

// alter replaces the resource's dynamic configs by what edit makes of them, after checking the outcome.
func (s *Server) alter(ctx context.Context, r configResource, validateOnly bool, edit func(map[string]string) (map[string]string, error)) error {
	img := s.Store.Image()
	checked := func(old map[string]string) (map[string]string, error) {
		next, err := edit(maps.Clone(old))
		if err != nil {
			return nil, err
		}
		if err := s.checkConfigs(img, r, old, next); err != nil {
			return nil, err
		}
		return next, nil
	}
	if validateOnly {
		_, err := checked(s.set(img, r))
		return err
	}
	switch {
	case r.topic != nil:
		return s.Store.AlterTopic(ctx, r.name, checked)
	case r.cluster:
		return s.Store.AlterConfigs(ctx, meta.ClusterResource, checked)
	case r.kind == kmsg.ConfigResourceTypeBroker:
		return s.Store.AlterConfigs(ctx, meta.BrokerResource(s.Options.NodeID), checked)
	}
	return refuse(kerr.InvalidRequest, "configurations of resource type %d are not kept here", r.kind)
}

// checkConfigs holds the new configs to the registry.
func (s *Server) checkConfigs(img *meta.Image, r configResource, old, next map[string]string) error {
	if r.topic == nil {
		if err := config.CheckBroker(next); err != nil {
			return refuse(kerr.InvalidConfig, "%v", err)
		}
		return nil
	}
	if err := s.config().CheckTopic(s.dynamic(img), next); err != nil {
		return refuse(kerr.InvalidConfig, "%v", err)
	}
	return nil
}

// apply makes one incremental change (KIP-339).
func apply(kind kmsg.ConfigResourceType, set map[string]string, name string, op kmsg.IncrementalAlterConfigOp, value *string, fallback func(string) string) error {
	var key *config.Key
	if kind == kmsg.ConfigResourceTypeTopic {
		key = config.TopicKey(name)
	} else {
		key = config.BrokerKey(name)
	}
	if key == nil {
		set[name] = ""
		return nil // the check of the whole names it, with a suggestion
	}
	if op != kmsg.IncrementalAlterConfigOpDelete && value == nil {
		return refuse(kerr.InvalidRequest, "%s: null is no value", name)
	}
	switch op {
	case kmsg.IncrementalAlterConfigOpSet:
		set[name] = *value
	case kmsg.IncrementalAlterConfigOpDelete:
		delete(set, name)
	case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
		if key.Type != config.List {
			return refuse(kerr.InvalidConfig, "%s: APPEND and SUBTRACT are for lists, this is a %s", name, key.Type)
		}
		current, ok := set[name]
		if !ok {
			current = fallback(name)
		}
		set[name] = changeList(config.SplitList(current), config.SplitList(*value), op == kmsg.IncrementalAlterConfigOpAppend)
	default:
		return refuse(kerr.InvalidRequest, "%s: unknown operation %d", name, op)
	}
	return nil
}

// changeList appends what is not there yet, or takes out.
func changeList(list, change []string, appending bool) string {
	for _, e := range change {
		at := slices.Index(list, e)
		switch {
		case appending && at < 0:
			list = append(list, e)
		case !appending && at >= 0:
			list = slices.Delete(list, at, at+1)
		}
	}
	return strings.Join(list, ",")
}
