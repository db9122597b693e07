package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	var guards []Guard
	for _, b := range alive {
		guards = append(guards, Guard{Key: s.keys.broker(b.ID), ModRev: b.Epoch})
	}
	return s.updatePartition(ctx, p, guards)
}

// UpdateDeletedPartition is UpdatePartition for a partition of a deleted topic: ErrConflict, too, if the topic is not deleted any more.
// The partition's own guard does not tell, since UndeleteTopic changes the partitions first and the topic then.
func (s *Store) UpdateDeletedPartition(ctx context.Context, p *Partition) (*Partition, error) {
	return s.updateDeleted(ctx, p, false)
}

// ElectDeletedPartition is UpdateDeletedPartition for a record with a new leader epoch, in which the caller is the only one to write. An
// undeletion that is under way may have given the partition its epoch already, and would end with the one after it as the new leader's: so
// the topic's record is written again as it is, and the undeletion, which is guarded by that, raises the epochs once more.
func (s *Store) ElectDeletedPartition(ctx context.Context, p *Partition) (*Partition, error) {
	return s.updateDeleted(ctx, p, p.Undeleted)
}

func (s *Store) updateDeleted(ctx context.Context, p *Partition, rewrite bool) (*Partition, error) {
	key := s.keys.deleted(p.ID.Topic)
	rec, ok, err := s.kv.Get(ctx, key)
	if err == nil && !ok {
		err = fmt.Errorf("its topic is not deleted: %w", ErrConflict)
	}
	if err != nil {
		return nil, fmt.Errorf("update partition %s-%d: %w", p.ID.Topic, p.ID.Partition, err)
	}
	var also []Op
	if rewrite {
		also = append(also, Op{Key: key, Value: rec.Value})
	}
	return s.updatePartition(ctx, p, []Guard{{Key: key, ModRev: rec.ModRev}}, also...)
}

func (s *Store) updatePartition(ctx context.Context, p *Partition, also []Guard, more ...Op) (*Partition, error) {
	key := s.keys.partition(p.ID)
	if p.ModRev == 0 {
		return nil, fmt.Errorf("update partition %s-%d: %w: no revision", p.ID.Topic, p.ID.Partition, ErrInvalid)
	}
	guards := append([]Guard{s.fence, {Key: key, ModRev: p.ModRev}}, also...)
	ok, rev, err := s.kv.Txn(ctx, guards, append([]Op{{Key: key, Value: encodePartition(p)}}, more...))
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
	c.Adding, c.Removing = slices.Clone(p.Adding), slices.Clone(p.Removing)
	c.Offline = slices.Clone(p.Offline)
	c.Pointer.Pins = slices.Clone(p.Pointer.Pins)
	return &c
}
