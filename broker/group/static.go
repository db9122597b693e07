package group

// replaceStatic gives the membership of an instance id to a member that comes with no member id: the instance has restarted. The old
// member id is fenced at once. In a stable group whose protocol does not change by it, nobody else notices (KIP-345).
func (c *Core) replaceStatic(now int64, t Ticket, g *group, m *member, id string, r JoinRequest, out []Effect) []Effect {
	old := m.id
	leader := g.leader
	out = g.answerJoin(m, JoinResult{Err: ErrFencedInstance, Member: old, Generation: -1}, out)
	out = m.answerSync(SyncResult{Err: ErrFencedInstance}, out)
	was := staticWrite{group: g, member: m, oldID: old, ticket: t, leader: leader,
		protocols: m.protocols, rebalanceMs: m.rebalanceMs, sessionMs: m.sessionMs, canSkip: r.CanSkipAssignment}

	g.rename(m, id)
	g.count(m, -1)
	m.protocols, m.rebalanceMs, m.sessionMs = r.Protocols, r.RebalanceMs, r.SessionMs
	g.count(m, +1)
	m.join = t
	g.joining++
	c.alarms.set(&m.alarm, now+int64(m.sessionMs))

	switch g.state {
	case Stable:
		if g.selectProtocol() == g.protocol {
			rec, err := g.record(g.assignments())
			g.writes++
			if err != nil {
				return was.done(c, now, 0, err, out)
			}
			return c.append(was, []Record{rec}, out)
		}
		return c.rebalance(now, g, because("static member "+id+" changes the protocol", r.Reason), out)
	case CompletingRebalance:
		// The leader may be assigning to the old id just now.
		return c.prepareRebalance(now, g, because("static member "+id+" replaced "+old, r.Reason), out)
	}
	return c.maybeCompleteJoin(now, g, out)
}

// rename gives m another id, in place.
func (g *group) rename(m *member, id string) {
	delete(g.byID, m.id)
	if g.leader == m.id {
		g.leader = id
	}
	m.id, m.alarm.id = id, id
	g.byID[id] = m
}

// staticWrite is the record of a group in which an instance id has changed hands.
type staticWrite struct {
	group                  *group
	member                 *member
	oldID                  string
	ticket                 Ticket
	leader                 string // before
	protocols              []Protocol
	rebalanceMs, sessionMs int32
	canSkip                bool
}

func (w staticWrite) done(c *Core, now, _ int64, err error, out []Effect) []Effect {
	g, m := w.group, w.member
	g.writes--
	if err == nil {
		g.persisted = true
	}
	if g.state != Stable || m.join != w.ticket || g.byID[m.id] != m {
		return out // it waits for the rebalance that began meanwhile, has left, was replaced again, or joined again
	}
	if err != nil {
		// Not known to the log: the old member id stays.
		out = g.answerJoin(m, JoinResult{Err: err, Generation: -1}, out)
		g.count(m, -1)
		m.protocols, m.rebalanceMs, m.sessionMs = w.protocols, w.rebalanceMs, w.sessionMs
		g.count(m, +1)
		g.rename(m, w.oldID)
		c.alarms.set(&m.alarm, now+int64(m.sessionMs))
		return out
	}
	r := g.joined(m)
	r.SkipAssignment = w.canSkip && g.leader == m.id
	if !w.canSkip {
		// Old clients would assign again if they were told that they lead: they are told the old leader, and follow.
		r.Leader, r.Members = w.leader, nil
	}
	return g.answerJoin(m, r, out)
}
