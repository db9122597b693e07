package meta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNotController says that another broker is the controller now, or none.
var ErrNotController = errors.New("not the controller")

// Register leases the broker's registration; it returns its epoch and a func that blocks while the lease is kept.
//
// A registration of the same Directory is that of a dead predecessor and is revoked at once; any other that lives is
// ErrBrokerIDInUse. keep returns ErrLeaseLost when the registration is gone (register again: a new epoch), or ctx's
// error when ctx ends, after it has tried for a second to revoke the lease, so that the others need not wait for it.
func (s *Store) Register(ctx context.Context, b Broker, ttlMs int64) (epoch int64, keep func(context.Context) error, err error) {
	lease, epoch, err := s.register(ctx, b, ttlMs)
	if err != nil {
		return 0, nil, fmt.Errorf("register broker %d: %w", b.ID, err)
	}
	s.mu.Lock()
	s.leaseID = lease
	s.mu.Unlock()
	s.control.Store(0)
	keep = func(ctx context.Context) error {
		err := s.kv.KeepAlive(ctx, lease)
		if ctx.Err() != nil {
			s.revoke(ctx, lease)
		}
		return err
	}
	return epoch, keep, nil
}

func (s *Store) register(ctx context.Context, b Broker, ttlMs int64) (LeaseID, int64, error) {
	if b.ID < 0 || ttlMs <= 0 {
		return 0, 0, fmt.Errorf("%w: id %d, ttl %d ms", ErrInvalid, b.ID, ttlMs)
	}
	lease, err := s.kv.Grant(ctx, ttlMs)
	if err != nil {
		return 0, 0, err
	}
	key := s.keys.broker(b.ID)
	for range editMax {
		ok, rev, err := s.commit(ctx, []Guard{{Key: key}}, []Op{{Key: key, Value: encodeBroker(b), Lease: lease}})
		if ok && err == nil {
			return lease, rev, nil
		}
		if err == nil {
			err = s.evict(ctx, key, b)
		}
		if err != nil {
			s.revoke(ctx, lease)
			return 0, 0, err
		}
	}
	s.revoke(ctx, lease)
	return 0, 0, ErrConflict
}

// evict removes the registration at key if it is that of a dead predecessor.
func (s *Store) evict(ctx context.Context, key string, b Broker) error {
	kv, ok, err := s.kv.Get(ctx, key)
	if err != nil || !ok {
		return err
	}
	old, err := decodeBroker(b.ID, kv)
	if err != nil {
		return err
	}
	if b.Directory == "" || old.Directory != b.Directory {
		return fmt.Errorf("registration %d of directory %q: %w", kv.ModRev, old.Directory, ErrBrokerIDInUse)
	}
	s.log.Info("former registration revoked", "broker", b.ID, "epoch", kv.ModRev)
	if kv.Lease != 0 {
		return s.kv.Revoke(ctx, kv.Lease)
	}
	_, _, err = s.commit(ctx, []Guard{{Key: key, ModRev: kv.ModRev}}, []Op{{Key: key, Delete: true}})
	return err
}

// revoke gives a lease back as well as it can.
func (s *Store) revoke(ctx context.Context, lease LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.kv.Revoke(ctx, lease); err != nil {
		s.log.Debug("lease left to expire", "lease", int64(lease), "err", err)
	}
}

// TakeControl makes the broker the controller if there is none: won tells. It holds as long as the registration's
// lease, which it shares. From then on Elect is guarded by it, and returns ErrNotController when it is lost.
func (s *Store) TakeControl(ctx context.Context, broker int32) (won bool, err error) {
	s.mu.Lock()
	lease := s.leaseID
	s.mu.Unlock()
	if lease == 0 {
		return false, fmt.Errorf("take control: %w: not registered", ErrInvalid)
	}
	key := s.keys.controller()
	op := Op{Key: key, Value: encode(controllerRecord{V: recordMajor, ID: broker}), Lease: lease}
	ok, rev, err := s.commit(ctx, []Guard{{Key: key}}, []Op{op})
	if err != nil {
		return false, fmt.Errorf("take control: %w", err)
	}
	if !ok {
		kv, there, err := s.kv.Get(ctx, key)
		if err != nil {
			return false, fmt.Errorf("take control: %w", err)
		}
		if !there || kv.Lease != lease {
			return false, nil
		}
		rev = kv.ModRev
	}
	s.control.Store(rev)
	s.settle(ctx, rev)
	return true, nil
}
