package group

import (
	"context"
	"sync"
)

// shard is one partition in one leader epoch: its core, and who waits for it.
type shard struct {
	c         *Coordinator
	partition int32
	epoch     int32

	mu      sync.Mutex
	core    *Core               // guarded by mu; nil while loading
	closed  error               // guarded by mu; what to answer from then on
	cancel  context.CancelFunc  // guarded by mu; of the load or the write that runs
	waiting map[Ticket]chan any // guarded by mu; each has room for its one answer
	ticket  Ticket              // guarded by mu
	queue   []Append            // guarded by mu; to be written, in order
	queued  int                 // guarded by mu; their bytes, and those being written
	writing bool                // guarded by mu; a write runs or is about to
	log     Log                 // set before core, then only read; used by the write that runs
	effects []Effect            // guarded by mu; reused
}

func newShard(c *Coordinator, partition, epoch int32) *shard {
	return &shard{c: c, partition: partition, epoch: epoch, waiting: map[Ticket]chan any{}}
}

// enter locks the shard if it can serve; the caller unlocks.
func (s *shard) enter() error {
	s.mu.Lock()
	err := s.closed
	if err == nil && s.core == nil {
		err = ErrLoading
	}
	if err != nil {
		s.mu.Unlock()
	}
	return err
}

// now is the time for the core, mu held, which is told meanwhile how late it is elsewhere.
func (s *shard) now() int64 {
	now := s.c.nowMs()
	s.core.Set(s.c.o.Wall.Ms() - now)
	return now
}

// step lets f change the core and does what follows, if the shard serves.
func (s *shard) step(f func(core *Core, now int64, out []Effect) []Effect) error {
	if err := s.enter(); err != nil {
		return err
	}
	s.effects = f(s.core, s.now(), s.effects[:0])
	todo := s.apply(s.effects)
	s.unlock(todo)
	return nil
}

// ask is step for a request whose answer may come later, on the channel: a Result of the core, or an error.
func (s *shard) ask(f func(core *Core, now int64, t Ticket, out []Effect) []Effect) (Ticket, <-chan any, error) {
	if err := s.enter(); err != nil {
		return 0, nil, err
	}
	if s.queued > s.c.o.QueueBytes {
		s.mu.Unlock()
		s.c.metrics.refused.Inc()
		return 0, nil, ErrNotAvailable
	}
	s.ticket++
	t, ch := s.ticket, make(chan any, 1)
	s.waiting[t] = ch
	s.effects = f(s.core, s.now(), t, s.effects[:0])
	todo := s.apply(s.effects)
	s.unlock(todo)
	return t, ch, nil
}

// forget gives up waiting.
func (s *shard) forget(t Ticket) {
	s.mu.Lock()
	delete(s.waiting, t)
	s.mu.Unlock()
}

// apply does what the core asked for, mu held. It returns what has to be done without it.
func (s *shard) apply(effects []Effect) todo {
	var d todo
	for _, e := range effects {
		switch e := e.(type) {
		case Append:
			s.queue = append(s.queue, e)
			s.queued += e.size()
		case Answer:
			if ch := s.waiting[e.Ticket]; ch != nil {
				delete(s.waiting, e.Ticket)
				ch <- e.Result // has room: never blocks
			}
		case Change:
			d.changes = append(d.changes, e)
		}
	}
	if len(s.queue) > 0 && !s.writing {
		s.writing, d.write = true, true
	}
	d.alarm, d.rings = s.core.Next()
	clear(effects)
	return d
}

// todo is what follows from a step once the shard is unlocked.
type todo struct {
	write   bool
	alarm   int64
	rings   bool
	changes []Change
}

// unlock releases the shard and does what is left.
func (s *shard) unlock(d todo) {
	s.mu.Unlock()
	if d.write {
		s.c.start(s.write)
	}
	if d.rings {
		s.c.rings(d.alarm)
	}
	for _, e := range d.changes {
		s.c.o.Logger.Info("group", "group", e.Group, "state", e.State.String(), "generation", e.Generation, "members", e.Members, "why", e.Reason)
	}
}

func (s *shard) nextAlarm() (int64, bool) {
	if s.enter() != nil {
		return 0, false
	}
	defer s.mu.Unlock()
	return s.core.Next()
}

// begin notes that a load or a write runs, and how to end it; not ok if the shard is closed.
func (s *shard) begin(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		cancel()
		return ctx, cancel, false
	}
	s.cancel = cancel
	return ctx, cancel, true
}

// close answers all who wait with err, and all who come.
func (s *shard) close(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return
	}
	s.closed = err
	s.core, s.queue = nil, nil
	if s.cancel != nil {
		s.cancel()
	}
	for t, ch := range s.waiting {
		delete(s.waiting, t)
		ch <- err // has room
	}
}

func (a Append) size() int {
	n := 0
	for _, r := range a.Records {
		n += recordOverhead + len(r.Key) + len(r.Value)
	}
	return n
}

// recordOverhead is about what a record takes besides key and value.
const recordOverhead = 16
