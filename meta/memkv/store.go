package memkv

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/varvelog/varve/meta"
)

// historyMax bounds the revisions that a watch can start from.
const historyMax = 10000

var errDuplicateKey = errors.New("duplicate key in transaction")

// store is the state that all clients share.
type store struct {
	mu        sync.Mutex
	closed    bool                    // guarded by mu
	rev       int64                   // guarded by mu
	data      map[string]meta.Pair    // guarded by mu; values are never changed in place
	sorted    []string                // guarded by mu; keys of data, nil when stale
	leases    map[meta.LeaseID]*lease // guarded by mu
	nextLease meta.LeaseID            // guarded by mu
	history   []meta.WatchBatch       // guarded by mu; one a revision, ascending, without gaps up to rev
	compacted int64                   // guarded by mu; events up to and with it are gone
	asked     int64                   // guarded by mu; counts Progress calls
	turn      chan struct{}           // guarded by mu; closed and replaced at each revision and Progress
}

func newStore() *store {
	return &store{
		rev: 1, compacted: 1,
		data:   map[string]meta.Pair{},
		leases: map[meta.LeaseID]*lease{},
		turn:   make(chan struct{}),
	}
}

func (s *store) scan(prefix string) ([]meta.Pair, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, 0, errClosed("range")
	}
	if s.sorted == nil {
		s.sorted = make([]string, 0, len(s.data))
		for k := range s.data {
			s.sorted = append(s.sorted, k)
		}
		slices.Sort(s.sorted)
	}
	var out []meta.Pair
	for i := sort.SearchStrings(s.sorted, prefix); i < len(s.sorted) && strings.HasPrefix(s.sorted[i], prefix); i++ {
		out = append(out, clone(s.data[s.sorted[i]]))
	}
	return out, s.rev, nil
}

func (s *store) get(key string) (meta.Pair, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return meta.Pair{}, false, errClosed("get")
	}
	p, ok := s.data[key]
	return clone(p), ok, nil
}

func (s *store) txn(guards []meta.Guard, ops []meta.Op) (bool, int64, error) {
	if err := check(guards, ops); err != nil {
		return false, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, 0, errClosed("txn")
	}
	for _, g := range guards {
		if s.data[g.Key].ModRev != g.ModRev {
			return false, s.rev, nil
		}
	}
	for _, o := range ops {
		if o.Lease != 0 && s.leases[o.Lease] == nil {
			return false, 0, fmt.Errorf("txn: lease %d: %w", o.Lease, meta.ErrLeaseLost)
		}
	}
	s.apply(ops)
	return true, s.rev, nil
}

// check refuses what etcd refuses.
func check(guards []meta.Guard, ops []meta.Op) error {
	if len(ops) > meta.MaxOps || len(guards) > meta.MaxOps {
		return fmt.Errorf("txn of %d guards, %d ops: %w", len(guards), len(ops), meta.ErrTooManyOps)
	}
	seen := make(map[string]bool, len(ops))
	for _, o := range ops {
		if o.Key == "" {
			return fmt.Errorf("txn: empty key: %w", meta.ErrInvalid)
		}
		if seen[o.Key] {
			return fmt.Errorf("txn: key %q: %w: %w", o.Key, errDuplicateKey, meta.ErrInvalid)
		}
		seen[o.Key] = true
	}
	return nil
}

// apply makes a revision of the ops, if they change anything. Called with mu held.
func (s *store) apply(ops []meta.Op) {
	next := s.rev + 1
	var events []meta.Event
	for _, o := range ops {
		old, had := s.data[o.Key]
		if o.Delete {
			if !had {
				continue
			}
			s.detach(old)
			delete(s.data, o.Key)
			s.sorted = nil
			events = append(events, meta.Event{Pair: meta.Pair{Key: o.Key, ModRev: next}, Deleted: true})
			continue
		}
		p := meta.Pair{Key: o.Key, Value: bytes.Clone(o.Value), CreateRev: next, ModRev: next, Lease: o.Lease}
		if had {
			p.CreateRev = old.CreateRev
			s.detach(old)
		} else {
			s.sorted = nil
		}
		s.data[o.Key] = p
		if o.Lease != 0 {
			s.leases[o.Lease].keys[o.Key] = true
		}
		events = append(events, meta.Event{Pair: p})
	}
	if len(events) == 0 {
		return
	}
	s.rev = next
	s.history = append(s.history, meta.WatchBatch{Rev: next, Events: events})
	if n := len(s.history) - historyMax; n > historyMax/10 {
		s.compacted = s.history[n-1].Rev
		s.history = slices.Clone(s.history[n:])
	}
	s.wake()
}

func (s *store) detach(p meta.Pair) {
	if l := s.leases[p.Lease]; l != nil {
		delete(l.keys, p.Key)
	}
}

// wake lets watches look. Called with mu held.
func (s *store) wake() {
	close(s.turn)
	s.turn = make(chan struct{})
}

func (s *store) compact(rev int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rev = min(rev, s.rev)
	if rev <= s.compacted {
		return
	}
	i := sort.Search(len(s.history), func(i int) bool { return s.history[i].Rev > rev })
	s.compacted = rev
	s.history = slices.Clone(s.history[i:])
	s.wake()
}

func (s *store) progress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.wake()
}

func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for _, l := range s.leases {
		l.timer.Stop()
		close(l.gone)
	}
	s.leases = nil
	s.wake()
}

func errClosed(op string) error {
	return fmt.Errorf("%s: store is closed: %w", op, meta.ErrUnavailable)
}

func clone(p meta.Pair) meta.Pair {
	p.Value = bytes.Clone(p.Value)
	return p
}
