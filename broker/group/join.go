package group

// JoinRequest asks to become, or to stay, a member.
type JoinRequest struct {
	Group                string
	Member               string // "": new
	Instance             string // group.instance.id; "": dynamic
	ClientID, ClientHost string
	SessionMs            int32
	RebalanceMs          int32
	ProtocolType         string
	Protocols            []Protocol
	NeedMemberID         bool // the client can be asked to join again with an id (v4)
	CanSkipAssignment    bool // the client understands SkipAssignment (v9)
	Reason               string
}

// JoinResult is the answer. With ErrMemberIDRequired, Member is the id to join with.
type JoinResult struct {
	Err            error
	Member         string
	Generation     int32 // -1 with an error
	ProtocolType   string
	Protocol       string
	Leader         string
	Members        []JoinMember // for the leader
	SkipAssignment bool
}

// JoinMember is a member as the leader sees it.
type JoinMember struct {
	ID, Instance string
	Metadata     []byte
}

// maxName is what a string in a record of __consumer_offsets may have, with room for what makes a member id unique.
const maxName = 32_000

// Join enters a member into its group's next generation, or asks it to come back with an id.
func (c *Core) Join(now int64, t Ticket, r JoinRequest, out []Effect) []Effect {
	if err := c.checkJoin(r); err != nil {
		return joinFails(t, r.Member, err, out)
	}
	g := c.get(r.Group)
	if g == nil {
		if r.Member != "" {
			return joinFails(t, r.Member, ErrUnknownMember, out)
		}
		g = newGroup(r.Group)
	}
	switch {
	case g.deleting:
		return joinFails(t, r.Member, ErrNotAvailable, out)
	case !c.accepts(g, r.Member):
		if m := g.byID[r.Member]; m != nil {
			out = c.drop(g, m, ErrGroupFull, out)
			out = c.maybeCompleteJoin(now, g, out)
		}
		return joinFails(t, "", ErrGroupFull, out)
	case !g.supports(r.ProtocolType, r.Protocols):
		return joinFails(t, r.Member, ErrInconsistent, out)
	}
	c.groups[g.id] = g
	if r.Member == "" {
		return c.joinNew(now, t, g, r, out)
	}
	return c.joinAgain(now, t, g, r, out)
}

func (c *Core) checkJoin(r JoinRequest) error {
	if r.Group == "" || len(r.Group) > maxName {
		return ErrInvalidGroup
	}
	if r.SessionMs < c.conf.MinSessionMs || r.SessionMs > c.conf.MaxSessionMs {
		return ErrSessionTimeout
	}
	if len(r.Instance) > maxName || len(r.ProtocolType) > maxName || len(r.ClientID) > maxName || len(r.ClientHost) > maxName {
		return ErrInvalidRequest
	}
	for _, p := range r.Protocols {
		if len(p.Name) > maxName || p.Name == "" {
			return ErrInvalidRequest
		}
	}
	return nil
}

// accepts tells if one more may join. While members join, those that wait are counted, so that a group which is over a lowered
// limit loses its last ones.
func (c *Core) accepts(g *group, id string) bool {
	m := g.byID[id]
	switch g.state {
	case PreparingRebalance:
		return m != nil && m.join != 0 || g.joining < c.conf.MaxSize
	case CompletingRebalance, Stable:
		return m != nil || len(g.members) < c.conf.MaxSize
	}
	return true
}

func (c *Core) joinNew(now int64, t Ticket, g *group, r JoinRequest, out []Effect) []Effect {
	if r.Instance != "" {
		id := r.Instance + "-" + c.conf.NewID()
		if old := g.statics[r.Instance]; old != nil {
			return c.replaceStatic(now, t, g, old, id, r, out)
		}
		return c.addMember(now, t, g, id, r, out)
	}
	id := r.ClientID + "-" + c.conf.NewID()
	if !r.NeedMemberID {
		return c.addMember(now, t, g, id, r, out)
	}
	if len(g.pending) >= c.conf.MaxPending {
		return joinFails(t, "", ErrGroupFull, out)
	}
	a := &alarm{ring: ringPending, group: g, id: id}
	g.pending[id] = a
	c.alarms.set(a, now+min(int64(r.SessionMs), c.conf.PendingMs))
	return joinFails(t, id, ErrMemberIDRequired, out)
}

