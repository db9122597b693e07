package group

import (
	"slices"

	"github.com/varvelog/varve/manifest"
)

// consumerType is the protocol type whose subscriptions the coordinator can read.
const consumerType = "consumer"

// group is one consumer group: members and generation on one side, committed offsets on the other.
type group struct {
	id           string
	state        State
	previous     State
	stateMs      int64 // when state was entered; -1: not known (an old record)
	generation   int32
	protocolType string // "": never had members
	protocol     string // of this generation
	leader       string // member id

	members   []*member // in the order in which they came
	byID      map[string]*member
	statics   map[string]*member // by instance id
	pending   map[string]*alarm  // member ids given out and not used yet
	supported map[string]int     // protocol name -> members that have it
	joining   int                // members whose join waits

	topics      map[string]struct{} // subscribed to in this generation
	topicsKnown bool

	timer     alarm // of the rebalance: join, initial delay or sync
	extend    bool  // a member came during the initial delay
	remaining int64 // ms by which the initial delay may still be extended

	offsets    map[string]map[int32]*offset
	committing map[topicPartition]commits
	staged     []txnOffset // of open transactions
	writes     int         // appends that have not ended
	persisted  bool        // the log may have a record of it
	deleting   bool        // its tombstone is being written
}

type topicPartition struct {
	topic     string
	partition int32
}

// commits are those of one partition whose records are being written.
type commits struct {
	n  int
	id manifest.TopicID // of the last
}

func newGroup(id string) *group {
	return &group{
		id: id, stateMs: -1,
		byID: map[string]*member{}, statics: map[string]*member{}, pending: map[string]*alarm{}, supported: map[string]int{},
		offsets: map[string]map[int32]*offset{}, committing: map[topicPartition]commits{},
	}
}

func (g *group) enter(s State, wallMs int64) {
	g.previous, g.state, g.stateMs = g.state, s, wallMs
}

// add makes m a member; the first one gives the group its protocol type and leads it.
func (g *group) add(m *member, protocolType string) {
	if len(g.members) == 0 {
		g.protocolType = protocolType
	}
	if g.leader == "" {
		g.leader = m.id
	}
	g.members = append(g.members, m)
	g.byID[m.id] = m
	if m.static() {
		g.statics[m.instance] = m
	}
	g.count(m, +1)
	if m.join != 0 {
		g.joining++
	}
}

// remove takes m out of the group; what it waits for has been answered.
func (g *group) remove(m *member) {
	i := slices.Index(g.members, m)
	if i < 0 {
		return
	}
	g.members = slices.Delete(g.members, i, i+1)
	delete(g.byID, m.id)
	if m.static() && g.statics[m.instance] == m {
		delete(g.statics, m.instance)
	}
	g.count(m, -1)
	if g.leader == m.id {
		g.leader = ""
		if len(g.members) > 0 {
			g.leader = g.members[0].id
		}
	}
}

func (g *group) count(m *member, by int) {
	for name := range names(m.protocols) {
		if g.supported[name] += by; g.supported[name] == 0 {
			delete(g.supported, name)
		}
	}
}

// supports tells if a member with these protocols fits in.
func (g *group) supports(protocolType string, ps []Protocol) bool {
	if g.state == Empty {
		return protocolType != "" && len(ps) > 0
	}
	if g.protocolType != protocolType {
		return false
	}
	return slices.ContainsFunc(ps, func(p Protocol) bool { return g.supported[p.Name] == len(g.members) })
}

// selectProtocol takes the one that most members prefer among those that all have; of equal ones that which was voted for first.
func (g *group) selectProtocol() string {
	votes := map[string]int{}
	best := ""
	for _, m := range g.members {
		votes[m.vote(g.supported, len(g.members))]++
	}
	for _, m := range g.members {
		if v := m.vote(g.supported, len(g.members)); best == "" || votes[v] > votes[best] {
			best = v
		}
	}
	return best
}

// rebalanceMs is the longest rebalance timeout of the members.
func (g *group) rebalanceMs() int64 {
	var longest int32
	for _, m := range g.members {
		longest = max(longest, m.rebalanceMs)
	}
	return int64(longest)
}

func (g *group) allJoined() bool { return g.joining == len(g.members) && len(g.pending) == 0 }

// electJoined makes sure that the leader is a member that waits for this join to complete; false if none does.
func (g *group) electJoined() bool {
	if l := g.byID[g.leader]; l != nil && l.join != 0 {
		return true
	}
	for _, m := range g.members {
		if m.join != 0 {
			g.leader = m.id
			return true
		}
	}
	return false
}

// check finds the member that a request speaks for, by instance id and member id.
func (g *group) check(id, instance string) (*member, error) {
	if instance != "" {
		holder := g.statics[instance]
		if holder == nil {
			return nil, ErrUnknownMember
		}
		if holder.id != id {
			return nil, ErrFencedInstance
		}
	}
	m := g.byID[id]
	if m == nil {
		return nil, ErrUnknownMember
	}
	return m, nil
}

// nextGeneration begins it with the members that are there, or leaves the group empty.
func (g *group) nextGeneration(wallMs int64) {
	g.generation++
	if len(g.members) == 0 {
		g.protocol = ""
		g.readTopics()
		g.enter(Empty, wallMs)
		return
	}
	g.protocol = g.selectProtocol()
	g.readTopics()
	g.enter(CompletingRebalance, wallMs)
}

// readTopics takes the subscribed topics from what the members said, where that can be read.
func (g *group) readTopics() {
	g.topics, g.topicsKnown = nil, false
	if g.protocolType != consumerType {
		return
	}
	all := map[string]struct{}{}
	for _, m := range g.members {
		topics, err := subscribedTopics(m.metadata(g.protocol))
		if err != nil {
			return
		}
		for _, t := range topics {
			all[t] = struct{}{}
		}
	}
	g.topics, g.topicsKnown = all, true
}

// subscribed tells if offsets of the topic are in use; a consumer group of unknown subscriptions counts as subscribed to all.
func (g *group) subscribed(topic string) bool {
	if !g.topicsKnown {
		return g.protocolType == consumerType
	}
	_, ok := g.topics[topic]
	return ok
}
