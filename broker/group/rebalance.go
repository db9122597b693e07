package group

import "fmt"

// rebalance begins one, or lets the one that goes on end if it can.
func (c *Core) rebalance(now int64, g *group, reason string, out []Effect) []Effect {
	if g.state == PreparingRebalance {
		return c.maybeCompleteJoin(now, g, out)
	}
	return c.prepareRebalance(now, g, reason, out)
}

// prepareRebalance asks all members to join: those that wait for an assignment by an error, the others by their next heartbeat.
func (c *Core) prepareRebalance(now int64, g *group, reason string, out []Effect) []Effect {
	if g.state == CompletingRebalance {
		out = c.spreadAssignment(now, g, nil, ErrRebalanceInProgress, out)
	}
	for _, m := range g.members {
		m.syncPending = false
	}
	c.alarms.cancel(&g.timer)
	first := g.state == Empty
	g.enter(PreparingRebalance, c.wall(now))
	out = changed(g, reason, out)
	if first {
		// More members are likely to come with the first.
		g.extend = false
		g.remaining = max(g.rebalanceMs()-c.conf.InitialDelayMs, 0)
		c.setTimer(g, ringInitial, now+c.conf.InitialDelayMs)
		return out
	}
	if g.allJoined() {
		return c.completeJoin(now, g, out)
	}
	c.setTimer(g, ringJoin, now+g.rebalanceMs())
	return out
}

func (c *Core) setTimer(g *group, r ring, due int64) {
	c.alarms.cancel(&g.timer)
	g.timer.ring, g.timer.group = r, g
	c.alarms.set(&g.timer, due)
}

// initialDelayEnds lets the first rebalance end, unless members came during the delay and it may be extended.
func (c *Core) initialDelayEnds(now int64, g *group, out []Effect) []Effect {
	if g.extend && g.remaining > 0 {
		g.extend = false
		delay := min(c.conf.InitialDelayMs, g.remaining)
		g.remaining -= delay
		c.setTimer(g, ringInitial, now+delay)
		return out
	}
	return c.completeJoin(now, g, out)
}

// maybeCompleteJoin ends the join phase when nobody is waited for; the first rebalance always waits for its delay.
func (c *Core) maybeCompleteJoin(now int64, g *group, out []Effect) []Effect {
	if g.state != PreparingRebalance || g.previous == Empty || !g.allJoined() {
		return out
	}
	return c.completeJoin(now, g, out)
}

// completeJoin begins the next generation with the members that have joined. Dynamic members that have not are out; static ones stay
// until their session ends.
func (c *Core) completeJoin(now int64, g *group, out []Effect) []Effect {
	if g.state != PreparingRebalance {
		return out
	}
	c.alarms.cancel(&g.timer)
	for _, m := range notJoined(g) {
		c.alarms.cancel(&m.alarm)
		g.remove(m)
	}
	if len(g.members) > 0 && !g.electJoined() {
		c.setTimer(g, ringJoin, now+g.rebalanceMs()) // until a session ends
		return out
	}
	g.nextGeneration(c.wall(now))
	if g.state == Empty {
		return c.writeEmpty(g, out)
	}
	for _, m := range g.members {
		m.syncPending = m.join != 0 // not of a static member that was not there
		out = g.answerJoin(m, g.joined(m), out)
		m.isNew = false
		c.alarms.set(&m.alarm, now+int64(m.sessionMs))
	}
	c.setTimer(g, ringSync, now+g.rebalanceMs())
	return changed(g, "all members joined", out)
}

func notJoined(g *group) []*member {
	var ms []*member
	for _, m := range g.members {
		if m.join == 0 && !m.static() {
			ms = append(ms, m)
		}
	}
	return ms
}

// writeEmpty logs that the group has no members any more.
func (c *Core) writeEmpty(g *group, out []Effect) []Effect {
	out = changed(g, "no members", out)
	rec, err := g.record(nil)
	if err != nil {
		return out // cannot be: it has no members and its names were checked
	}
	g.writes++
	return c.append(emptyWrite{g}, []Record{rec}, out)
}

// emptyWrite may fail: then a new coordinator has the last generation's members, until their sessions end.
type emptyWrite struct{ group *group }

func (w emptyWrite) done(_ *Core, _, _ int64, err error, out []Effect) []Effect {
	w.group.writes--
	if err == nil {
		w.group.persisted = true
	}
	return out
}

// syncEnds throws out the members that have joined the generation and not synced, and rebalances.
func (c *Core) syncEnds(now int64, g *group, out []Effect) []Effect {
	if g.state != CompletingRebalance && g.state != Stable {
		return out
	}
	var late []*member
	for _, m := range g.members {
		if m.syncPending {
			late = append(late, m)
		}
	}
	if len(late) == 0 {
		return out
	}
	for _, m := range late {
		out = c.drop(g, m, ErrUnknownMember, out)
	}
	return c.prepareRebalance(now, g, fmt.Sprintf("%d members did not sync", len(late)), out)
}