func (c *Core) joinAgain(now int64, t Ticket, g *group, r JoinRequest, out []Effect) []Effect {
	if _, ok := g.pending[r.Member]; ok && r.Instance == "" {
		return c.addMember(now, t, g, r.Member, r, out)
	}
	m, err := g.check(r.Member, r.Instance)
	if err != nil {
		return joinFails(t, r.Member, err, out)
	}
	switch g.state {
	case PreparingRebalance:
		return c.updateMember(now, t, g, m, r, "member "+m.id+" joins", out)
	case CompletingRebalance:
		// It may not have got the answer to its join: the same again, if it still says the same.
		if m.offers(r.Protocols) {
			return append(out, Answer{t, g.joined(m)})
		}
		return c.updateMember(now, t, g, m, r, "member "+m.id+" changed its protocols", out)
	case Stable:
		// A leader joins to have partitions assigned anew, of topics that changed.
		if g.leader == m.id {
			return c.updateMember(now, t, g, m, r, "leader "+m.id+" joins again", out)
		}
		if !m.offers(r.Protocols) {
			return c.updateMember(now, t, g, m, r, "member "+m.id+" changed its protocols", out)
		}
		res := g.joined(m)
		res.Members = nil
		return append(out, Answer{t, res})
	}
	return joinFails(t, r.Member, ErrUnknownMember, out)
}

// addMember adds one that the group does not have and rebalances.
func (c *Core) addMember(now int64, t Ticket, g *group, id string, r JoinRequest, out []Effect) []Effect {
	c.forgetPending(g, id)
	m := &member{
		id: id, instance: r.Instance, clientID: r.ClientID, clientHost: r.ClientHost,
		rebalanceMs: r.RebalanceMs, sessionMs: r.SessionMs, protocols: r.Protocols, join: t, isNew: true,
	}
	m.alarm = alarm{ring: ringMember, group: g, id: id}
	if g.state == PreparingRebalance && g.previous == Empty {
		g.extend = true
	}
	g.add(m, r.ProtocolType)
	// It does not know its id yet and cannot heartbeat, nor is its connection read while it waits: if it went away and
	// joined again, this is what ends its first self.
	c.alarms.set(&m.alarm, now+c.conf.NewMemberJoinMs)
	return c.rebalance(now, g, because("member "+id+" is new", r.Reason), out)
}

// updateMember takes what a known member says now and rebalances.
func (c *Core) updateMember(now int64, t Ticket, g *group, m *member, r JoinRequest, reason string, out []Effect) []Effect {
	out = g.answerJoin(m, JoinResult{Err: ErrRebalanceInProgress, Member: m.id, Generation: -1}, out) // asked twice: the older one
	g.count(m, -1)
	m.protocols, m.rebalanceMs, m.sessionMs = r.Protocols, r.RebalanceMs, r.SessionMs
	g.count(m, +1)
	m.join = t
	g.joining++
	return c.rebalance(now, g, because(reason, r.Reason), out)
}

// joined is the answer that tells m of the current generation.
func (g *group) joined(m *member) JoinResult {
	r := JoinResult{Member: m.id, Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader}
	if g.leader == m.id {
		r.Members = g.joinMembers()
	}
	return r
}

func (g *group) joinMembers() []JoinMember {
	ms := make([]JoinMember, len(g.members))
	for i, m := range g.members {
		ms[i] = JoinMember{m.id, m.instance, m.metadata(g.protocol)}
	}
	return ms
}

// answerJoin completes m's join, if it waits for one.
func (g *group) answerJoin(m *member, r JoinResult, out []Effect) []Effect {
	if m.join == 0 {
		return out
	}
	t := m.join
	m.join = 0
	g.joining--
	return append(out, Answer{t, r})
}

func joinFails(t Ticket, id string, err error, out []Effect) []Effect {
	return append(out, Answer{t, JoinResult{Err: err, Member: id, Generation: -1}})
}

func because(what, client string) string {
	if client == "" {
		return what
	}
	return what + ": " + client
}
