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
	s.leaseID, s.registered = lease, BrokerEpoch{ID: b.ID, Epoch: epoch}
	s.line = b.Line()
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

// Term is this Store's term as controller, for the guards of EditPartitions and Admit; 0 if it is not the controller, as
// far as it knows. Each Register ends it.
func (s *Store) Term() int64 { return s.control.Load() }

// Resign gives control up, so that another broker takes it without waiting for the lease. Not to be controller is no error.
func (s *Store) Resign(ctx context.Context) error {
	term := s.control.Swap(0)
	if term == 0 {
		return nil
	}
	key := s.keys.controller()
	_, _, err := s.commit(ctx, []Guard{{Key: key, ModRev: term}}, []Op{{Key: key, Delete: true}})
	if err != nil {
		return fmt.Errorf("resign control: %w", err)
	}
	return nil
}

// Registration is what the last Register of this Store registered; Epoch is 0 before.
func (s *Store) Registration() BrokerEpoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registered
}

// Line are the names of the registered process and of those that it continues, newest first; nil before Register.
func (s *Store) Line() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.line
}

// lineMax bounds a line: a cluster that has not dealt with so many processes of a broker takes the next one for another.
const lineMax = 32

// Line is Process and then Continues.
func (b *Broker) Line() []string {
	if b.Process == "" {
		return nil
	}
	line := append([]string{b.Process}, b.Continues...)
	return line[:min(len(line), lineMax)]
}

// Admit records that the controller has dealt with a registration: from now on the broker may lead and join ISRs. It is
// guarded by the term and by the registration, and ErrConflict if that is not the present one.
func (s *Store) Admit(ctx context.Context, term int64, b *Broker) error {
	guards := []Guard{{Key: s.keys.controller(), ModRev: term}, {Key: s.keys.broker(b.ID), ModRev: b.Epoch}}
	ok, rev, err := s.commit(ctx, guards, []Op{{Key: s.keys.known(b.ID), Value: encodeKnown(b)}})
	if err == nil && !ok {
		if err = s.checkTerm(ctx, term); err == nil {
			err = ErrConflict
		}
	}
	if err != nil {
		return fmt.Errorf("admit broker %d, epoch %d: %w", b.ID, b.Epoch, err)
	}
	s.settle(ctx, rev)
	return nil
}

// Drain says that this broker is about to stop, until its registration ends.
func (s *Store) Drain(ctx context.Context) error {
	s.mu.Lock()
	lease, self := s.leaseID, s.registered
	s.mu.Unlock()
	if lease == 0 {
		return fmt.Errorf("drain: %w: not registered", ErrInvalid)
	}
	guards := []Guard{{Key: s.keys.broker(self.ID), ModRev: self.Epoch}}
	op := Op{Key: s.keys.drain(self.ID), Value: encode(drainRecord{V: recordMajor, Epoch: self.Epoch}), Lease: lease}
	ok, rev, err := s.commit(ctx, guards, []Op{op})
	if err == nil && !ok {
		err = ErrLeaseLost
	}
	if err != nil {
		return fmt.Errorf("drain broker %d: %w", self.ID, err)
	}
	s.settle(ctx, rev)
	return nil
}

// Evict ends a broker's registration, of this epoch only, in its stead: it is known to be dead. A registration that the
// image does not show any more is no error.
func (s *Store) Evict(ctx context.Context, id int32, epoch int64) error {
	b := s.Image().Brokers[id]
	if b == nil || b.Epoch != epoch || b.lease == 0 {
		return nil
	}
	if err := s.kv.Revoke(ctx, b.lease); err != nil {
		return fmt.Errorf("evict broker %d: %w", id, err)
	}
	return nil
}

// ForgetBroker removes what the cluster knows of a broker that will not come back, but that there was one: who comes by its id, with
// whatever disk, has lost all that it had. ErrBrokerIDInUse: it is registered; ErrInvalid: it is not known.
func (s *Store) ForgetBroker(ctx context.Context, id int32) error {
	key := s.keys.known(id)
	kv, ok, err := s.kv.Get(ctx, key)
	if err == nil && ok {
		var b *Broker
		b, err = decodeKnown(id, kv)
		ok = b != nil
	}
	if err == nil && !ok {
		err = fmt.Errorf("%w: it is not known", ErrInvalid)
	}
	var rev int64
	if err == nil {
		ok, rev, err = s.commit(ctx, []Guard{{Key: s.keys.broker(id)}}, []Op{{Key: key, Value: encodeForgotten()}})
	}
	if err == nil && !ok {
		err = ErrBrokerIDInUse
	}
	if err != nil {
		return fmt.Errorf("forget broker %d: %w", id, err)
	}
	s.settle(ctx, rev)
	return nil
}
