package group

// LeaveRequest takes members out of a group: by member id, by instance id (Member ""), or both.
type LeaveRequest struct {
	Group   string
	Members []LeaveMember
}

// LeaveMember is one of them.
type LeaveMember struct {
	Member, Instance string
	Reason           string
}

// LeaveResult is the answer: Errs as Members in the request.
type LeaveResult struct {
	Err  error
	Errs []error
}

// Leave removes members at once; the others learn of it by their heartbeats.
func (c *Core) Leave(now int64, r LeaveRequest, out []Effect) (LeaveResult, []Effect) {
	res := LeaveResult{Errs: make([]error, len(r.Members))}
	if r.Group == "" {
		res.Err = ErrInvalidGroup
		return res, out
	}
	g := c.get(r.Group)
	if g != nil && g.deleting {
		res.Err = ErrNotAvailable
		return res, out
	}
	left := 0
	reason := ""
	for i, l := range r.Members {
		if g == nil {
			res.Errs[i] = ErrUnknownMember
			continue
		}
		out, res.Errs[i] = c.leaveOne(g, l, out)
		if res.Errs[i] == nil {
			left++
			reason = because("member "+l.Member+l.Instance+" left", l.Reason)
		}
	}
	if left > 0 {
		out = c.afterLeave(now, g, reason, out)
		c.dropIdle(g)
	}
	return res, out
}

func (c *Core) leaveOne(g *group, l LeaveMember, out []Effect) ([]Effect, error) {
	if l.Member == "" {
		m := g.statics[l.Instance]
		if m == nil || l.Instance == "" {
			return out, ErrUnknownMember
		}
		return c.drop(g, m, ErrUnknownMember, out), nil
	}
	if _, ok := g.pending[l.Member]; ok {
		c.forgetPending(g, l.Member)
		return out, nil
	}
	m, err := g.check(l.Member, l.Instance)
	if err != nil {
		return out, err
	}
	return c.drop(g, m, ErrUnknownMember, out), nil
}
