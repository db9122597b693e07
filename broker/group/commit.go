package group

// CommitRequest stores offsets for a group: by a member in its generation, or by anyone (no member, generation -1) for a group
// without members.
type CommitRequest struct {
	Group, Member, Instance string
	Generation              int32
	RetentionMs             int64    // -1: the broker's
	Offsets                 []Offset // CommitMs and ExpireMs are set by the core
	NotFound                bool     // the client understands ErrGroupNotFound (v9)
}

// CommitResult is the answer: Err for all, else Errs as Offsets in the request.
type CommitResult struct {
	Err  error
	Errs []error
}

// Commit answers when the offsets are committed to the log.
func (c *Core) Commit(now int64, t Ticket, r CommitRequest, out []Effect) []Effect {
	g, err := c.checkCommit(now, r)
	if err != nil {
		return append(out, Answer{t, CommitResult{Err: err}})
	}
	expire := int64(-1)
	if r.RetentionMs >= 0 {
		expire = c.wall(now) + r.RetentionMs
	}
	w := commitWrite{group: g, ticket: t, result: CommitResult{Errs: make([]error, len(r.Offsets))}}
	var records []Record
	for i, o := range r.Offsets {
		if longerUTF16(o.Metadata, c.conf.MetadataMax) {
			w.result.Errs[i] = ErrMetadataTooLarge
			continue
		}
		o.CommitMs, o.ExpireMs = c.wall(now), expire
		rec, err := offsetRecord(g.id, o)
		if err != nil {
			w.result.Errs[i] = err
			continue
		}
		records = append(records, rec)
		w.offsets = append(w.offsets, o)
	}
	if len(records) == 0 {
		c.dropIdle(g)
		return append(out, Answer{t, w.result})
	}
	for _, o := range w.offsets {
		k := topicPartition{o.Topic, o.Partition}
		g.committing[k] = commits{g.committing[k].n + 1, o.TopicID}
	}
	g.writes++
	return c.append(w, records, out)
}

// checkCommit finds the group, making one for a commit outside of group management.
func (c *Core) checkCommit(now int64, r CommitRequest) (*group, error) {
	g := c.get(r.Group)
	if g == nil {
		switch {
		case len(r.Group) > maxName:
			return nil, ErrInvalidGroup
		case r.Generation < 0:
			return c.getOrCreate(r.Group), nil
		case r.NotFound:
			return nil, ErrGroupNotFound
		}
		return nil, ErrIllegalGeneration
	}
	if g.deleting {
		return nil, ErrNotAvailable
	}
	if r.Generation < 0 && g.state == Empty {
		return g, nil
	}
	if r.Generation < 0 && r.Member == "" && r.Instance == "" {
		return nil, ErrUnknownMember // the group has members: only they may
	}
	m, err := g.check(r.Member, r.Instance)
	if err != nil {
		return nil, err
	}
	if r.Generation != g.generation {
		return nil, ErrIllegalGeneration
	}
	if g.state == CompletingRebalance {
		return nil, ErrRebalanceInProgress
	}
	c.alarms.set(&m.alarm, now+int64(m.sessionMs))
	return g, nil
}

// commitWrite is the records of a commit.
type commitWrite struct {
	group   *group
	ticket  Ticket
	offsets []Offset // one a record, in order
	result  CommitResult
}

func (w commitWrite) done(c *Core, _, base int64, err error, out []Effect) []Effect {
	g := w.group
	g.writes--
	for i, o := range w.offsets {
		k := topicPartition{o.Topic, o.Partition}
		if n := g.committing[k]; n.n > 1 {
			g.committing[k] = commits{n.n - 1, n.id}
		} else {
			delete(g.committing, k)
		}
		if err == nil {
			c.put(g, o.Topic, o.Partition, kept(o, base+int64(i)))
		}
	}
	if err != nil {
		c.dropIdle(g)
		return append(out, Answer{w.ticket, CommitResult{Err: err}})
	}
	g.persisted = true
	c.stats.Commits += uint64(len(w.offsets))
	return append(out, Answer{w.ticket, w.result})
}

// longerUTF16 tells if s has more than limit UTF-16 code units, which is how Kafka counts.
func longerUTF16(s string, limit int) bool {
	if len(s) <= limit {
		return false
	}
	n := 0
	for _, r := range s {
		if n++; r > 0xFFFF {
			n++
		}
	}
	return n > limit
}
