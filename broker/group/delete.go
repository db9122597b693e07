package group

// DeleteOffsetsRequest removes committed offsets of a group.
type DeleteOffsetsRequest struct {
	Group  string
	Topics []FetchTopic
}

// DeleteOffsetsResult is the answer: Err for all, else Errs, one a partition in the order of the request.
type DeleteOffsetsResult struct {
	Err  error
	Errs []error
}

// DeleteOffsets answers when the tombstones are committed. A group with members must be one whose subscriptions are known, and then
// only topics that nobody subscribes to are taken.
func (c *Core) DeleteOffsets(t Ticket, r DeleteOffsetsRequest, out []Effect) []Effect {
	g, err := c.checkDeleteOffsets(r.Group)
	if err != nil {
		return append(out, Answer{t, DeleteOffsetsResult{Err: err}})
	}
	w := deleteOffsetsWrite{group: g, ticket: t}
	var records []Record
	for _, topic := range r.Topics {
		used := g.subscribed(topic.Topic)
		for _, p := range topic.Partitions {
			k := topicPartition{topic.Topic, p}
			switch _, committing := g.committing[k]; {
			case used:
				w.result.Errs = append(w.result.Errs, ErrSubscribed)
				continue
			case g.offset(k.topic, p) != nil || committing || g.inTransaction(k):
				w.keys = append(w.keys, k)
				records = append(records, Record{Key: appendOffsetKey(nil, g.id, k.topic, p)})
			}
			w.result.Errs = append(w.result.Errs, nil)
		}
	}
	if len(records) == 0 {
		return append(out, Answer{t, w.result})
	}
	g.writes++
	return c.append(w, records, out)
}

func (c *Core) checkDeleteOffsets(id string) (*group, error) {
	if id == "" {
		return nil, ErrInvalidGroup
	}
	g := c.get(id)
	switch {
	case g == nil:
		return nil, ErrGroupNotFound
	case g.deleting:
		return nil, ErrNotAvailable
	case g.state != Empty && g.protocolType != consumerType:
		return nil, ErrNonEmptyGroup
	}
	return g, nil
}

type deleteOffsetsWrite struct {
	group  *group
	ticket Ticket
	keys   []topicPartition
	result DeleteOffsetsResult
}

func (w deleteOffsetsWrite) done(c *Core, _, _ int64, err error, out []Effect) []Effect {
	w.group.writes--
	if err != nil {
		return append(out, Answer{w.ticket, DeleteOffsetsResult{Err: err}})
	}
	c.bury(w.group, w.keys, false)
	return append(out, Answer{w.ticket, w.result})
}

// DeleteGroupsResult is the answer: Errs as the ids in the request.
type DeleteGroupsResult struct{ Errs []error }

// DeleteGroups removes groups without members, with their offsets, and answers when that is committed.
func (c *Core) DeleteGroups(t Ticket, ids []string, out []Effect) []Effect {
	w := deleteGroupsWrite{ticket: t, result: DeleteGroupsResult{Errs: make([]error, len(ids))}}
	var records []Record
	for i, id := range ids {
		g, err := c.checkDeleteGroup(id)
		if err != nil {
			w.result.Errs[i] = err
			continue
		}
		keys := g.allKeys()
		for _, k := range keys {
			records = append(records, Record{Key: appendOffsetKey(nil, g.id, k.topic, k.partition)})
		}
		records = append(records, Record{Key: appendGroupKey(nil, g.id)})
		g.deleting = true
		g.writes++
		for id := range g.pending {
			c.forgetPending(g, id)
		}
		w.groups = append(w.groups, deletedGroup{g, keys, i})
	}
	if len(records) == 0 {
		return append(out, Answer{t, w.result})
	}
	return c.append(w, records, out)
}

func (c *Core) checkDeleteGroup(id string) (*group, error) {
	g := c.get(id)
	switch {
	case g == nil:
		return nil, ErrGroupNotFound
	case g.deleting:
		return nil, ErrNotAvailable
	case g.state != Empty:
		return nil, ErrNonEmptyGroup
	}
	return g, nil
}

// allKeys lists the partitions that the group has offsets for, committed, on their way to the log, or in a transaction.
func (g *group) allKeys() []topicPartition {
	set := map[topicPartition]struct{}{}
	for topic, ps := range g.offsets {
		for p := range ps {
			set[topicPartition{topic, p}] = struct{}{}
		}
	}
	for k := range g.committing {
		set[k] = struct{}{}
	}
	for _, s := range g.staged {
		set[s.at] = struct{}{}
	}
	return sorted(set)
}

type deletedGroup struct {
	group *group
	keys  []topicPartition
	index int // in the request
}

type deleteGroupsWrite struct {
	ticket Ticket
	groups []deletedGroup
	result DeleteGroupsResult
}

func (w deleteGroupsWrite) done(c *Core, _, _ int64, err error, out []Effect) []Effect {
	for _, d := range w.groups {
		d.group.writes--
		d.group.deleting = false
		if err != nil {
			w.result.Errs[d.index] = err
			continue
		}
		c.bury(d.group, d.keys, true)
	}
	return append(out, Answer{w.ticket, w.result})
}
