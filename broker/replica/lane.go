package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/varvelog/varve/manifest"
)

// lane fetches some partitions of one leader over one connection, all in one request at a time.
type lane struct {
	m   *Manager
	key laneKey

	mu     sync.Mutex
	pulls  map[manifest.PartitionID]*pull // guarded by mu
	cancel context.CancelFunc             // guarded by mu; of the request that waits for the leader; nil: none does
	signal chan struct{}                  // buffered 1: pulls have changed

	// Owned by run.
	cuts    sync.WaitGroup
	session int32
	epoch   int32                         // of the session's next request
	told    map[manifest.PartitionID]told // what the leader knows of this session's partitions
	req     FetchRequest
}

// pull is a partition of a lane.
type pull struct {
	p         *Partition
	epoch     int32     // leader epoch in which it is followed
	notBefore time.Time // after an error
	failures  int
	caughtUp  bool // it had all that was committed, by the last answer: it is not throttled
	suspended bool // its log is being replaced
	cutting   bool // its log is being cut back; guarded by the lane's mu
	last      FetchPart
}

// told is what a session has been told of a partition.
type told struct {
	part FetchPart
	ask  *pull
}

func newLane(m *Manager, key laneKey) *lane {
	return &lane{m: m, key: key, pulls: map[manifest.PartitionID]*pull{}, signal: make(chan struct{}, 1), told: map[manifest.PartitionID]told{}}
}

func (l *lane) add(p *Partition, epoch int32) {
	l.mu.Lock()
	l.pulls[p.id] = &pull{p: p, epoch: epoch}
	l.interrupt()
	l.mu.Unlock()
}

func (l *lane) remove(p *Partition) {
	l.mu.Lock()
	if pl := l.pulls[p.id]; pl != nil && pl.p == p {
		delete(l.pulls, p.id)
	}
	l.mu.Unlock()
}

func (l *lane) resume(p *Partition) {
	l.mu.Lock()
	if pl := l.pulls[p.id]; pl != nil && pl.p == p {
		pl.suspended, pl.last = false, FetchPart{}
		l.interrupt()
	}
	l.mu.Unlock()
}

// interrupt, with mu, gives up a request that only waits for records: what was added must not wait behind it. The connection goes with
// it, which costs a dial; additions come in crowds, after an election.
func (l *lane) interrupt() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
	if l.cancel != nil {
		l.cancel()
		l.cancel = nil
	}
}

// gather is how long a lane waits for more partitions of the same crowd.
const gather = 2 * time.Millisecond

func (l *lane) run(ctx context.Context) {
	defer l.cuts.Wait()
	for ctx.Err() == nil {
		select {
		case <-l.signal:
		default:
		}
		l.build()
		if len(l.told) == 0 {
			l.forget()
			l.rest(ctx, l.nextDue())
			continue
		}
		ans, err := l.fetch(ctx)
		switch {
		case err == nil:
			l.take(ctx, ans)
		case errors.Is(err, errInterrupted):
			l.forget()
			wait(ctx, gather)
		case ctx.Err() == nil:
			l.forget()
			l.m.metrics.fetchErrors.Inc()
			l.m.o.Logger.Debug("fetch", "leader", l.key.leader, "lane", l.key.n, "err", err)
			l.rest(ctx, l.m.nextTry())
		}
	}
}

// errInterrupted: the request was given up for a newer one.
var errInterrupted = errors.New("interrupted")

// fetch sends the request that build has made. What is assigned after that interrupts it.
func (l *lane) fetch(ctx context.Context) (*FetchAnswer, error) {
	asked, cancel := context.WithTimeout(ctx, max(l.m.o.AnswerMax, l.m.o.FetchWait+time.Second))
	defer cancel()
	l.mu.Lock()
	select {
	case <-l.signal:
		l.mu.Unlock()
		return nil, errInterrupted
	default:
	}
	l.cancel = cancel
	l.mu.Unlock()
	ans, err := l.m.o.Upstream.Fetch(asked, l.key.leader, l.key.n, &l.req)
	l.mu.Lock()
	interrupted := l.cancel == nil
	l.cancel = nil
	l.mu.Unlock()
	if err != nil && interrupted {
		return nil, errInterrupted
	}
	return ans, err
}

// nextTry is when to ask again a leader that could not be reached.
func (m *Manager) nextTry() time.Duration { return min(m.o.FetchBackoff, 200*time.Millisecond) }

// rest waits until d has passed or pulls have changed.
func (l *lane) rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.signal:
	case <-t.C:
	case <-ctx.Done():
	}
}

// nextDue is how long until a partition may be asked for again.
func (l *lane) nextDue() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := time.Minute
	for _, pl := range l.pulls {
		if !pl.suspended && !pl.cutting {
			due = min(due, max(time.Until(pl.notBefore), pl.throttle(l.m), time.Millisecond))
		}
	}
	return due
}

