package meta

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/wallclock"
)

// Options of a Store; the zero value is good.
type Options struct {
	Logger *slog.Logger // nil: slog.Default()
	// Incarnation makes the cluster's incarnation at least this (PROTOCOLS 2): a restore that took over has sealed it.
	// A higher one than asked for is ErrIncarnation. 0: whatever is there, 1 for a new cluster.
	Incarnation uint32
	Rand        io.Reader       // for cluster and topic ids; nil: crypto/rand
	Wall        wallclock.Clock // for the times in records; nil: the system's
}

func (o *Options) fill() {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
}

// Store is one broker's view of the metadata: it reads, changes and watches. All methods may be called concurrently.
//
// Writes are guarded by the cluster's incarnation besides their own guards: ErrIncarnation says that this process is
// of the past, for good. ErrUnavailable means that the outcome is unknown even after reading back. While Run runs, a
// write of topics or configs returns only when Image shows it, or after settleMax.
type Store struct {
	kv    KV
	log   *slog.Logger
	rand  io.Reader
	wall  wallclock.Clock
	keys  keys
	fence Guard // on the cluster's record

	cur     atomic.Pointer[state] // written by Run only, after Open
	running atomic.Bool
	control atomic.Int64 // ModRev of the controller key while this Store holds it

	mu      sync.Mutex
	subs    []func(old, new *Image) // guarded by mu
	swapped chan struct{}           // guarded by mu; closed and replaced at each swap
	leaseID LeaseID                 // guarded by mu; of the registration

	registered BrokerEpoch // guarded by mu; Epoch 0: not registered yet
	line       []string    // guarded by mu; of the registered process
}

// settleMax bounds how long a write waits for the own image.
const settleMax = 2 * time.Second

// Open makes or finds the cluster (id, incarnation) under kv: clusterID "" takes what is there or makes a new random one.
// A record that cannot be read is a *CorruptError that names its key.
func Open(ctx context.Context, kv KV, clusterID string, o Options) (*Store, error) {
	o.fill()
	c, err := findCluster(ctx, kv, clusterID, o)
	if err != nil {
		return nil, fmt.Errorf("open metadata: %w", err)
	}
	s := &Store{
		kv: kv, log: o.Logger, rand: o.Rand, wall: o.Wall, keys: newKeys(c.id, c.inc),
		fence:   Guard{Key: clusterPrefix + c.id, ModRev: c.modRev},
		swapped: make(chan struct{}),
	}
	pairs, rev, err := kv.Range(ctx, string(s.keys))
	if err != nil {
		return nil, fmt.Errorf("open metadata: %w", err)
	}
	st, err := load(s.keys, emptyState(c.id, c.inc), pairs, rev)
	if err != nil {
		return nil, fmt.Errorf("open metadata: %w", err)
	}
	s.cur.Store(st)
	return s, nil
}

// Image is the newest one; never nil after Open.
func (s *Store) Image() *Image { return s.cur.Load().img }

// Subscribe calls f with (old, new) after each swap, in order, from one goroutine; f must not block.
// A swap that happened before is not told: look at Image after subscribing.
func (s *Store) Subscribe(f func(old, new *Image)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs = append(s.subs, f)
}

// Sync waits until the image has reached revision rev. It needs Run.
func (s *Store) Sync(ctx context.Context, rev int64) error {
	p, _ := s.kv.(Progresser)
	wait := 5 * time.Millisecond // most revisions come with an event of ours: do not ask at once
	for {
		s.mu.Lock()
		swapped := s.swapped
		s.mu.Unlock()
		if s.Image().Rev >= rev {
			return nil
		}
		t := time.NewTimer(wait)
		select {
		case <-swapped:
		case <-t.C:
			wait = min(2*wait, 200*time.Millisecond)
			if p != nil {
				// Not answered, it is asked for again.
				_ = p.Progress(ctx)
			}
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("wait for metadata revision %d, at %d: %w", rev, s.Image().Rev, ctx.Err())
		}
		t.Stop()
	}
}

// Run watches and swaps the image until ctx ends; then it returns nil. One Run at a time. A record that cannot be read
// keeps its former value, and is logged: a stray write must not stop every broker at once.
func (s *Store) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return fmt.Errorf("run metadata: %w: runs already", ErrInvalid)
	}
	defer s.running.Store(false)
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		s.sweepRegularly(ctx)
	}()
	defer func() { <-swept }()
	backoff := backoffMin
	for ctx.Err() == nil {
		began := s.Image().Rev
		err := s.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, ErrCompacted) {
			err = s.resync(ctx)
		}
		if s.Image().Rev > began {
			backoff = backoffMin
		}
		if err != nil {
			s.log.Warn("metadata watch interrupted", "revision", s.Image().Rev, "err", err, "retry", backoff)
		}
		if pause(ctx, backoff) != nil {
			break
		}
		backoff = min(2*backoff, backoffMax)
	}
	return nil
}

const (
	backoffMin = 20 * time.Millisecond
	backoffMax = 2 * time.Second
)

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// foldMax bounds the revisions of one swap.
const foldMax = 1024

// follow folds one watch until it breaks. Revisions that wait already become one swap. A swap copies the maps of
// topics, so with many topics swaps are paced: the first one comes at once, the next not before 0.5 us a topic.
func (s *Store) follow(ctx context.Context) error {
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := s.kv.Watch(wctx, string(s.keys), s.Image().Rev)
	var last time.Time
	for {
		w, ok := <-ch
		if !ok {
			return fmt.Errorf("watch ended: %w", ErrUnavailable)
		}
		old := s.cur.Load()
		if d := time.Duration(len(old.img.Topics))*500 - time.Since(last); d > 100*time.Microsecond && !last.IsZero() {
			if err := pause(ctx, d); err != nil {
				return err
			}
		}
		b := newBuilder(s.keys, old)
		err := w.Err
		for n := 0; err == nil; n++ {
			b.fold(w.Rev, w.Events)
			if n == foldMax {
				break
			}
			select {
			case w, ok = <-ch:
				if !ok {
					err = fmt.Errorf("watch ended: %w", ErrUnavailable)
				} else {
					err = w.Err
				}
				continue
			default:
			}
			break
		}
		st, skipped := b.finish()
		if skipped != nil {
			s.log.Error("metadata records skipped", "revision", st.img.Rev, "err", skipped)
		}
		if st.img.Rev > old.img.Rev {
			s.swap(st)
			last = time.Now()
		}
		if err != nil {
			return err
		}
	}
}

// resync reads everything again, after the watch's revision was compacted away.
func (s *Store) resync(ctx context.Context) error {
	pairs, rev, err := s.kv.Range(ctx, string(s.keys))
	if err != nil {
		return fmt.Errorf("resync metadata: %w", err)
	}
	st, err := load(s.keys, s.cur.Load(), pairs, rev)
	if err != nil {
		return fmt.Errorf("resync metadata: %w", err)
	}
	s.log.Info("metadata read again", "revision", rev)
	s.swap(st)
	return nil
}

// swap is called by Run's goroutine only.
func (s *Store) swap(st *state) {
	old := s.cur.Swap(st)
	s.mu.Lock()
	subs := s.subs
	close(s.swapped)
	s.swapped = make(chan struct{})
	s.mu.Unlock()
	for _, f := range subs {
		f(old.img, st.img)
	}
}

// settle waits until the own image shows a write, so that whoever wrote can read it.
func (s *Store) settle(ctx context.Context, rev int64) {
	if !s.running.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleMax)
	defer cancel()
	if err := s.Sync(ctx, rev); err != nil {
		s.log.Debug("image is late", "err", err)
	}
}
