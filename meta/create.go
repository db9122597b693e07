package meta

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/varvelog/varve/manifest"
)

// TopicSpec is a topic to create: Assignment[p] = replicas of partition p.
type TopicSpec struct {
	Name       string
	ID         manifest.TopicID // zero: a new random one
	Internal   bool
	Configs    map[string]string
	Assignment [][]int32
	// Pointers, where a restore makes the topic: the archive pointer of each partition, and the first leader epoch.
	Pointers    []Pointer
	FirstEpochs []int32
}

func (t *TopicSpec) check() error {
	if err := checkName("topic", t.Name); err != nil {
		return err
	}
	n := len(t.Assignment)
	switch {
	case n == 0 || n > maxPartitions:
		return fmt.Errorf("%w: topic %q with %d partitions", ErrInvalid, t.Name, n)
	case t.Pointers != nil && len(t.Pointers) != n, t.FirstEpochs != nil && len(t.FirstEpochs) != n:
		return fmt.Errorf("%w: topic %q: %d partitions, %d pointers, %d first epochs", ErrInvalid, t.Name, n, len(t.Pointers), len(t.FirstEpochs))
	}
	return checkAssignment(t.Name, t.Assignment)
}

func checkAssignment(topic string, a [][]int32) error {
	for i, r := range a {
		if len(r) == 0 {
			return fmt.Errorf("%w: topic %q: partition %d of the assignment has no replicas", ErrInvalid, topic, i)
		}
		for j, id := range r {
			if id < 0 || slices.Contains(r[:j], id) {
				return fmt.Errorf("%w: topic %q: replicas %v", ErrInvalid, topic, r)
			}
		}
	}
	return nil
}

// batchMax is the ops of one transaction of a chain: room is left for the fence and the guards.
const batchMax = MaxOps - 4

// CreateTopic makes a topic, visible with all partitions at once. ErrTopicExists if the name is taken, or the id.
//
//  1. What fits is one transaction. Else pending/<id> is put, if neither it nor partition 0 is there. A pending
//     record of a crashed attempt is replaced, which fences that attempt.
//  2. The other partitions, in batches, each guarded by the pending record. Leftovers are overwritten.
//  3. The topic record, if the name is free and pending is still ours, which it deletes.
//
// A crash before 3 leaves records that no image shows, and Sweep collects.
func (s *Store) CreateTopic(ctx context.Context, t TopicSpec) (*Topic, error) {
	topic, rev, err := s.createTopic(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("create topic %q: %w", t.Name, err)
	}
	s.settle(ctx, rev)
	return topic, nil
}

func (s *Store) createTopic(ctx context.Context, t TopicSpec) (*Topic, int64, error) {
	if err := t.check(); err != nil {
		return nil, 0, err
	}
	if t.ID == (topicID{}) {
		id, err := s.randomTopicID()
		if err != nil {
			return nil, 0, err
		}
		t.ID = id
	}
	if _, taken, err := s.kv.Get(ctx, s.keys.topic(t.Name)); err != nil || taken {
		if taken {
			err = ErrTopicExists
		}
		return nil, 0, err
	}
	now := s.wall.Ms()
	rec := topicRecord{
		V: recordMajor, Name: t.Name, ID: t.ID.String(), Internal: t.Internal, Configs: t.Configs,
		CreatedMs: now, ChangedMs: now, BehindMs: now, Version: 1, Partitions: int32(len(t.Assignment)),
	}
	parts := s.newPartitions(t.ID, 0, t.Assignment)
	for i, p := range parts {
		if t.Pointers != nil {
			p.Pointer = t.Pointers[i]
		}
		if t.FirstEpochs != nil {
			p.LeaderEpoch = t.FirstEpochs[i]
		}
	}
	topicOp := Op{Key: s.keys.topic(t.Name), Value: encode(rec)}
	rev, err := s.createParts(ctx, t, parts, topicOp)
	if err != nil {
		return nil, 0, err
	}
	out := rec.topic(t.ID)
	out.Configs = maps.Clone(t.Configs)
	out.Partitions = parts
	return out, rev, nil
}

