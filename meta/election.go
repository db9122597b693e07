package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/manifest"
)

// Edit is what a partition is to become, decided on the record Base. The archive pointer stays as it is.
type Edit struct {
	Base             *Partition
	Replicas, ISR    []int32
	Adding, Removing []int32
	Leader           int32 // -1: none
	Elect            bool  // the next leader epoch begins, also where the leader stays
	// Registration, if not 0, is the leader's broker epoch: a broker that has restarted since is not elected.
	Registration int64
	// Online are replicas whose log is taken for sound again: their brokers have begun anew. Who is elected is, too.
	Online []int32
	// Unclean says that the leader was not in sync: the record is Recovering until the leader has compared its log with the archive.
	Unclean bool
}

// Election makes Leader (-1: none) the leader of a partition, with the ISR as given.
type Election struct {
	ID     manifest.PartitionID
	Leader int32
	ISR    []int32
}

// Elect makes broker the leader (epoch + 1, ISR as given) of many partitions, in batched guarded transactions. Each
// decision rests on the record in the Image at the call: a partition whose leader, ISR or epochs have changed since is
// left out, and the error is ErrConflict (after all others are done); its archive pointer may have moved. A partition
// unknown to the image is ErrUnknownTopic. While this Store is the controller, each transaction is guarded by that.
func (s *Store) Elect(ctx context.Context, e []Election) error {
	img := s.Image()
	todo := make([]Edit, 0, len(e))
	var missed error
	for _, x := range e {
		p := img.Partition(x.ID)
		if p == nil {
			missed = fmt.Errorf("elect %s-%d: %w", x.ID.Topic, x.ID.Partition, ErrUnknownTopic)
			continue
		}
		todo = append(todo, Edit{
			Base: p, Replicas: p.Replicas, ISR: x.ISR, Adding: p.Adding, Removing: p.Removing, Leader: x.Leader, Elect: true,
		})
	}
	return errors.Join(s.EditPartitions(ctx, s.control.Load(), todo), missed)
}

// Partition finds a partition of a living topic; nil if there is none.
func (i *Image) Partition(id manifest.PartitionID) *Partition {
	t := i.TopicsByID[id.Topic]
	if t == nil || id.Partition < 0 || int(id.Partition) >= len(t.Partitions) {
		return nil
	}
	return t.Partitions[id.Partition]
}

// EditPartitions changes many partitions, in batched guarded transactions; the partition epoch of each rises. A
// partition of which more than the archive pointer has changed since Base, or whose leader has registered anew, is left
// out, and the error is ErrConflict after all others are done. With a term (Store.Term) each transaction is guarded by
// it: ErrNotController. The own image shows what was done when it returns.
func (s *Store) EditPartitions(ctx context.Context, term int64, edits []Edit) error {
	var left, rev atomic.Int64
	err := inChunks(ctx, editBatches(edits), func(ctx context.Context, batch []Edit) error {
		n, at, err := s.edit(ctx, term, batch)
		left.Add(int64(n))
		for old := rev.Load(); at > old && !rev.CompareAndSwap(old, at); old = rev.Load() {
		}
		return err
	})
	if at := rev.Load(); at > 0 {
		s.settle(ctx, at)
	}
	if err == nil && left.Load() > 0 {
		err = fmt.Errorf("%d partitions have changed: %w", left.Load(), ErrConflict)
	}
	if err != nil {
		return fmt.Errorf("edit partitions: %w", err)
	}
	return nil
}

// editBatches cuts edits into what fits one transaction: a guard a partition, one a leader, and those of term and fence.
func editBatches(edits []Edit) [][]Edit {
	var out [][]Edit
	leaders := map[int32]bool{}
	from := 0
	for i, e := range edits {
		leaders[e.Leader] = true
		if n := i - from + len(leaders) + 1; n > batchMax {
			out = append(out, edits[from:i])
			clear(leaders)
			leaders[e.Leader] = true
			from = i
		}
	}
	if from < len(edits) {
		out = append(out, edits[from:])
	}
	return out
}

