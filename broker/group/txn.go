package group

import "github.com/varvelog/varve/internal/invariants"

// Offsets committed within a transaction wait, out of sight, for the transaction's marker (KIP-98).

// txnOffset is one of them, by the producer whose transaction it is in.
type txnOffset struct {
	producer int64
	at       topicPartition
	offset   *offset
}

// stage keeps an offset of an open transaction.
func (c *Core) stage(g *group, producer int64, k topicPartition, o *offset) {
	groups := c.txns[producer]
	if groups == nil {
		groups = map[string]struct{}{}
		c.txns[producer] = groups
	}
	groups[g.id] = struct{}{}
	for i := range g.staged {
		if s := &g.staged[i]; s.producer == producer && s.at == k {
			s.offset = o
			return
		}
	}
	g.staged = append(g.staged, txnOffset{producer, k, o})
}

// unstage drops what open transactions have for a partition: a tombstone came.
func (g *group) unstage(k topicPartition) {
	g.staged = without(g.staged, func(s txnOffset) bool { return s.at == k })
}

func (g *group) inTransaction(k topicPartition) bool {
	for _, s := range g.staged {
		if s.at == k {
			return true
		}
	}
	return false
}

// EndTransaction takes over, or forgets, what the producer's transaction committed: its marker is in the log.
func (c *Core) EndTransaction(producer int64, commit bool) {
	for id := range c.txns[producer] {
		g := c.get(id)
		if g == nil {
			continue
		}
		for _, s := range g.staged {
			if commit && s.producer == producer {
				c.put(g, s.at.topic, s.at.partition, s.offset)
			}
		}
		g.staged = without(g.staged, func(s txnOffset) bool { return s.producer == producer })
	}
	delete(c.txns, producer)
	invariants.Assert(c.stats.Offsets >= 0, "group: %d offsets", c.stats.Offsets)
}

func without(ss []txnOffset, drop func(txnOffset) bool) []txnOffset {
	kept := ss[:0]
	for _, s := range ss {
		if !drop(s) {
			kept = append(kept, s)
		}
	}
	clear(ss[len(kept):])
	if len(kept) == 0 {
		return nil
	}
	return kept
}
