package meta

import (
	"context"
	"fmt"
	"maps"

	"github.com/varvelog/varve/manifest"
)

// getTopic reads a living topic's record linearizably, with the guard that it is unchanged.
func (s *Store) getTopic(ctx context.Context, name string) (topicRecord, topicID, Guard, error) {
	key := s.keys.topic(name)
	p, ok, err := s.kv.Get(ctx, key)
	if err == nil && !ok {
		err = ErrUnknownTopic
	}
	if err != nil {
		return topicRecord{}, topicID{}, Guard{}, err
	}
	rec, id, err := decodeTopic(p, name, topicID{}, false)
	return rec, id, Guard{Key: key, ModRev: p.ModRev}, err
}

// getDeleted is the same for a deleted topic.
func (s *Store) getDeleted(ctx context.Context, id topicID) (topicRecord, Guard, error) {
	key := s.keys.deleted(id)
	p, ok, err := s.kv.Get(ctx, key)
	if err == nil && !ok {
		err = ErrUnknownTopic
	}
	if err != nil {
		return topicRecord{}, Guard{}, err
	}
	rec, _, err := decodeTopic(p, "", id, true)
	return rec, Guard{Key: key, ModRev: p.ModRev}, err
}

// DeleteTopic moves the topic's record to the deleted ones, with the time. Its partitions stay, for UndeleteTopic and
// for the collection of what they archived; ForgetTopic ends that.
func (s *Store) DeleteTopic(ctx context.Context, name string) error {
	for range editMax {
		rec, id, guard, err := s.getTopic(ctx, name)
		if err != nil {
			return fmt.Errorf("delete topic %q: %w", name, err)
		}
		rec.change(s.wall.Ms())
		rec.DeletedMs = rec.ChangedMs
		ok, rev, err := s.commit(ctx, []Guard{guard}, []Op{
			{Key: s.keys.deleted(id), Value: encode(rec)},
			{Key: guard.Key, Delete: true},
		})
		if err != nil {
			return fmt.Errorf("delete topic %q: %w", name, err)
		}
		if ok {
			s.settle(ctx, rev)
			return nil
		}
	}
	return fmt.Errorf("delete topic %q: %w", name, ErrConflict)
}

// UndeleteTopic brings a deleted topic back under its name: ErrTopicExists if that is taken, ErrUnknownTopic if no
// deleted topic has the id. First its partitions get new leader epochs: no broker may take up an epoch whose local log
// it has dropped. They keep their leaders.
func (s *Store) UndeleteTopic(ctx context.Context, id manifest.TopicID) error {
	rev, err := s.undelete(ctx, id)
	if err != nil {
		return fmt.Errorf("undelete topic %s: %w", id, err)
	}
	s.settle(ctx, rev)
	return nil
}

func (s *Store) undelete(ctx context.Context, id topicID) (int64, error) {
	for range editMax {
		rec, guard, err := s.getDeleted(ctx, id)
		if err != nil {
			return 0, err
		}
		if rec.Collecting {
			return 0, fmt.Errorf("%w: its restore window has passed and its archive is being deleted", ErrUnknownTopic)
		}
		name := Guard{Key: s.keys.topic(rec.Name)}
		if _, taken, err := s.kv.Get(ctx, name.Key); err != nil || taken {
			if taken {
				err = fmt.Errorf("name %q: %w", rec.Name, ErrTopicExists)
			}
			return 0, err
		}
		if err := s.raiseEpochs(ctx, id, guard); err != nil {
			if isConflict(err) {
				continue
			}
			return 0, err
		}
		rec.DeletedMs = 0
		rec.change(s.wall.Ms())
		ok, rev, err := s.commit(ctx, []Guard{guard, name}, []Op{
			{Key: name.Key, Value: encode(rec)},
			{Key: guard.Key, Delete: true},
		})
		if err != nil || ok {
			return rev, err
		}
	}
	return 0, ErrConflict
}

// BeginCollect notes, before the first object of a deleted topic is released for deletion, that it cannot be undeleted any more: the one
// or the other happens. Done already is no error; ErrUnknownTopic if no deleted topic has the id.
func (s *Store) BeginCollect(ctx context.Context, id manifest.TopicID) error {
	for range editMax {
		rec, guard, err := s.getDeleted(ctx, id)
		if err != nil || rec.Collecting {
			return err
		}
		rec.Collecting = true
		ok, rev, err := s.commit(ctx, []Guard{guard}, []Op{{Key: guard.Key, Value: encode(rec)}})
		if err != nil {
			return fmt.Errorf("begin to collect topic %s: %w", id, err)
		}
		if ok {
			s.settle(ctx, rev)
			return nil
		}
	}
	return fmt.Errorf("begin to collect topic %s: %w", id, ErrConflict)
}

// raiseEpochs gives each partition of a topic the next leader epoch.
func (s *Store) raiseEpochs(ctx context.Context, id topicID, guard Guard) error {
	pairs, _, err := s.kv.Range(ctx, s.keys.partitions(id))
	if err != nil {
		return err
	}
	parts := make([]*Partition, 0, len(pairs))
	for _, p := range pairs {
		part, err := s.decodePair(p)
		if err != nil {
			return err
		}
		parts = append(parts, part)
	}
	return inBatches(ctx, parts, func(ctx context.Context, batch []*Partition) error {
		guards := []Guard{guard}
		for _, p := range batch {
			guards = append(guards, Guard{Key: s.keys.partition(p.ID), ModRev: p.ModRev})
			p.LeaderEpoch++
			p.PartitionEpoch++
			p.Undeleted = true
		}
		ok, _, err := s.commit(ctx, guards, s.putOps(batch))
		if err == nil && !ok {
			err = ErrConflict
		}
		return err
	})
}

