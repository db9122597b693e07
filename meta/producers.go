package meta

import (
	"context"
	"fmt"
	"math"
)

// maxProducerBlock bounds one allocation; Kafka's blocks are of 1000.
const maxProducerBlock = 1 << 20

// AllocateProducerIDs returns [first, first+n). No two calls ever overlap, on whichever broker; ids whose allocation
// was not confirmed are lost.
func (s *Store) AllocateProducerIDs(ctx context.Context, n int64) (first int64, err error) {
	if n < 1 || n > maxProducerBlock {
		return 0, fmt.Errorf("allocate %d producer ids: %w", n, ErrInvalid)
	}
	return s.moveProducers(ctx, func(next int64) int64 { return next + n })
}

// AdvanceProducerIDs lets none below floor be allocated from now on: a restored cluster's ids go on above its source's.
func (s *Store) AdvanceProducerIDs(ctx context.Context, floor int64) error {
	_, err := s.moveProducers(ctx, func(next int64) int64 { return max(next, floor) })
	return err
}

// moveProducers replaces the next free id as move says, and returns the former one. It does not use commit: whether a
// value that is there was ours cannot be told, so an unknown outcome starts over.
func (s *Store) moveProducers(ctx context.Context, move func(int64) int64) (int64, error) {
	key := s.keys.producers()
	last := error(ErrConflict)
	for range editMax {
		kv, ok, err := s.kv.Get(ctx, key)
		if err != nil {
			return 0, fmt.Errorf("allocate producer ids: %w", err)
		}
		var r producersRecord
		if ok {
			if err := decode(key, kv.Value, &r, &r.V); err != nil {
				return 0, fmt.Errorf("allocate producer ids: %w", err)
			}
		}
		first := r.Next
		if first < 0 || first > math.MaxInt64/2 {
			return 0, fmt.Errorf("allocate producer ids: %w", bad(key, "next id %d", first))
		}
		r.V, r.Next = recordMajor, move(first)
		ok, _, err = s.kv.Txn(ctx, []Guard{s.fence, {Key: key, ModRev: kv.ModRev}}, []Op{{Key: key, Value: encode(r)}})
		switch {
		case err == nil && ok:
			return first, nil
		case err == nil:
			if err := s.checkFence(ctx); err != nil {
				return 0, fmt.Errorf("allocate producer ids: %w", err)
			}
		case isUnknown(ctx, err):
			last = err
		default:
			return 0, fmt.Errorf("allocate producer ids: %w", err)
		}
	}
	return 0, fmt.Errorf("allocate producer ids: %w", last)
}
