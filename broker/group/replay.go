package group

import (
	"errors"
	"slices"
)

// Replay takes in one record of the log, at offset at. Producer is the id of the transaction it is in, -1 for none. Records of kinds
// that are not known are passed over. An error says that the record was not understood and that nothing has changed.
func (c *Core) Replay(r Record, at, producer int64) error {
	k, err := DecodeKey(r.Key)
	if errors.Is(err, ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	if k.OfGroup() {
		return c.replayGroup(k, r.Value)
	}
	return c.replayOffset(k, r.Value, at, producer)
}

func (c *Core) replayOffset(k Key, value []byte, at, producer int64) error {
	p := topicPartition{k.Topic, k.Partition}
	if value == nil {
		if g := c.get(k.Group); g != nil {
			c.unput(g, k.Topic, k.Partition)
			g.unstage(p)
		}
		return nil
	}
	o, err := DecodeOffsetValue(value)
	if err != nil {
		return err
	}
	g := c.getOrCreate(k.Group)
	g.persisted = true
	if producer >= 0 {
		c.stage(g, producer, p, kept(o, at))
		return nil
	}
	c.put(g, k.Topic, k.Partition, kept(o, at))
	return nil
}

func (c *Core) replayGroup(k Key, value []byte) error {
	if value == nil {
		c.replayTombstone(k.Group)
		return nil
	}
	md, err := DecodeMetadata(value)
	if err != nil {
		return err
	}
	g := newGroup(k.Group)
	if old := c.get(k.Group); old != nil {
		g.offsets, g.staged = old.offsets, old.staged
	}
	g.persisted = true
	g.protocolType, g.protocol, g.generation, g.stateMs = md.ProtocolType, md.Protocol, md.Generation, md.StateMs
	for _, mm := range md.Members {
		if g.byID[mm.ID] != nil {
			continue
		}
		m := &member{id: mm.ID, instance: mm.Instance, clientID: mm.ClientID, clientHost: mm.ClientHost,
			rebalanceMs: mm.RebalanceMs, sessionMs: mm.SessionMs, assignment: mm.Assignment,
			protocols: []Protocol{{md.Protocol, mm.Subscription}}}
		m.alarm = alarm{ring: ringMember, group: g, id: m.id}
		g.add(m, md.ProtocolType)
	}
	if g.byID[md.Leader] != nil {
		g.leader = md.Leader
	}
	if len(g.members) > 0 {
		g.state, g.previous = Stable, CompletingRebalance
	}
	g.readTopics()
	c.groups[g.id] = g
	return nil
}

// replayTombstone forgets a group; offsets without a tombstone of their own stay, as those of a group that never had members.
func (c *Core) replayTombstone(id string) {
	old := c.get(id)
	if old == nil {
		return
	}
	delete(c.groups, id)
	if len(old.offsets) > 0 || len(old.staged) > 0 {
		g := c.getOrCreate(id)
		g.offsets, g.staged, g.persisted = old.offsets, old.staged, true
	}
}

// Loaded ends the replay: sessions begin anew, and groups that are over the limit rebalance.
func (c *Core) Loaded(now int64, out []Effect) []Effect {
	ids := make([]string, 0, len(c.groups))
	for id, g := range c.groups {
		if len(g.members) == 0 && len(g.offsets) == 0 && len(g.staged) == 0 && g.protocolType == "" {
			delete(c.groups, id) // all its offsets had tombstones
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		g := c.groups[id]
		for _, m := range g.members {
			c.alarms.set(&m.alarm, now+int64(m.sessionMs))
		}
		if len(g.members) > c.conf.MaxSize {
			out = c.prepareRebalance(now, g, "more members than group.max.size", out)
		}
	}
	return out
}