// inChunks calls f with each chunk, putWorkers at a time, until one fails; it returns the first error when all have ended.
func inChunks[T any](ctx context.Context, chunks [][]T, f func(context.Context, []T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(putWorkers, len(chunks)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(chunks) {
					return
				}
				if err := f(ctx, chunks[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// edit does one batch; left counts those that cannot be done any more. rev is that of the write, 0 if there was none.
func (s *Store) edit(ctx context.Context, term int64, batch []Edit) (left int, rev int64, err error) {
	for range editMax {
		if len(batch) == 0 {
			return left, 0, nil
		}
		guards, parts := s.prepare(term, batch)
		ok, rev, err := s.commit(ctx, guards, s.putOps(parts))
		if err != nil || ok {
			return left, rev, err
		}
		if err := s.checkTerm(ctx, term); err != nil {
			return left, 0, err
		}
		var out int
		if batch, out, err = s.refresh(ctx, batch); err != nil {
			return left, 0, err
		}
		left += out
	}
	return left + len(batch), 0, nil
}

// prepare makes the new records, and what they are guarded by.
func (s *Store) prepare(term int64, batch []Edit) ([]Guard, []*Partition) {
	var guards []Guard
	if term != 0 {
		guards = append(guards, Guard{Key: s.keys.controller(), ModRev: term})
	}
	parts := make([]*Partition, len(batch))
	registered := map[int32]bool{}
	for i, x := range batch {
		p := x.Base.clone()
		p.Leader = x.Leader
		p.Replicas, p.ISR = slices.Clone(x.Replicas), slices.Clone(x.ISR)
		p.Adding, p.Removing = slices.Clone(x.Adding), slices.Clone(x.Removing)
		if x.Elect {
			p.LeaderEpoch++
		}
		p.Recovering = p.Recovering || x.Unclean
		p.Offline = slices.DeleteFunc(p.Offline, func(id int32) bool {
			return x.Elect && id == x.Leader || slices.Contains(x.Online, id) || !slices.Contains(x.Replicas, id)
		})
		p.PartitionEpoch++
		parts[i] = p
		guards = append(guards, Guard{Key: s.keys.partition(p.ID), ModRev: x.Base.ModRev})
		if x.Registration != 0 && !registered[x.Leader] {
			registered[x.Leader] = true
			guards = append(guards, Guard{Key: s.keys.broker(x.Leader), ModRev: x.Registration})
		}
	}
	return guards, parts
}

func (s *Store) checkTerm(ctx context.Context, term int64) error {
	if term == 0 {
		return nil
	}
	kv, _, err := s.kv.Get(ctx, s.keys.controller())
	if err == nil && kv.ModRev != term {
		err = ErrNotController
	}
	return err
}

// refresh reads the records of a batch again, and drops those of which more than the pointer has changed, and those whose
// leader has registered anew.
func (s *Store) refresh(ctx context.Context, batch []Edit) (keep []Edit, left int, err error) {
	registrations := map[int32]int64{}
	for _, x := range batch {
		p, err := s.GetPartition(ctx, x.Base.ID)
		switch {
		case isUnknownTopic(err):
			left++
			continue
		case err != nil:
			return nil, 0, err
		}
		if x.Registration != 0 {
			if _, read := registrations[x.Leader]; !read {
				kv, _, err := s.kv.Get(ctx, s.keys.broker(x.Leader))
				if err != nil {
					return nil, 0, err
				}
				registrations[x.Leader] = kv.ModRev
			}
		}
		if !samePlacement(p, x.Base) || x.Registration != 0 && x.Registration != registrations[x.Leader] {
			left++
			continue
		}
		x.Base = p
		keep = append(keep, x)
	}
	return keep, left, nil
}

// samePlacement says that no more than the archive pointer differs.
func samePlacement(a, b *Partition) bool {
	return a.Leader == b.Leader && a.LeaderEpoch == b.LeaderEpoch && a.PartitionEpoch == b.PartitionEpoch &&
		slices.Equal(a.ISR, b.ISR) && slices.Equal(a.Replicas, b.Replicas) &&
		slices.Equal(a.Adding, b.Adding) && slices.Equal(a.Removing, b.Removing)
}
