package memkv

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/meta"
)

type lease struct {
	ttl     time.Duration
	expires time.Time
	timer   *time.Timer
	keys    map[string]bool
	gone    chan struct{} // closed when it has ended
}

func isLost(err error) bool { return errors.Is(err, meta.ErrLeaseLost) }

func (s *store) grant(ttlMs int64) (meta.LeaseID, error) {
	if ttlMs <= 0 {
		return 0, fmt.Errorf("grant lease of %d ms: %w", ttlMs, meta.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, errClosed("grant")
	}
	s.nextLease++
	id := s.nextLease
	l := &lease{ttl: time.Duration(ttlMs) * time.Millisecond, keys: map[string]bool{}, gone: make(chan struct{})}
	l.expires = time.Now().Add(l.ttl)
	l.timer = time.AfterFunc(l.ttl, func() { s.expire(id) })
	s.leases[id] = l
	return id, nil
}

// expire ends the lease unless a renewal came between the timer and the lock.
func (s *store) expire(id meta.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[id]
	if l == nil {
		return
	}
	if left := time.Until(l.expires); left > 0 {
		l.timer.Reset(left)
		return
	}
	s.end(id)
}

// end deletes the lease's keys in one revision. Called with mu held.
func (s *store) end(id meta.LeaseID) {
	l := s.leases[id]
	l.timer.Stop()
	ops := make([]meta.Op, 0, len(l.keys))
	for k := range l.keys {
		ops = append(ops, meta.Op{Key: k, Delete: true})
	}
	slices.SortFunc(ops, func(a, b meta.Op) int { return compare(a.Key, b.Key) })
	s.apply(ops)
	delete(s.leases, id)
	close(l.gone)
}

func (s *store) renew(id meta.LeaseID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed("renew")
	}
	l := s.leases[id]
	if l == nil {
		return fmt.Errorf("renew lease %d: %w", id, meta.ErrLeaseLost)
	}
	l.expires = time.Now().Add(l.ttl)
	l.timer.Reset(l.ttl)
	return nil
}

func (s *store) revoke(id meta.LeaseID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed("revoke")
	}
	if s.leases[id] != nil {
		s.end(id)
	}
	return nil
}

func (s *store) ttl(id meta.LeaseID) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[id]; l != nil {
		return l.ttl, true
	}
	return 0, false
}

var gone = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (s *store) leaseGone(id meta.LeaseID) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[id]; l != nil {
		return l.gone
	}
	return gone
}