// forget ends the session: the next request says everything.
func (l *lane) forget() {
	l.epoch = 0 // the leader drops the old session, whose id it is told once more
	clear(l.told)
}

// build makes the next request: what is new or has moved since the session was told, and what is to be forgotten.
func (l *lane) build() {
	r := &l.req
	*r = FetchRequest{
		BrokerEpoch: l.m.o.BrokerEpoch(), Session: l.session, SessionEpoch: l.epoch,
		MaxWait: l.m.o.FetchWait, MinBytes: l.m.o.FetchMin, MaxBytes: l.m.o.FetchMax,
		Parts: r.Parts[:0], Forgotten: r.Forgotten[:0],
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, t := range l.told {
		if pl := l.pulls[id]; pl != t.ask || !pl.due(now) || pl.throttle(l.m) > 0 {
			r.Forgotten = append(r.Forgotten, id)
			delete(l.told, id)
		}
	}
	for id, pl := range l.pulls {
		if !pl.due(now) || pl.throttle(l.m) > 0 {
			r.MaxWait = min(r.MaxWait, pl.within(now))
			continue
		}
		part := pl.ask(l.m.o.FetchPartMax)
		if l.told[id].part == part {
			continue
		}
		l.told[id] = told{part, pl}
		r.Parts = append(r.Parts, part)
	}
	// A partition that is forgotten and asked for again in one request, since its leader epoch has changed, is only asked for.
	if len(r.Forgotten) > 0 {
		kept := r.Forgotten[:0]
		for _, id := range r.Forgotten {
			if _, again := l.told[id]; !again {
				kept = append(kept, id)
			}
		}
		r.Forgotten = kept
	}
}

func (pl *pull) due(now time.Time) bool {
	return !pl.suspended && !pl.cutting && !now.Before(pl.notBefore) && pl.p.ready.Load() && pl.p.Offline() == nil
}

// soon is how long a request may wait for records while the log of another partition of the lane is being cut.
const soon = 10 * time.Millisecond

// within is how long the others' request may wait for records, so that a partition that is not asked for by it is in the next one in
// time: after an election a leader that has not heard of it refuses, and acknowledgements wait for who asks again.
func (pl *pull) within(now time.Time) time.Duration {
	switch {
	case pl.cutting:
		return soon
	case now.Before(pl.notBefore):
		return max(pl.notBefore.Sub(now), time.Millisecond)
	}
	return time.Hour // it is woken, or waits for a rate
}

// ask says from where the partition is to be fetched.
func (pl *pull) ask(maxBytes int) FetchPart {
	log := pl.p.log
	leo, start := log.LEO(), log.LogStart()
	if pl.last.MaxBytes == 0 || pl.last.Offset != leo {
		pl.last = FetchPart{
			ID: pl.p.id, Epoch: pl.epoch, Offset: leo, FetchedEpoch: fetchedEpoch(log.Epochs(), leo), MaxBytes: maxBytes,
		}
	}
	pl.last.LogStart = start
	return pl.last
}

// take hands out an answer. A partition that is not in it is as it was.
func (l *lane) take(ctx context.Context, ans *FetchAnswer) {
	if ans.Err != nil {
		l.forget()
		l.rest(ctx, gather)
		return
	}
	if l.epoch++; l.epoch <= 0 {
		l.epoch = 1
	}
	l.session = ans.Session
	for i := range ans.Parts {
		a := &ans.Parts[i]
		l.mu.Lock()
		pl := l.pulls[a.ID]
		l.mu.Unlock()
		if pl == nil {
			continue
		}
		if l.told[a.ID].ask != pl {
			continue // it was assigned anew while the request was under way
		}
		if a.Err == nil && a.Diverging {
			l.cut(ctx, pl, a)
			continue
		}
		l.done(pl, pl.take(l.m, a))
	}
	if l.session == 0 {
		l.forget() // the leader has no room for a session
	}
}

// done notes how it went.
func (l *lane) done(pl *pull, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		pl.failures = 0
		return
	}
	if err == errSeeding {
		pl.suspended = true // first: who replaces the log resumes it
		l.m.reseed(pl.p)
		return
	}
	pl.failures++
	pause := min(firstFetchPause<<min(pl.failures-1, 10), l.m.o.FetchBackoff)
	pl.notBefore = time.Now().Add(pause)
	l.m.metrics.fetchErrors.Inc()
	level := l.m.o.Logger.Debug
	if pl.failures == quietFailures {
		level = l.m.o.Logger.Warn
	}
	level("fetch partition", "topic", pl.p.name, "partition", pl.p.id.Partition, "leader", l.key.leader, "epoch", pl.epoch, "err", err)
}

const (
	firstFetchPause = 10 * time.Millisecond
	quietFailures   = 6 // right after an election leader and follower need not know of it at the same time
)
