package group

// HeartbeatRequest says that a member lives.
type HeartbeatRequest struct {
	Group, Member, Instance string
	Generation              int32
}

// Heartbeat prolongs a session. ErrRebalanceInProgress asks the member to join again.
func (c *Core) Heartbeat(now int64, r HeartbeatRequest) error {
	if r.Group == "" {
		return ErrInvalidGroup
	}
	g := c.get(r.Group)
	if g == nil {
		return ErrUnknownMember
	}
	if g.deleting {
		return ErrNotAvailable
	}
	m, err := g.check(r.Member, r.Instance)
	if err != nil {
		return err
	}
	if r.Generation != g.generation {
		return ErrIllegalGeneration
	}
	c.alarms.set(&m.alarm, now+int64(m.sessionMs))
	if g.state == PreparingRebalance {
		return ErrRebalanceInProgress
	}
	return nil
}

// sessionEnds puts out a member that has not been heard of. One that waits for an answer of ours is not to blame.
func (c *Core) sessionEnds(now int64, g *group, id string, out []Effect) []Effect {
	m := g.byID[id]
	if m == nil {
		return out
	}
	if !m.isNew && (m.join != 0 || m.sync != 0) {
		c.alarms.set(&m.alarm, now+int64(m.sessionMs))
		return out
	}
	out = c.drop(g, m, ErrUnknownMember, out)
	return c.afterLeave(now, g, "session of member "+id+" ended", out)
}

// pendingEnds forgets a member id that was given out and not used.
func (c *Core) pendingEnds(now int64, g *group, id string, out []Effect) []Effect {
	delete(g.pending, id)
	out = c.afterPending(now, g, out)
	c.dropIdle(g)
	return out
}

// afterPending goes on with a rebalance that a pending member id held up. Not so in a first one: it has its delay.
func (c *Core) afterPending(now int64, g *group, out []Effect) []Effect {
	return c.maybeCompleteJoin(now, g, out)
}

func (c *Core) forgetPending(g *group, id string) {
	if a := g.pending[id]; a != nil {
		c.alarms.cancel(a)
		delete(g.pending, id)
	}
}

// drop takes a member out, answering what it waits for with err.
func (c *Core) drop(g *group, m *member, err error, out []Effect) []Effect {
	out = g.answerJoin(m, JoinResult{Err: err, Generation: -1}, out)
	out = m.answerSync(SyncResult{Err: err}, out)
	c.alarms.cancel(&m.alarm)
	g.remove(m)
	return out
}

// afterLeave goes on when members have gone.
func (c *Core) afterLeave(now int64, g *group, reason string, out []Effect) []Effect {
	switch g.state {
	case Stable, CompletingRebalance:
		return c.prepareRebalance(now, g, reason, out)
	case PreparingRebalance:
		if g.previous == Empty && len(g.members) > 0 {
			return out
		}
		if g.allJoined() {
			return c.completeJoin(now, g, out)
		}
	}
	return out
}

// dropIdle forgets a group that has nothing and that the log knows nothing of.
func (c *Core) dropIdle(g *group) {
	if g.state == Empty && len(g.members) == 0 && len(g.pending) == 0 && len(g.offsets) == 0 &&
		g.writes == 0 && len(g.staged) == 0 && !g.persisted && !g.deleting && c.groups[g.id] == g {
		delete(c.groups, g.id)
	}
}
