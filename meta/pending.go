package meta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	opCreate = "create"
	opForget = "forget"
)

// begin puts a pending record for a topic, whose revision then guards each step of the chain: whoever replaces or
// deletes the record stops the chain. unused must hold if no record is there. A record of a creation is replaced;
// one of a removal is ErrConflict until that is done.
func (s *Store) begin(ctx context.Context, id topicID, op, name string, unused []Guard) (Guard, error) {
	attempt, err := randomID(s.rand)
	if err != nil {
		return Guard{}, err
	}
	key := s.keys.pending(id)
	rec := pendingRecord{V: recordMajor, Op: op, Name: name, Attempt: attempt, StartedMs: s.wall.Ms()}
	guards := unused
	p, there, err := s.kv.Get(ctx, key)
	if err != nil {
		return Guard{}, err
	}
	if there {
		var r pendingRecord
		if err := decode(p.Key, p.Value, &r, &r.V); err != nil {
			return Guard{}, err
		}
		if r.Op != opCreate {
			return Guard{}, fmt.Errorf("topic id %s is being removed: %w", id, ErrConflict)
		}
		guards = []Guard{{Key: key, ModRev: p.ModRev}}
	}
	ok, rev, err := s.commit(ctx, guards, []Op{{Key: key, Value: encode(rec)}})
	switch {
	case err != nil:
		return Guard{}, err
	case !ok && !there:
		return Guard{}, fmt.Errorf("topic id %s is in use: %w", id, ErrTopicExists)
	case !ok:
		return Guard{}, fmt.Errorf("topic id %s: %w", id, ErrConflict)
	}
	return Guard{Key: key, ModRev: rev}, nil
}

// collect removes the partitions of a topic that has no record, and then its pending record, which guards each step.
func (s *Store) collect(ctx context.Context, id topicID, guard Guard) error {
	pairs, _, err := s.kv.Range(ctx, s.keys.partitions(id))
	if err != nil {
		return err
	}
	if len(pairs) > 0 {
		err = inBatches(ctx, pairs, func(ctx context.Context, batch []Pair) error {
			ops := make([]Op, len(batch))
			for i, p := range batch {
				ops[i] = Op{Key: p.Key, Delete: true}
			}
			ok, _, err := s.commit(ctx, []Guard{guard}, ops)
			if err == nil && !ok {
				err = ErrConflict
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	ok, _, err := s.commit(ctx, []Guard{guard}, []Op{{Key: guard.Key, Delete: true}})
	if err == nil && !ok {
		err = ErrConflict
	}
	return err
}

const (
	sweepEvery = time.Hour
	sweepAge   = 10 * time.Minute
)

// sweepRegularly runs until ctx ends.
func (s *Store) sweepRegularly(ctx context.Context) {
	for ctx.Err() == nil {
		if n, err := s.Sweep(ctx, sweepAge); err != nil && ctx.Err() == nil {
			s.log.Warn("metadata sweep", "err", err)
		} else if n > 0 {
			s.log.Info("unfinished topics collected", "count", n)
		}
		if pause(ctx, sweepEvery) != nil {
			return
		}
	}
}

// Sweep finishes removals and undoes creations of topics that were begun at least age ago and not ended. It is safe at
// any age, also at once while others write: a creation that it undoes fails with ErrConflict. Run does it too.
func (s *Store) Sweep(ctx context.Context, age time.Duration) (int, error) {
	pairs, _, err := s.kv.Range(ctx, s.keys.area(areaPending))
	if err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	n := 0
	var bad []error
	for _, p := range pairs {
		k, err := s.keys.parse(p.Key)
		if err != nil {
			bad = append(bad, &CorruptError{Key: p.Key, Err: err})
			continue
		}
		var r pendingRecord
		if err := decode(p.Key, p.Value, &r, &r.V); err != nil {
			bad = append(bad, err)
			continue
		}
		if time.Since(time.UnixMilli(r.StartedMs)) < age {
			continue
		}
		// Replace the record first: from here on the chain that it belonged to cannot go on.
		r.Op = opForget
		if r.Attempt, err = randomID(s.rand); err != nil {
			return n, err
		}
		ok, rev, err := s.commit(ctx, []Guard{{Key: p.Key, ModRev: p.ModRev}}, []Op{{Key: p.Key, Value: encode(r)}})
		if err == nil && ok {
			err = s.collect(ctx, k.topic, Guard{Key: p.Key, ModRev: rev})
		}
		switch {
		case err != nil && !isConflict(err):
			bad = append(bad, err)
		case err == nil && ok:
			n++
		}
	}
	if err := errors.Join(bad...); err != nil {
		return n, fmt.Errorf("sweep: %w", err)
	}
	return n, nil
}
