package replica

import "slices"

// follower is what a leader knows of another replica, in its epoch.
type follower struct {
	id          int32
	brokerEpoch int64 // of the process that fetched last; -1: none has
	logStart    int64 // of its log; -1: not known in this epoch
	leo         int64 // everything below is in its log; -1: not known in this epoch
	inSync      bool  // in the ISR as the metadata has it
	proposed    bool  // in the ISR as it is proposed
	absent      bool  // neither registered nor fetching

	caughtUpMs int64 // when it last had all that the leader had
	fetchedMs  int64 // its last fetch
	leaderLEO  int64 // the leader's LEO at that
}

// Proposal is a change of the ISR that is to be written to the metadata. Until its outcome is known the high watermark counts both
// the old and the new ISR.
type Proposal struct {
	Epoch   int32 // leader epoch in which it is made
	Version int32 // partition epoch on which it rests
	ISR     []int32
	Joiners []Joiner

	writer int64 // broker epoch of the first try to write it, 0: there was none; guarded by the partition's mu
}

// Joiner is a follower that enters the ISR, and the process of it that has shown its log: another one may have lost its tail
// (PROTOCOLS 7.2, KIP-903).
type Joiner struct {
	ID          int32
	BrokerEpoch int64
}

// adopt takes over the replicas and the ISR of the metadata. What is known of followers stays.
func (c *Core) adopt(e Event) {
	c.replicas, c.isr, c.version = e.Replicas, e.ISR, e.Version
	was := c.followers
	c.followers = nil
	for _, list := range [][]int32{e.Replicas, e.ISR} {
		for _, id := range list {
			if id == c.self || c.follower(id) != nil {
				continue
			}
			f := follower{id: id, brokerEpoch: -1, logStart: -1, leo: -1, leaderLEO: -1}
			if i := slices.IndexFunc(was, func(f follower) bool { return f.id == id }); i >= 0 {
				f = was[i]
			}
			f.inSync, f.proposed = slices.Contains(e.ISR, id), false
			c.followers = append(c.followers, f)
		}
	}
}

func (c *Core) follower(id int32) *follower {
	for i := range c.followers {
		if c.followers[i].id == id {
			return &c.followers[i]
		}
	}
	return nil
}

// fetched notes what a follower has, by the offset that it asks for. That its log agrees with this one so far was seen in the epoch of the
// request: this broker may have followed another since, cut its log, and been elected again.
func (c *Core) fetched(e Event) Effect {
	if e.Epoch != anyEpoch && (c.role != leading || e.Epoch != c.epoch) {
		return Effect{Fenced: true}
	}
	f := c.follower(e.Replica)
	if c.role != leading || f == nil {
		return Effect{}
	}
	if e.BrokerEpoch < f.brokerEpoch {
		return Effect{Stale: true}
	}
	f.brokerEpoch = e.BrokerEpoch
	began := f.logStart != e.LogStart
	f.logStart = e.LogStart
	// Caught up is who has all that there is, or had all that there was at its last fetch: a follower that is always one fetch
	// behind a busy leader is in sync.
	switch {
	case e.LEO >= c.leo:
		f.caughtUpMs = max(f.caughtUpMs, e.NowMs)
	case f.leaderLEO >= 0 && e.LEO >= f.leaderLEO:
		f.caughtUpMs = max(f.caughtUpMs, f.fetchedMs)
	}
	f.leo, f.leaderLEO, f.fetchedMs, f.absent = e.LEO, c.leo, e.NowMs, false
	moved := c.advance()
	return Effect{HWMoved: moved, Began: began, Propose: c.expand(f, e)}
}

// expand proposes a follower for the ISR once it has everything that is, or may have been, committed: up to the high watermark, and up
// to the end that this leader's log had at its election, since its high watermark may be older than the last leader's (PROTOCOLS 7.2);
// and once it has taken over where this log begins. A DeleteRecords does not wait for who was away: elected without that, it would
// bring back what was deleted. Kafka lets it.
//
// A deletion that comes after this look waits for it: it lives, or its registration is gone, and then the proposal is refused.
func (c *Core) expand(f *follower, e Event) *Proposal {
	if f.inSync || !e.Eligible || c.proposal != nil || f.leo < c.hw || f.leo < c.epochStart || f.logStart < e.Start {
		return nil
	}
	p := &Proposal{Epoch: c.epoch, Version: c.version, Joiners: []Joiner{{f.id, f.brokerEpoch}}}
	for _, id := range c.replicas { // in the order of the assignment
		if id == f.id || c.inSync(id) {
			p.ISR = append(p.ISR, id)
		}
	}
	return c.propose(p)
}

// shrink proposes the ISR without those that have not caught up for replica.lag.time.max.ms.
func (c *Core) shrink(nowMs int64) *Proposal {
	if c.role != leading || c.proposal != nil {
		return nil
	}
	p := &Proposal{Epoch: c.epoch, Version: c.version}
	for _, id := range c.isr {
		if f := c.follower(id); f == nil || f.leo == c.leo || nowMs-f.caughtUpMs <= c.lagMs {
			p.ISR = append(p.ISR, id)
		}
	}
	if len(p.ISR) == len(c.isr) {
		return nil
	}
	return c.propose(p)
}

// silentMs is for how long a follower that is not registered has not fetched when it is gone: several times replica.fetch.wait.max.ms. A
// registration alone may lapse while etcd has other worries.
const silentMs = 2000

// missed notes which members of the ISR are gone. Where min.insync.replicas would not hold without them they stay in it (KIP-966), but
// what waits for them will not be acknowledged soon, and is told so instead of waiting for replica.lag.time.max.ms, as if they had left.
func (c *Core) missed(e Event) Effect {
	if c.role != leading {
		return Effect{}
	}
	was := c.under()
	for i := range c.followers {
		f := &c.followers[i]
		f.absent = slices.Contains(e.Away, f.id) && e.NowMs-max(f.fetchedMs, f.caughtUpMs) > silentMs
	}
	return Effect{HWMoved: c.advance(), Under: !was && c.under()}
}

func (c *Core) propose(p *Proposal) *Proposal {
	c.proposal = p
	for i := range c.followers {
		c.followers[i].proposed = slices.Contains(p.ISR, c.followers[i].id)
	}
	return p
}

// known takes over a newer record. A proposal that rests on an older one is settled by it: either this is what came of it, or it
// cannot be written any more.
func (c *Core) known(e Event) Effect {
	if c.role != leading || e.Epoch != c.epoch || e.Version <= c.version {
		return Effect{}
	}
	was := c.under()
	c.proposal = nil
	c.adopt(e)
	return Effect{HWMoved: c.advance(), Under: !was && c.under()}
}

// refused drops a proposal of which it is known that it was not written and never will be.
func (c *Core) refused(e Event) Effect {
	if c.proposal == nil || c.proposal.Epoch != e.Epoch || c.proposal.Version != e.Version {
		return Effect{}
	}
	c.proposal = nil
	for i := range c.followers {
		c.followers[i].proposed = false
	}
	return Effect{HWMoved: c.advance()}
}
