package group

import (
	"maps"
	"slices"

	"github.com/varvelog/varve/manifest"
)

// Expire writes tombstones for the offsets whose retention has passed, and for groups that have neither members nor offsets left
// (KIP-211). Offsets of a group with members stay while it rebalances, and while it is subscribed to their topic.
func (c *Core) Expire(now int64, out []Effect) []Effect {
	if again := c.again; len(again) > 0 {
		c.again = nil
		out = c.TopicsDeleted(again, out)
	}
	for _, id := range slices.Sorted(maps.Keys(c.groups)) {
		out = c.expireGroup(now, c.groups[id], out)
	}
	return out
}

func (c *Core) expireGroup(now int64, g *group, out []Effect) []Effect {
	if g.deleting {
		return out
	}
	keys, all := c.expired(c.wall(now), g)
	gone := all && g.state == Empty && len(g.pending) == 0 && g.writes == 0 && len(g.staged) == 0
	if gone && !g.persisted && len(keys) == 0 {
		c.dropIdle(g)
		return out
	}
	if len(keys) == 0 && !gone {
		return out
	}
	c.stats.Expired += uint64(len(keys))
	return c.tombstones(g, keys, gone, nil, out)
}

// expired lists the offsets whose time has passed, and tells if no other is left.
func (c *Core) expired(wallMs int64, g *group) (_ []topicPartition, all bool) {
	since, ok := g.unusedSince()
	if !ok {
		return nil, len(g.offsets) == 0
	}
	all = true
	keys := map[topicPartition]struct{}{}
	for topic, ps := range g.offsets {
		used := g.subscribed(topic)
		for p, o := range ps {
			k := topicPartition{topic, p}
			_, committing := g.committing[k]
			if used || committing || g.inTransaction(k) || !o.expired(wallMs, since, c.conf.RetentionMs) {
				all = false
				continue
			}
			keys[k] = struct{}{}
		}
	}
	return sorted(keys), all
}

// unusedSince is the time from which the retention of the group's offsets counts: that at which it became empty, or -1, the time of
// each offset's commit, for groups that commit without members and for topics that nobody subscribes to any more. Not ok: none expires.
func (g *group) unusedSince() (int64, bool) {
	switch {
	case g.protocolType == "":
		return -1, true
	case g.state == Empty:
		return g.stateMs, true
	case g.state == Stable && g.topicsKnown:
		return -1, true
	}
	return 0, false
}

func (o *offset) expired(wallMs, since, retentionMs int64) bool {
	if o.expireMs >= 0 {
		return wallMs >= o.expireMs
	}
	if since < 0 {
		since = o.commitMs
	}
	return wallMs-since >= retentionMs
}

// DeletedTopic is a topic that is gone; another of its name may be there by now.
type DeletedTopic struct {
	Name string
	ID   manifest.TopicID
}

// of tells if an offset was committed for the deleted topic; without an id it is taken to be.
func (d DeletedTopic) of(id manifest.TopicID) bool { return id == d.ID || id == manifest.TopicID{} }

// TopicsDeleted hides the offsets of deleted topics and writes tombstones for them.
func (c *Core) TopicsDeleted(ds []DeletedTopic, out []Effect) []Effect {
	for _, id := range slices.Sorted(maps.Keys(c.groups)) {
		g := c.groups[id]
		keys := map[topicPartition]struct{}{}
		for _, d := range ds {
			g.ofTopic(d, keys)
		}
		if len(keys) > 0 && !g.deleting {
			out = c.tombstones(g, sorted(keys), false, ds, out)
		}
	}
	return out
}

// ofTopic adds the partitions of a deleted topic for which the group has an offset, committed or on its way to the log.
func (g *group) ofTopic(d DeletedTopic, keys map[topicPartition]struct{}) {
	for p, o := range g.offsets[d.Name] {
		k := topicPartition{d.Name, p}
		if !d.of(o.id) {
			continue
		}
		o.gone = true
		if cs, ok := g.committing[k]; !ok || d.of(cs.id) {
			keys[k] = struct{}{}
		}
	}
	for k, cs := range g.committing {
		if k.topic == d.Name && g.offset(k.topic, k.partition) == nil && d.of(cs.id) {
			keys[k] = struct{}{}
		}
	}
	for _, s := range g.staged {
		if s.at.topic == d.Name && d.of(s.offset.id) {
			keys[s.at] = struct{}{}
		}
	}
}

// tombstones writes them, for offsets and, with gone, for the group itself.
func (c *Core) tombstones(g *group, keys []topicPartition, gone bool, topics []DeletedTopic, out []Effect) []Effect {
	var records []Record
	for _, k := range keys {
		records = append(records, Record{Key: appendOffsetKey(nil, g.id, k.topic, k.partition)})
	}
	if gone {
		records = append(records, Record{Key: appendGroupKey(nil, g.id)})
		g.deleting = true
	}
	g.writes++
	return c.append(tombstoneWrite{g, keys, gone, topics}, records, out)
}

// tombstoneWrite is the removal of offsets, and perhaps of the group, that nobody waits for.
type tombstoneWrite struct {
	group  *group
	keys   []topicPartition
	gone   bool
	topics []DeletedTopic // for which it is, if it was not retention
}

func (w tombstoneWrite) done(c *Core, _, _ int64, err error, out []Effect) []Effect {
	g := w.group
	g.writes--
	if w.gone {
		g.deleting = false
	}
	if err != nil {
		c.again = append(c.again, w.topics...) // what retention wanted, it will want again
		return out
	}
	c.bury(g, w.keys, w.gone)
	return out
}

// bury removes what tombstones in the log have removed.
func (c *Core) bury(g *group, keys []topicPartition, gone bool) {
	for _, k := range keys {
		c.unput(g, k.topic, k.partition)
		g.unstage(k)
	}
	if gone {
		c.stats.Deletions++
		g.persisted = false
		c.dropIdle(g)
	}
}
