package replica

import (
	"math"
	"slices"

	"github.com/varvelog/varve/meta"
)

// archivedBy is tier.Held of this broker. A follower's records count as well: whoever leads them may be gone the next moment, and this
// broker in its place, with a mark that says they are archived.
func (m *Manager) archivedBy(upTo int64, last bool) (through int64, ok bool) {
	m.clock.Pass(upTo)
	through = upTo
	img := m.store.Image()
	for _, t := range img.Deleted {
		through = min(through, recorded(t))
	}
	if m.deleting(img) || last && m.owing.Load() {
		return 0, false
	}
	for _, g := range m.allPartings() {
		ms, pending, err := g.unarchived()
		if err != nil {
			return 0, false
		}
		if pending {
			through = min(through, ms-1)
		}
	}
	for _, t := range img.Topics {
		for i, mp := range t.Partitions {
			if mp.Leader != m.o.NodeID && !slices.Contains(mp.Replicas, m.o.NodeID) {
				continue
			}
			through = min(through, recorded(t))
			if last && !m.answersAlone(mp) {
				continue
			}
			ms, pending, ok := m.unarchived(t, int32(i), mp)
			if !ok {
				return 0, false
			}
			if pending {
				through = min(through, ms-1)
			}
		}
	}
	return through, true
}

// answersAlone says that nobody leads the partition, so that each member of its ISR has to answer for all that was acknowledged: the others
// may be those that came back without their logs' ends, and the broker whose log is offline, or that is about to stop, the one that will
// lead it.
func (m *Manager) answersAlone(mp *meta.Partition) bool {
	return mp.Leader < 0 && slices.Contains(mp.ISR, m.o.NodeID)
}

// deleting: it is not known yet what topics that are deleted have left here.
func (m *Manager) deleting(img *meta.Image) bool {
	if len(img.Deleted) > 0 && !m.swept.Load() {
		return true
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.going) > 0 {
		return true
	}
	for id := range m.byID {
		if img.TopicsByID[id] == nil {
			return true // the deletion is being noticed
		}
	}
	return false
}

// recorded is up to when, ms, the bucket knows what there was of a topic. It restores none whose record it does not have.
func recorded(t *meta.Topic) int64 {
	switch {
	case t.Version <= t.Archived:
		return math.MaxInt64
	case t.BehindMs == 0:
		return t.ChangedMs - 1
	}
	return t.BehindMs - 1
}

// unarchived is since when, ms, there is something in a replica here that is not archived; not ok: that is not known now.
func (m *Manager) unarchived(t *meta.Topic, partition int32, mp *meta.Partition) (ms int64, pending, ok bool) {
	p, _ := m.find(TopicPartition{ID: t.ID, Partition: partition})
	switch {
	case p != nil && (p.Offline() != nil || p.failed.Load()):
		return 0, false, mp.Leader != m.o.NodeID && !m.answersAlone(mp) // others have what counts of it
	case p == nil:
		return 0, false, false // its log is being opened
	case p.resuming.Load():
		return 0, false, true // it has nothing that the archive has not
	case !p.ready.Load():
		return 0, false, false
	case !p.tiered.Load():
		return 0, false, true
	}
	through := mp.Pointer.Through
	if a := p.archive.Load(); a != nil {
		through = max(through, a.Through())
	}
	ms, pending, err := p.log.AppendedSince(through)
	if err != nil {
		return 0, false, false
	}
	if pending {
		if _, c := m.o.TopicConfig(t); c.CopyDisabled {
			return 0, false, true // nothing is promised of it
		}
	}
	return ms, pending, true
}
