package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/varvelog/varve/manifest"
)

func isUnknownTopic(err error) bool { return errors.Is(err, ErrUnknownTopic) }

func (s *Store) decodePair(kv Pair) (*Partition, error) {
	k, err := s.keys.parse(kv.Key)
	if err != nil {
		return nil, &CorruptError{Key: kv.Key, Err: err}
	}
	return decodePartition(manifest.PartitionID{Topic: k.topic, Partition: k.part}, kv)
}

// GetPartition reads a partition record linearizably; ErrUnknownTopic if there is none. Those of deleted topics are
// there until they are collected.
func (s *Store) GetPartition(ctx context.Context, id manifest.PartitionID) (*Partition, error) {
	kv, ok, err := s.kv.Get(ctx, s.keys.partition(id))
	if err == nil && !ok {
		err = ErrUnknownTopic
	}
	if err != nil {
		return nil, fmt.Errorf("get partition %s-%d: %w", id.Topic, id.Partition, err)
	}
	return s.decodePair(kv)
}

// BrokerEpoch is a registration that a change relies on.
type BrokerEpoch struct {
	ID    int32
	Epoch int64
}

// UpdatePartition replaces a partition record guarded by its ModRev, and returns it with the new one. p is not changed.
// ErrConflict: it has changed; ErrIncarnation; ErrUnavailable: the outcome is unknown, read again. There is one try
// only, and the caller sets the epochs. With registrations given it is refused, too, if one of them is not the
// present one: a follower that joins the ISR must not have restarted since it was seen (PROTOCOLS 7.2).
func (s *Store) UpdatePartition(ctx context.Context, p *Partition, alive ...BrokerEpoch) (*Partition, error) {
	key := s.keys.partition(p.ID)
	if p.ModRev == 0 {
		return nil, fmt.Errorf("update partition %s-%d: %w: no revision", p.ID.Topic, p.ID.Partition, ErrInvalid)
	}
	guards := []Guard{s.fence, {Key: key, ModRev: p.ModRev}}
	for _, b := range alive {
		guards = append(guards, Guard{Key: s.keys.broker(b.ID), ModRev: b.Epoch})
	}
	ok, rev, err := s.kv.Txn(ctx, guards, []Op{{Key: key, Value: encodePartition(p)}})
	if err == nil && !ok {
		if err = s.checkFence(ctx); err == nil {
			err = ErrConflict
		}
	}
	if err != nil {
		return nil, fmt.Errorf("update partition %s-%d: %w", p.ID.Topic, p.ID.Partition, err)
	}
	c := p.clone()
	c.ModRev = rev
	return c, nil
}

func (p *Partition) clone() *Partition {
	c := *p
	c.Replicas, c.ISR = slices.Clone(p.Replicas), slices.Clone(p.ISR)
	c.Pointer.Pins = slices.Clone(p.Pointer.Pins)
	return &c
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
	todo := make([]electing, 0, len(e))
	var missed error
	for _, x := range e {
		t := img.TopicsByID[x.ID.Topic]
		if t == nil || int(x.ID.Partition) >= len(t.Partitions) || x.ID.Partition < 0 {
			missed = fmt.Errorf("elect %s-%d: %w", x.ID.Topic, x.ID.Partition, ErrUnknownTopic)
			continue
		}
		todo = append(todo, electing{x, t.Partitions[x.ID.Partition]})
	}
	var left atomic.Int64
	err := inBatches(ctx, todo, func(ctx context.Context, batch []electing) error {
		n, err := s.elect(ctx, batch)
		left.Add(int64(n))
		return err
	})
	if err == nil && left.Load() > 0 {
		err = fmt.Errorf("%d partitions have changed: %w", left.Load(), ErrConflict)
	}
	if err != nil {
		err = fmt.Errorf("elect: %w", err)
	}
	return errors.Join(err, missed)
}

type electing struct {
	Election
	base *Partition
}

// elect does one batch; left counts those whose records have changed.
func (s *Store) elect(ctx context.Context, batch []electing) (left int, err error) {
	for range editMax {
		if len(batch) == 0 {
			return left, nil
		}
		var guards []Guard
		if rev := s.control.Load(); rev != 0 {
			guards = append(guards, Guard{Key: s.keys.controller(), ModRev: rev})
		}
		parts := make([]*Partition, len(batch))
		for i, x := range batch {
			p := x.base.clone()
			p.Leader, p.ISR = x.Leader, slices.Clone(x.ISR)
			p.LeaderEpoch++
			p.PartitionEpoch++
			parts[i] = p
			guards = append(guards, Guard{Key: s.keys.partition(p.ID), ModRev: x.base.ModRev})
		}
		ok, _, err := s.commit(ctx, guards, s.putOps(parts))
		if err != nil || ok {
			return left, err
		}
		if rev := s.control.Load(); rev != 0 {
			if kv, _, err := s.kv.Get(ctx, s.keys.controller()); err != nil || kv.ModRev != rev {
				return left, errors.Join(err, ErrNotController)
			}
		}
		var out int
		if batch, out, err = s.refresh(ctx, batch); err != nil {
			return left, err
		}
		left += out
	}
	return left + len(batch), nil
}

// refresh reads the records of a batch again, and drops those of which more than the pointer has changed.
func (s *Store) refresh(ctx context.Context, batch []electing) (keep []electing, left int, err error) {
	for _, x := range batch {
		p, err := s.GetPartition(ctx, x.ID)
		switch {
		case isUnknownTopic(err):
			left++
			continue
		case err != nil:
			return nil, 0, err
		}
		same := p.Leader == x.base.Leader && p.LeaderEpoch == x.base.LeaderEpoch &&
			p.PartitionEpoch == x.base.PartitionEpoch && slices.Equal(p.ISR, x.base.ISR)
		if !same {
			left++
			continue
		}
		x.base = p
		keep = append(keep, x)
	}
	return keep, left, nil
}
