package group

import (
	"context"
	"slices"
	"sync"

	"github.com/varvelog/varve/manifest"
)

// call asks the group's shard and waits for the answer, until ctx ends: then what was asked goes on, and its answer is not heard.
func call[R any](ctx context.Context, c *Coordinator, group string, f func(core *Core, now int64, t Ticket, out []Effect) []Effect) (R, error) {
	var none R
	s, err := c.shardOf(group)
	if err != nil {
		return none, err
	}
	t, ch, err := s.ask(f)
	if err != nil {
		return none, err
	}
	select {
	case a := <-ch:
		if err, ok := a.(error); ok {
			return none, err
		}
		return a.(R), nil
	case <-ctx.Done():
		s.forget(t)
		return none, ErrNotAvailable
	}
}

// Join waits until the group's next generation begins, as long as rebalances take.
func (c *Coordinator) Join(ctx context.Context, r JoinRequest) JoinResult {
	res, err := call[JoinResult](ctx, c, r.Group, func(core *Core, now int64, t Ticket, out []Effect) []Effect {
		return core.Join(now, t, r, out)
	})
	if err != nil {
		return JoinResult{Err: err, Member: r.Member, Generation: -1}
	}
	return res
}

// Sync waits until the leader has brought the assignments.
func (c *Coordinator) Sync(ctx context.Context, r SyncRequest) SyncResult {
	res, err := call[SyncResult](ctx, c, r.Group, func(core *Core, now int64, t Ticket, out []Effect) []Effect {
		return core.Sync(now, t, r, out)
	})
	if err != nil {
		return SyncResult{Err: err}
	}
	return res
}

// Heartbeat prolongs a member's session.
func (c *Coordinator) Heartbeat(r HeartbeatRequest) error {
	s, err := c.shardOf(r.Group)
	if err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.mu.Unlock()
	return s.core.Heartbeat(s.now(), r)
}

// Leave removes members.
func (c *Coordinator) Leave(r LeaveRequest) LeaveResult {
	var res LeaveResult
	s, err := c.shardOf(r.Group)
	if err == nil {
		err = s.step(func(core *Core, now int64, out []Effect) []Effect {
			res, out = core.Leave(now, r, out)
			return out
		})
	}
	if err != nil {
		return LeaveResult{Err: err}
	}
	return res
}

// Commit stores offsets and waits until they are committed, at most Options.CommitTimeout.
func (c *Coordinator) Commit(ctx context.Context, r CommitRequest) CommitResult {
	ctx, cancel := context.WithTimeout(ctx, c.o.CommitTimeout)
	defer cancel()
	res, err := call[CommitResult](ctx, c, r.Group, func(core *Core, now int64, t Ticket, out []Effect) []Effect {
		return core.Commit(now, t, r, out)
	})
	if err != nil {
		return CommitResult{Err: err}
	}
	return res
}

// Fetch gives committed offsets; see Core.Fetch. Offsets of topics that have just been deleted are not given.
func (c *Coordinator) Fetch(group string, topics []FetchTopic, stable bool) ([]Fetched, error) {
	s, err := c.shardOf(group)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	gone := slices.Clone(c.dropping)
	c.mu.Unlock()
	if err := s.enter(); err != nil {
		return nil, err
	}
	fs := s.core.Fetch(group, topics, stable)
	s.mu.Unlock()
	return c.hide(fs, gone, topics == nil), nil
}

// hide blanks the offsets of deleted topics, or leaves them out: their tombstones may not have been asked for yet.
func (c *Coordinator) hide(fs []Fetched, gone []DeletedTopic, leaveOut bool) []Fetched {
	deleted := func(f Fetched) bool {
		return f.TopicID != manifest.TopicID{} && c.o.Deleted(f.TopicID) ||
			slices.ContainsFunc(gone, func(d DeletedTopic) bool { return d.Name == f.Topic && d.of(f.TopicID) })
	}
	if leaveOut {
		return slices.DeleteFunc(fs, deleted)
	}
	for i, f := range fs {
		if deleted(f) {
			fs[i] = Fetched{Offset: Offset{Topic: f.Topic, Partition: f.Partition, Offset: -1, LeaderEpoch: -1, ExpireMs: -1}}
		}
	}
	return fs
}

// DeleteOffsets removes committed offsets and waits until that is committed, at most Options.CommitTimeout.
func (c *Coordinator) DeleteOffsets(ctx context.Context, r DeleteOffsetsRequest) DeleteOffsetsResult {
	ctx, cancel := context.WithTimeout(ctx, c.o.CommitTimeout)
	defer cancel()
	res, err := call[DeleteOffsetsResult](ctx, c, r.Group, func(core *Core, _ int64, t Ticket, out []Effect) []Effect {
		return core.DeleteOffsets(t, r, out)
	})
	if err != nil {
		return DeleteOffsetsResult{Err: err}
	}
	return res
}

// DeleteGroups removes groups, of any partitions, and waits until that is committed, at most Options.CommitTimeout. The errors are as ids.
func (c *Coordinator) DeleteGroups(ctx context.Context, ids []string) []error {
	ctx, cancel := context.WithTimeout(ctx, c.o.CommitTimeout)
	defer cancel()
	byPartition := map[int32][]int{}
	for i, id := range ids {
		p := c.PartitionFor(id)
		byPartition[p] = append(byPartition[p], i)
	}
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for _, indexes := range byPartition {
		all.Go(func() { c.deleteGroups(ctx, ids, indexes, errs) })
	}
	all.Wait()
	return errs
}

// deleteGroups removes those of one partition and sets their errors.
func (c *Coordinator) deleteGroups(ctx context.Context, ids []string, indexes []int, errs []error) {
	mine := make([]string, len(indexes))
	for i, n := range indexes {
		mine[i] = ids[n]
	}
	res, err := call[DeleteGroupsResult](ctx, c, mine[0], func(core *Core, _ int64, t Ticket, out []Effect) []Effect {
		return core.DeleteGroups(t, mine, out)
	})
	for i, n := range indexes {
		if errs[n] = err; err == nil {
			errs[n] = res.Errs[i]
		}
	}
}

// List gives the groups of all partitions that are led: ErrLoading if one of them is not loaded yet.
func (c *Coordinator) List() ([]Listed, error) {
	var ls []Listed
	var failed error
	c.each(func(s *shard) {
		switch err := s.enter(); err {
		case nil:
			ls = append(ls, s.core.List()...)
			s.mu.Unlock()
		case ErrLoading:
			failed = err
		}
	})
	return ls, failed
}

// Describe tells of one group: ErrGroupNotFound if there is none.
func (c *Coordinator) Describe(group string) (Described, error) {
	s, err := c.shardOf(group)
	if err != nil {
		return Described{}, err
	}
	if err := s.enter(); err != nil {
		return Described{}, err
	}
	defer s.mu.Unlock()
	d, ok := s.core.Describe(group)
	if !ok {
		return d, ErrGroupNotFound
	}
	return d, nil
}
