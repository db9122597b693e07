package replica

import (
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

// assignment is who leads a partition in which epoch. leader -1: nobody.
type assignment struct {
	leader int32
	epoch  int32
}

// assume makes p what the metadata says: leader, with this ISR, or follower. Its log is open.
func (m *Manager) assume(p *Partition, mp *meta.Partition) {
	now := assignment{mp.Leader, mp.LeaderEpoch}
	if now.leader == m.o.NodeID && now.epoch <= p.former {
		now.leader = -1 // what a former process of this broker was elected for
	}
	switch {
	case now.leader == m.o.NodeID && now == p.applied:
		p.do(Event{Kind: Known, Epoch: mp.LeaderEpoch, Version: mp.PartitionEpoch, Replicas: mp.Replicas, ISR: mp.ISR})
	case now == p.applied:
	case now.epoch < p.applied.epoch:
		// A watch that was read anew never goes back; be it as it may, an old epoch changes nothing.
	case now.leader == m.o.NodeID:
		m.becomeLeader(p, mp)
		p.applied = now
	default:
		m.becomeFollower(p, now)
		p.applied = now
	}
}

// becomeLeader: an election of this process. Where the archive has more than the log nothing is served before the log begins where
// the archive ends (PROTOCOLS 1.6); the one that leads the archive sees to it.
func (m *Manager) becomeLeader(p *Partition, mp *meta.Partition) {
	m.fetchers.drop(p)
	if p.remote != nil {
		p.remote.Forget() // the archive engine has a manifest of its own
	}
	p.appendMu.Lock()
	if p.tiered.Load() && mp.Pointer.Through > p.log.LEO() && p.ready.Load() {
		p.restarting.Store(true)
	}
	p.comparing.Store(p.unproven(mp))
	eff := p.step(Event{
		Kind: Elected, Epoch: mp.LeaderEpoch, LEO: p.log.LEO(), NowMs: m.nowMs(),
		Version: mp.PartitionEpoch, Replicas: mp.Replicas, ISR: mp.ISR,
	})
	p.following.Store(false)
	p.gone.Store(nil)
	p.appendMu.Unlock()
	p.letGo()
	p.follows(eff)
	if a := p.archive.Swap(nil); a != nil {
		a.Resign()
	}
	if !p.ready.Load() { // it is being opened, or waits for the archive
		if p.resuming.Load() {
			m.leader.addFirst(p) // for the epoch before, the archive may have been given up
		}
		return
	}
	if p.tiered.Load() {
		m.leader.addFirst(p)
	}
	m.announce()
	m.o.Logger.Info("leader", "topic", p.name, "partition", p.id.Partition, "epoch", mp.LeaderEpoch, "offset", p.log.LEO())
}

// unproven: the log may differ from the archive below archived-through although it is longer; what was acknowledged on top of it would be
// lost when the archive wins (PROTOCOLS 1.6). So the archive is asked first, where the leader
//   - was elected uncleanly;
//   - is the only one in sync, so that nobody else has seen to it that it has all: its broker may have come back with an older disk, whose
//     log ends otherwise. It has all if the broker's last process ended in order, and this is its disk; or if this process has compared the
//     log before; or if it has a record of the epoch in which the newest manifest was written: each epoch begins where the archive's epochs
//     end, or above.
//
// All others in sync have all that is archived, and serve also while the object store is away.
func (p *Partition) unproven(mp *meta.Partition) bool {
	if mp.Pointer.Manifest == "" || !p.tiered.Load() {
		return false
	}
	return mp.Recovering || len(mp.ISR) == 1 && !p.proven.Load() && !p.reaches(mp.Pointer.Manifest)
}

// reaches says that the log has an epoch that is not older than that of the manifest.
func (p *Partition) reaches(key string) bool {
	name, ok := manifest.ParseManifestKey(key)
	history := p.log.Epochs()
	return ok && len(history) > 0 && history[len(history)-1].Epoch >= name.LeaderEpoch
}

// becomeFollower: what was led here is led here no more; the log goes on as the leader's copy.
func (m *Manager) becomeFollower(p *Partition, now assignment) {
	if p.Leading() {
		m.o.Logger.Info("not leader any more", "topic", p.name, "partition", p.id.Partition, "epoch", now.epoch, "leader", now.leader)
		p.ledUntil.Store(max(m.nowMs(), 1))
		p.stop(ErrNotLeader)
	}
	p.appendMu.Lock() // an append that was under way ends first
	p.assigned = -1
	p.comparing.Store(false)
	p.step(Event{Kind: Followed, Epoch: now.epoch})
	p.following.Store(true)
	// What was to begin from the archive to be led is what a follower begins from: it asks the leader where, and may start from the archive
	// as well. A replacement that failed half-way has left the log empty or as it was.
	p.restarting.Store(false)
	if p.resuming.CompareAndSwap(true, false) {
		p.ready.Store(true)
	}
	p.appendMu.Unlock()
	p.wakeAll() // who waited for it may read on from the follower, or must go elsewhere
	if now.leader >= 0 && p.Offline() == nil {
		m.fetchers.assign(p, now)
	} else {
		m.fetchers.drop(p)
	}
	m.announce()
}
