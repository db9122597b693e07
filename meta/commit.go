package meta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// editMax bounds how often an edit is tried again on conflict.
const editMax = 16

// isUnknown says that a write's outcome is unknown and that there is time to find out.
func isUnknown(ctx context.Context, err error) bool {
	return errors.Is(err, ErrUnavailable) && ctx.Err() == nil
}

// commit is Txn guarded by the incarnation, of at most MaxOps-2 further guards and MaxOps ops. When the outcome is
// unknown it reads back whether ops[0] is in place before it tries again: ops[0] must be a put of a value that only this
// call writes, or writes to the same effect, or a delete. ok false is a conflict, and no op is in place because of this call.
func (s *Store) commit(ctx context.Context, guards []Guard, ops []Op) (ok bool, rev int64, err error) {
	guards = append([]Guard{s.fence}, guards...)
	for try := 0; ; try++ {
		ok, rev, err = s.kv.Txn(ctx, guards, ops)
		if ok && err == nil {
			return true, rev, nil
		}
		if err != nil && !isUnknown(ctx, err) {
			return false, 0, err
		}
		if err != nil || try > 0 {
			landed, at, rerr := s.landed(ctx, guards, ops[0])
			switch {
			case rerr == nil && landed:
				return true, at, nil
			case rerr != nil && !isUnknown(ctx, rerr):
				return false, 0, rerr
			}
		}
		if err == nil {
			return false, 0, s.checkFence(ctx)
		}
		if try == 3 {
			return false, 0, err
		}
		if perr := pause(ctx, time.Duration(20<<try)*time.Millisecond); perr != nil {
			return false, 0, err
		}
	}
}

// landed says whether the op has been applied since its guard was read, and the revision of that.
func (s *Store) landed(ctx context.Context, guards []Guard, op Op) (bool, int64, error) {
	p, ok, err := s.kv.Get(ctx, op.Key)
	if err != nil {
		return false, 0, err
	}
	if op.Delete {
		return !ok, s.Image().Rev, nil
	}
	for _, g := range guards {
		if g.Key == op.Key && g.ModRev == p.ModRev {
			return false, 0, nil
		}
	}
	return ok && bytes.Equal(p.Value, op.Value) && p.Lease == op.Lease, p.ModRev, nil
}

// checkFence turns a conflict into ErrIncarnation where that is the cause.
func (s *Store) checkFence(ctx context.Context) error {
	p, _, err := s.kv.Get(ctx, s.fence.Key)
	if err != nil {
		return err
	}
	if p.ModRev != s.fence.ModRev {
		return fmt.Errorf("cluster %s, incarnation %d: %w", s.Image().Cluster, s.Image().Incarnation, ErrIncarnation)
	}
	return nil
}
