package group

// SyncRequest brings the leader's assignment, and asks for one's own.
type SyncRequest struct {
	Group, Member, Instance string
	Generation              int32
	ProtocolType, Protocol  *string // v5; nil: not said
	Assignments             []Assignment
}

// Assignment is what one member is to do.
type Assignment struct {
	Member string
	Bytes  []byte
}

// SyncResult is the answer.
type SyncResult struct {
	Err                    error
	ProtocolType, Protocol string
	Assignment             []byte
}

// Sync hands out the assignments once the leader has brought them and they are committed.
func (c *Core) Sync(now int64, t Ticket, r SyncRequest, out []Effect) []Effect {
	g, m, err := c.checkSync(r)
	if err != nil {
		return append(out, Answer{t, SyncResult{Err: err}})
	}
	switch g.state {
	case CompletingRebalance:
		out = m.answerSync(SyncResult{Err: ErrRebalanceInProgress}, out) // asked twice: the older one
		m.sync = t
		c.synced(g, m)
		if g.leader == m.id {
			return c.writeAssignment(now, g, r, out)
		}
		return out
	case Stable:
		c.synced(g, m)
		return append(out, Answer{t, SyncResult{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}})
	}
	return append(out, Answer{t, SyncResult{Err: ErrRebalanceInProgress}})
}

func (c *Core) checkSync(r SyncRequest) (*group, *member, error) {
	if r.Group == "" {
		return nil, nil, ErrInvalidGroup
	}
	g := c.get(r.Group)
	if g == nil || g.state == Empty {
		return nil, nil, ErrUnknownMember
	}
	m, err := g.check(r.Member, r.Instance)
	if err != nil {
		return nil, nil, err
	}
	if r.Generation != g.generation {
		return nil, nil, ErrIllegalGeneration
	}
	if r.ProtocolType != nil && *r.ProtocolType != g.protocolType || r.Protocol != nil && *r.Protocol != g.protocol && g.protocol != "" {
		return nil, nil, ErrInconsistent
	}
	return g, m, nil
}

// synced notes that m has, and stops waiting when all have.
func (c *Core) synced(g *group, m *member) {
	m.syncPending = false
	for _, m := range g.members {
		if m.syncPending {
			return
		}
	}
	c.alarms.cancel(&g.timer)
}

func (c *Core) writeAssignment(now int64, g *group, r SyncRequest, out []Effect) []Effect {
	given := make(map[string][]byte, len(r.Assignments))
	for _, a := range r.Assignments {
		if g.byID[a.Member] != nil {
			given[a.Member] = a.Bytes
		}
	}
	rec, err := g.record(given)
	w := syncWrite{g, g.generation, given}
	g.writes++
	if err != nil {
		return w.done(c, now, 0, err, out)
	}
	return c.append(w, []Record{rec}, out)
}

// syncWrite is the record of a generation with its assignments.
type syncWrite struct {
	group      *group
	generation int32
	given      map[string][]byte
}

func (w syncWrite) done(c *Core, now, _ int64, err error, out []Effect) []Effect {
	g := w.group
	g.writes--
	if err == nil {
		g.persisted = true
	}
	if g.state != CompletingRebalance || g.generation != w.generation {
		return out // the next rebalance has begun; all who waited were told
	}
	if err != nil {
		out = c.spreadAssignment(now, g, nil, err, out)
		return c.prepareRebalance(now, g, "assignment could not be written", out)
	}
	out = c.spreadAssignment(now, g, w.given, nil, out)
	g.enter(Stable, c.wall(now))
	c.stats.Rebalances++
	return changed(g, "assignment from leader "+g.leader, out)
}

// spreadAssignment sets what each member has to do and answers those that wait for it.
func (c *Core) spreadAssignment(now int64, g *group, given map[string][]byte, err error, out []Effect) []Effect {
	for _, m := range g.members {
		m.assignment = given[m.id]
		r := SyncResult{Err: err}
		if err == nil {
			r = SyncResult{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}
		}
		if m.sync != 0 {
			// Its session may have ended while it waited, which is not held against it.
			c.alarms.set(&m.alarm, now+int64(m.sessionMs))
		}
		out = m.answerSync(r, out)
	}
	return out
}

// answerSync completes m's sync, if it waits for one.
func (m *member) answerSync(r SyncResult, out []Effect) []Effect {
	if m.sync == 0 {
		return out
	}
	t := m.sync
	m.sync = 0
	return append(out, Answer{t, r})
}

func (g *group) assignments() map[string][]byte {
	given := make(map[string][]byte, len(g.members))
	for _, m := range g.members {
		given[m.id] = m.assignment
	}
	return given
}
