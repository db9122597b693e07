package replica

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

// quota is a limit in bytes a second on replication of throttled replicas (KIP-73). What is charged was moved already: an answer may
// be larger than what is left, and is then paid for before the next one. What is not used is kept for a second at most.
type quota struct {
	mu   sync.Mutex
	rate float64   // guarded by mu; bytes a second
	left float64   // guarded by mu; bytes, at the time at
	at   time.Time // guarded by mu
}

// set changes the rate; debts stay.
func (q *quota) set(rate int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.earn()
	q.rate = float64(max(rate, 1))
	q.left = min(q.left, q.rate)
}

// earn, with mu, adds what the time since the last call gives.
func (q *quota) earn() {
	now := time.Now()
	if !q.at.IsZero() {
		q.left = min(q.left+q.rate*now.Sub(q.at).Seconds(), q.rate)
	}
	q.at = now
}

// charge notes that n bytes were moved.
func (q *quota) charge(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.earn()
	q.left -= float64(n)
}

// wait is how long nothing may be moved any more; 0: something may be now.
func (q *quota) wait() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.earn()
	if q.left >= 0 {
		return 0
	}
	// Rounded up, so that who waits so long need not wait again; bounded, since the rate may be raised meanwhile.
	return min(time.Duration(-q.left/q.rate*float64(time.Second))+time.Millisecond, time.Second)
}

// throttles are the limits of a broker: what it serves, and what it fetches.
type throttles struct {
	leader, follower quota
}

func (m *Manager) setThrottle() {
	leader, follower := m.o.Throttle()
	m.throttles.leader.set(leader)
	m.throttles.follower.set(follower)
}

// throttled says whether a value of leader.replication.throttled.replicas or its follower's twin names this broker's replica: "*", or
// elements "partition:broker".
func throttled(list []string, partition, broker int32) bool {
	return slices.Contains(list, "*") ||
		slices.Contains(list, strconv.Itoa(int(partition))+":"+strconv.Itoa(int(broker)))
}

// Only what can be held back is charged: catching up. Who is in sync is not throttled, since acks=all waits for it, and does not use up
// the rate either; deviation from Kafka, where a busy topic leaves nothing for those that catch up.

// throttles says whether what this follower is sent of p is throttled.
func (p *Partition) throttles(follower int32) bool {
	if !p.throttledLeader.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.core.inSync(follower)
}

// serves says whether the follower may be given records of p now.
func (p *Partition) serves(follower int32) bool {
	return !p.throttles(follower) || p.m.throttles.leader.wait() == 0
}

// Replicated notes that n bytes of records go out to a follower.
func (p *Partition) Replicated(follower int32, n int) {
	if n > 0 && p.throttles(follower) {
		p.m.throttles.leader.charge(n)
	}
}

// throttled says whether fetching is: not for a partition that has all that the leader has committed, or that is in sync.
func (pl *pull) throttled(m *Manager) bool {
	if pl.caughtUp || !pl.p.throttledFollower.Load() {
		return false
	}
	rec := m.record(pl.p)
	return rec == nil || !slices.Contains(rec.ISR, m.o.NodeID)
}

// throttle says for how long nothing more is fetched.
func (pl *pull) throttle(m *Manager) time.Duration {
	if !pl.throttled(m) {
		return 0
	}
	return m.throttles.follower.wait()
}
