package group

// FetchTopic names partitions of one topic whose offsets are asked for.
type FetchTopic struct {
	Topic      string
	Partitions []int32
}

// Fetched is what is known of one partition.
type Fetched struct {
	Offset        // with Offset -1, LeaderEpoch -1 where none is committed
	Unstable bool // a commit is under way, and only stable offsets were asked for
}

// Fetch gives the committed offsets of a group, in the order asked for; topics nil: all there are, in no order. With stable set, an
// offset that is about to change is not given.
func (c *Core) Fetch(group string, topics []FetchTopic, stable bool) []Fetched {
	g := c.get(group)
	if topics == nil {
		return c.fetchAll(g, stable)
	}
	var fs []Fetched
	for _, t := range topics {
		for _, p := range t.Partitions {
			fs = append(fs, c.fetchOne(g, t.Topic, p, stable))
		}
	}
	return fs
}

func (c *Core) fetchAll(g *group, stable bool) []Fetched {
	if g == nil {
		return nil
	}
	var fs []Fetched
	for topic, ps := range g.offsets {
		for p, o := range ps {
			if !o.gone {
				fs = append(fs, c.fetchOne(g, topic, p, stable))
			}
		}
	}
	return fs
}

func (c *Core) fetchOne(g *group, topic string, partition int32, stable bool) Fetched {
	f := Fetched{Offset: Offset{Topic: topic, Partition: partition, Offset: -1, LeaderEpoch: -1, ExpireMs: -1}}
	if g == nil {
		return f
	}
	if stable && c.unstable(g, topic, partition) {
		f.Unstable = true
		return f
	}
	if o := g.offset(topic, partition); o != nil && !o.gone {
		f.Offset = o.export(topic, partition)
	}
	return f
}

// unstable tells if a commit of the partition is being written, or is part of an open transaction.
func (c *Core) unstable(g *group, topic string, partition int32) bool {
	k := topicPartition{topic, partition}
	if _, ok := g.committing[k]; ok {
		return true
	}
	return g.inTransaction(k)
}
