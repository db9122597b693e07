package group

import "github.com/varvelog/varve/manifest"

// Offset is a committed offset of a partition.
type Offset struct {
	Topic       string
	TopicID     manifest.TopicID // zero: not known
	Partition   int32
	Offset      int64
	LeaderEpoch int32 // of the last record consumed; -1: not known
	Metadata    string
	CommitMs    int64
	ExpireMs    int64 // -1: by the retention of the broker
}

// offset is what a group keeps of one; topic and partition are its keys.
type offset struct {
	id       manifest.TopicID
	offset   int64
	epoch    int32
	metadata string
	commitMs int64
	expireMs int64
	at       int64 // offset of its record in the log: the later of two wins
	gone     bool  // its topic is deleted, and its tombstone on the way
}

func kept(o Offset, at int64) *offset {
	return &offset{id: o.TopicID, offset: o.Offset, epoch: o.LeaderEpoch, metadata: o.Metadata,
		commitMs: o.CommitMs, expireMs: o.ExpireMs, at: at}
}

func (o *offset) export(topic string, partition int32) Offset {
	return Offset{Topic: topic, TopicID: o.id, Partition: partition, Offset: o.offset, LeaderEpoch: o.epoch,
		Metadata: o.metadata, CommitMs: o.commitMs, ExpireMs: o.expireMs}
}

func (g *group) offset(topic string, partition int32) *offset { return g.offsets[topic][partition] }

// put stores an offset, unless a later one is there.
func (c *Core) put(g *group, topic string, partition int32, o *offset) {
	ps := g.offsets[topic]
	if ps == nil {
		ps = map[int32]*offset{}
		g.offsets[topic] = ps
	}
	old := ps[partition]
	if old != nil && old.at > o.at {
		return
	}
	if old == nil {
		c.stats.Offsets++
	}
	ps[partition] = o
}

// unput removes an offset; ok if there was one.
func (c *Core) unput(g *group, topic string, partition int32) bool {
	ps := g.offsets[topic]
	if ps[partition] == nil {
		return false
	}
	delete(ps, partition)
	if len(ps) == 0 {
		delete(g.offsets, topic)
	}
	c.stats.Offsets--
	return true
}
