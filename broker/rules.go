package broker

import (
	"sync"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
)

// rulesCache keeps what Options.Rules said of each topic until the topic's record changes. The image replaces a changed topic by
// another *meta.Topic, so that comparing pointers is enough.
type rulesCache struct {
	m sync.Map // manifest.TopicID -> *topicRules
}

type topicRules struct {
	topic *meta.Topic
	rules record.ValidateOptions
}

// rulesFor returns the demands on batches produced to t.
func (s *Server) rulesFor(t *meta.Topic) *record.ValidateOptions {
	if v, ok := s.rules.m.Load(t.ID); ok {
		if r := v.(*topicRules); r.topic == t {
			return &r.rules
		}
	}
	r := &topicRules{topic: t, rules: s.Options.Rules(t)}
	s.rules.m.Store(t.ID, r)
	return &r.rules
}

// forget drops topics that are gone; called when the image changes.
func (c *rulesCache) forget(live map[manifest.TopicID]*meta.Topic) {
	c.m.Range(func(k, _ any) bool {
		if _, ok := live[k.(manifest.TopicID)]; !ok {
			c.m.Delete(k)
		}
		return true
	})
}