func (s *Store) createParts(ctx context.Context, t TopicSpec, parts []*Partition, topicOp Op) (int64, error) {
	name := Guard{Key: topicOp.Key}
	pending := Op{Key: s.keys.pending(t.ID)}
	unused := []Guard{{Key: pending.Key}, {Key: s.keys.partition(manifest.PartitionID{Topic: t.ID})}}
	if len(parts) < batchMax {
		// topicOp first: it is the proof if the outcome is unknown. The order within a transaction is nothing to images.
		ok, rev, err := s.commit(ctx, append(unused, name), append([]Op{topicOp}, s.putOps(parts)...))
		if err == nil && ok {
			stamp(parts, rev)
			return rev, nil
		}
		if err != nil {
			return 0, err
		}
	}
	guard, err := s.begin(ctx, t.ID, opCreate, t.Name, unused)
	if err != nil {
		return 0, err
	}
	if err := s.putParts(ctx, []Guard{guard}, parts); err != nil {
		return 0, err
	}
	ok, rev, err := s.commit(ctx, []Guard{name, guard}, []Op{topicOp, {Key: pending.Key, Delete: true}})
	if err != nil {
		return 0, err
	}
	if ok {
		return rev, nil
	}
	// The name was taken meanwhile, or another attempt or a sweep took the id over: then the guard fails here too.
	if err := s.collect(context.WithoutCancel(ctx), t.ID, guard); err != nil {
		s.log.Debug("topic left unfinished", "topic", t.Name, "err", err)
	}
	if _, taken, err := s.kv.Get(ctx, topicOp.Key); err != nil || taken {
		if taken {
			err = ErrTopicExists
		}
		return 0, err
	}
	return 0, ErrConflict
}

func (s *Store) randomTopicID() (topicID, error) {
	var id topicID
	for {
		if _, err := io.ReadFull(s.rand, id[:]); err != nil {
			return id, fmt.Errorf("make random topic id: %w", err)
		}
		// Kafka reserves ids of small value, and a leading '-' looks like a flag.
		if id[0] != 0 && id.String()[0] != '-' {
			return id, nil
		}
	}
}

// newPartitions are led by their first replica that is registered; the registered ones are the ISR, since an empty
// partition is in sync everywhere. If none is, all count: whoever comes first gets elected.
func (s *Store) newPartitions(id topicID, first int, assignment [][]int32) []*Partition {
	img := s.Image()
	out := make([]*Partition, len(assignment))
	for i, replicas := range assignment {
		var isr []int32
		for _, r := range replicas {
			if img.Eligible(r) {
				isr = append(isr, r)
			}
		}
		if len(isr) == 0 {
			isr = slices.Clone(replicas)
		}
		out[i] = &Partition{
			ID:       manifest.PartitionID{Topic: id, Partition: int32(first + i)},
			Replicas: slices.Clone(replicas), ISR: isr, Leader: isr[0],
		}
	}
	return out
}

func (s *Store) putOps(parts []*Partition) []Op {
	ops := make([]Op, len(parts))
	for i, p := range parts {
		ops[i] = Op{Key: s.keys.partition(p.ID), Value: encodePartition(p)}
	}
	return ops
}

func stamp(parts []*Partition, rev int64) {
	for _, p := range parts {
		p.ModRev = rev
	}
}

// putWorkers batches are under way at once: etcd syncs them together.
const putWorkers = 4

// putParts writes partition records in batches under the guards, which must keep others from writing them.
func (s *Store) putParts(ctx context.Context, guards []Guard, parts []*Partition) error {
	return inBatches(ctx, parts, func(ctx context.Context, batch []*Partition) error {
		ok, rev, err := s.commit(ctx, guards, s.putOps(batch))
		if err == nil && !ok {
			err = ErrConflict
		}
		if err == nil {
			stamp(batch, rev)
		}
		return err
	})
}

// CreatePartitions adds partitions to a topic: add[i] are the replicas of the i-th new one. They become visible at
// once, with the topic's record, whose revision guards the batches: what a crash leaves above the topic's count is
// overwritten by the next attempt, and removed with the topic.
func (s *Store) CreatePartitions(ctx context.Context, topic string, add [][]int32) error {
	err := s.createPartitions(ctx, topic, add)
	if err != nil {
		return fmt.Errorf("create partitions of %q: %w", topic, err)
	}
	return nil
}

func (s *Store) createPartitions(ctx context.Context, topic string, add [][]int32) error {
	if err := checkAssignment(topic, add); err != nil || len(add) == 0 {
		return err
	}
	want := int32(0)
	for range editMax {
		rec, id, guard, err := s.getTopic(ctx, topic)
		if err != nil {
			return err
		}
		if want == 0 {
			want = rec.Partitions
		}
		if rec.Partitions != want || int(want)+len(add) > maxPartitions {
			return fmt.Errorf("%w: it has %d partitions", ErrConflict, rec.Partitions)
		}
		parts := s.newPartitions(id, int(want), add)
		if err := s.putParts(ctx, []Guard{guard}, parts); err != nil {
			if isConflict(err) {
				continue
			}
			return err
		}
		rec.Partitions += int32(len(add))
		rec.change(s.wall.Ms())
		ok, rev, err := s.commit(ctx, []Guard{guard}, []Op{{Key: guard.Key, Value: encode(rec)}})
		if err != nil {
			return err
		}
		if ok {
			s.settle(ctx, rev)
			return nil
		}
	}
	return ErrConflict
}