// ForgetTopic removes all records of a deleted topic, for good. A topic that is not there is no error, one that lives
// is ErrConflict. After a crash in between Sweep goes on with it, or another call.
func (s *Store) ForgetTopic(ctx context.Context, id manifest.TopicID) error {
	rev, err := s.forget(ctx, id)
	if err != nil {
		return fmt.Errorf("forget topic %s: %w", id, err)
	}
	s.settle(ctx, rev)
	return nil
}

func (s *Store) forget(ctx context.Context, id topicID) (int64, error) {
	attempt, err := randomID(s.rand)
	if err != nil {
		return 0, err
	}
	key := s.keys.pending(id)
	rec := pendingRecord{V: recordMajor, Op: opForget, Attempt: attempt, StartedMs: s.wall.Ms()}
	deleted, there, err := s.kv.Get(ctx, s.keys.deleted(id))
	if err != nil {
		return 0, err
	}
	pending, begun, err := s.kv.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	if !there && !begun {
		if s.Image().TopicsByID[id] != nil {
			return 0, fmt.Errorf("it lives: %w", ErrConflict)
		}
		return 0, nil
	}
	guards := []Guard{{Key: key, ModRev: pending.ModRev}, {Key: s.keys.deleted(id), ModRev: deleted.ModRev}}
	ops := []Op{{Key: key, Value: encode(rec)}}
	if there {
		ops = append(ops, Op{Key: s.keys.deleted(id), Delete: true})
	}
	ok, rev, err := s.commit(ctx, guards, ops)
	if err == nil && !ok {
		err = ErrConflict
	}
	if err != nil {
		return 0, err
	}
	return rev, s.collect(ctx, id, Guard{Key: key, ModRev: rev})
}

// AlterTopic replaces a topic's dynamic configs as edit returns them, retrying edit on conflict. edit gets a copy that
// it may change and return; its error ends the call and is returned.
func (s *Store) AlterTopic(ctx context.Context, topic string, edit func(map[string]string) (map[string]string, error)) error {
	for range editMax {
		rec, _, guard, err := s.getTopic(ctx, topic)
		if err != nil {
			return fmt.Errorf("alter topic %q: %w", topic, err)
		}
		next, err := edit(cloneConfigs(rec.Configs))
		if err != nil {
			return err
		}
		if maps.Equal(next, rec.Configs) {
			return nil
		}
		rec.Configs = next
		rec.change(s.wall.Ms())
		ok, rev, err := s.commit(ctx, []Guard{guard}, []Op{{Key: guard.Key, Value: encode(rec)}})
		if err != nil {
			return fmt.Errorf("alter topic %q: %w", topic, err)
		}
		if ok {
			s.settle(ctx, rev)
			return nil
		}
	}
	return fmt.Errorf("alter topic %q: %w", topic, ErrConflict)
}

func cloneConfigs(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}

// SetTopicArchived records that version v of the topic's record is in the bucket. It never goes back. The topic may be
// a deleted one.
func (s *Store) SetTopicArchived(ctx context.Context, id manifest.TopicID, v uint64) error {
	for range editMax {
		rec, guard, err := s.findTopic(ctx, id)
		if err == nil && rec.Archived >= v {
			return nil
		}
		if err == nil && rec.Version < v {
			err = fmt.Errorf("%w: version %d, the record has %d", ErrInvalid, v, rec.Version)
		}
		if err != nil {
			return fmt.Errorf("set topic %s archived: %w", id, err)
		}
		rec.archivedAs(v)
		ok, rev, err := s.commit(ctx, []Guard{guard}, []Op{{Key: guard.Key, Value: encode(rec)}})
		if err != nil {
			return fmt.Errorf("set topic %s archived: %w", id, err)
		}
		if ok {
			s.settle(ctx, rev)
			return nil
		}
	}
	return fmt.Errorf("set topic %s archived: %w", id, ErrConflict)
}

// findTopic reads the record of a topic, living or deleted, by its id. The image only says where to look first.
func (s *Store) findTopic(ctx context.Context, id topicID) (topicRecord, Guard, error) {
	if t := s.Image().TopicsByID[id]; t != nil {
		rec, got, guard, err := s.getTopic(ctx, t.Name)
		if err == nil && got == id {
			return rec, guard, nil
		}
		if err != nil && !isUnknownTopic(err) {
			return topicRecord{}, Guard{}, err
		}
	}
	rec, guard, err := s.getDeleted(ctx, id)
	if err == nil || !isUnknownTopic(err) {
		return rec, guard, err
	}
	pairs, _, err := s.kv.Range(ctx, s.keys.area(areaTopic))
	if err != nil {
		return topicRecord{}, Guard{}, err
	}
	for _, p := range pairs {
		k, err := s.keys.parse(p.Key)
		if err != nil {
			continue
		}
		if rec, got, err := decodeTopic(p, k.name, topicID{}, false); err == nil && got == id {
			return rec, Guard{Key: p.Key, ModRev: p.ModRev}, nil
		}
	}
	return topicRecord{}, Guard{}, ErrUnknownTopic
}
