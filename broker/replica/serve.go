package replica

import (
	"slices"

	"github.com/varvelog/varve/localseg"
)

// Fetched notes that a follower, whose process has this broker epoch, asks for offset and so has everything below, from logStart on. Who
// asks has compared the logs in leader epoch epoch (-1: the follower has told none); in another one nothing is noted.
// ErrNotReplica, ErrStaleBroker, ErrFencedEpoch, ErrNotLeader, localseg.ErrOffsetOutOfRange.
func (p *Partition) Fetched(replica, epoch int32, brokerEpoch, offset, logStart int64) error {
	if err := p.stopped(); err != nil {
		return err
	}
	if offset < p.log.LogStart() || offset > p.log.LEO() {
		return localseg.ErrOffsetOutOfRange
	}
	b := p.m.store.Image().Brokers[replica]
	e := Event{
		Kind: Fetched, Replica: replica, Epoch: epoch, BrokerEpoch: brokerEpoch, LEO: offset, LogStart: logStart, Start: p.log.LogStart(), NowMs: p.m.nowMs(),
		Eligible: b != nil && !b.Fenced && !b.Draining && b.Epoch == brokerEpoch,
	}
	if rec := p.m.record(p); rec != nil && slices.Contains(rec.Offline, replica) {
		e.Eligible = false
	}
	p.mu.Lock()
	assigned := p.core.follower(replica) != nil
	p.mu.Unlock()
	if !assigned {
		return ErrNotReplica
	}
	eff := p.do(e)
	switch {
	case eff.Stale:
		return ErrStaleBroker
	case eff.Fenced:
		return p.begun(epoch)
	}
	if eff.Began {
		p.wake(&p.lows)
	}
	return nil
}

// begun is why what was begun in this leader epoch cannot go on, nil if that is the present one.
func (p *Partition) begun(epoch int32) error {
	if err := p.CheckEpoch(epoch); err != nil {
		return err
	}
	if epoch != anyEpoch && p.LeaderEpoch() != epoch {
		return ErrNotLeader
	}
	return nil
}

// ReplicaState is what a leader knows of an in-sync follower.
type ReplicaState struct {
	ID  int32
	LEO int64
}

// InSync lists the followers that are in sync. The slice is the caller's.
func (p *Partition) InSync() []ReplicaState {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []ReplicaState
	for _, f := range p.core.followers {
		if f.inSync {
			out = append(out, ReplicaState{f.id, f.leo})
		}
	}
	return out
}
