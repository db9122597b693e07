package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/tier"
)

// follow applies each new image until ctx ends.
func (m *Manager) follow(ctx context.Context) {
	for {
		if m.apply(ctx, m.store.Image()) > 0 {
			// Something is left to be elected: the election changes the image; if it could not be written, try again.
			timer := time.NewTimer(time.Second)
			select {
			case <-timer.C:
			case <-m.changed:
			case <-ctx.Done():
			}
			timer.Stop()
		} else {
			select {
			case <-m.changed:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// apply makes what is hosted agree with img; it returns how many partitions still have to be elected.
func (m *Manager) apply(ctx context.Context, img *meta.Image) int {
	m.dropGone(img)
	inherited := m.inherited(img)
	if inherited {
		m.setThrottle()
	}
	var opening []*Partition
	var elections []meta.Election
	for _, t := range img.Topics {
		h := m.host(t)
		if h.seen == t && !inherited {
			continue
		}
		changed := h.seen == nil || h.seen.Version != t.Version || inherited
		complete := true
		for i, mp := range t.Partitions {
			if !changed && i < len(h.seen.Partitions) && h.seen.Partitions[i] == mp {
				continue // most of them: with thousands, each pointer that moves makes a new image
			}
			p := m.hostedPart(h, i)
			switch {
			case p != nil && !m.hasReplica(mp):
				m.unassign(h, p)
			case p != nil:
				m.refresh(p, t, mp, changed)
			case !m.hasReplica(mp):
			case m.electsSelf(mp) && !(mp.Leader == m.o.NodeID && m.fresh(mp)):
				complete = false
				elections = append(elections, meta.Election{ID: mp.ID, Leader: m.o.NodeID, ISR: []int32{m.o.NodeID}})
			default:
				opening = append(opening, m.newPartition(h, t, mp))
			}
		}
		if complete {
			h.seen = t
		}
	}
	m.yield(img)
	m.openAll(opening, img)
	if len(elections) > 0 {
		if err := m.store.Elect(ctx, elections); err != nil && !errors.Is(err, meta.ErrConflict) {
			m.o.Logger.Warn("elect", "partitions", len(elections), "err", err)
		}
	}
	return len(elections)
}

// fresh says that mp's epoch is not one of a former process.
func (m *Manager) fresh(mp *meta.Partition) bool {
	former, ok := m.former[mp.ID]
	return !ok || mp.LeaderEpoch > former
}

// inherited tells whether the configuration that topics inherit has changed since the last call.
func (m *Manager) inherited(img *meta.Image) bool {
	var b strings.Builder
	for _, res := range []string{"broker/", fmt.Sprintf("broker/%d", m.o.NodeID)} {
		for _, k := range slices.Sorted(maps.Keys(img.Configs[res])) {
			fmt.Fprintf(&b, "%s %q=%q\n", res, k, img.Configs[res][k])
		}
	}
	changed := b.String() != m.configs
	m.configs = b.String()
	return changed
}

// host returns the entry of a topic, made if it is not there.
func (m *Manager) host(t *meta.Topic) *hosted {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.byID[t.ID]
	if h == nil {
		h = &hosted{id: t.ID, name: t.Name}
		m.byID[t.ID] = h
		m.byName[t.Name] = h
	}
	if n := len(t.Partitions); n > len(h.parts) {
		h.parts = append(slices.Clone(h.parts), make([]*Partition, n-len(h.parts))...)
	}
	return h
}

func (m *Manager) hostedPart(h *hosted, i int) *Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return h.parts[i]
}

// refresh takes over a changed record: another leader, a new epoch, another ISR, other configs.
func (m *Manager) refresh(p *Partition, t *meta.Topic, mp *meta.Partition, changed bool) {
	if m.misreported(p, mp) {
		m.offliner.add(p)
	}
	if p.log != nil {
		m.assume(p, mp)
	}
	if !changed {
		return
	}
	// A copy, so that who compares pointers sees that something has changed, also where only the inherited configuration has.
	record := *t
	p.topic.Store(&record)
	if !p.ready.Load() {
		return // it reads the configuration when it is opened
	}
	m.configure(p)
}

// configure hands the topic's configuration to log and archive.
func (m *Manager) configure(p *Partition) {
	cfg, tcfg := m.o.TopicConfig(p.topic.Load())
	p.log.SetConfig(cfg)
	p.do(Event{Kind: Configured, MinISR: m.o.MinISR(p.topic.Load())})
	leader, follower := m.o.Throttled(p.topic.Load())
	p.throttledLeader.Store(throttled(leader, p.id.Partition, m.o.NodeID))
	p.throttledFollower.Store(throttled(follower, p.id.Partition, m.o.NodeID))
	p.tiered.Store(cfg.Tiered && m.tiers != nil)
	if a := p.archive.Load(); a != nil {
		a.SetConfig(tcfg)
	} else if p.tiered.Load() && p.Leading() && p.log.LEO() > 0 {
		m.leader.add(p)
	}
}

// dropGone stops and removes the partitions of topics that are not there any more.
func (m *Manager) dropGone(img *meta.Image) {
	var gone []*hosted
	m.mu.Lock()
	for id, h := range m.byID {
		if t := img.Topics[h.name]; t != nil && t.ID == id {
			continue
		}
		gone = append(gone, h)
		for _, p := range h.parts {
			if p != nil {
				m.going[p] = struct{}{}
			}
		}
		delete(m.byID, id)
		if m.byName[h.name] == h {
			delete(m.byName, h.name)
		}
	}
	m.mu.Unlock()
	if len(gone) == 0 {
		return
	}
	m.announce()
	for _, h := range gone {
		for _, p := range h.parts {
			if p != nil {
				delete(m.former, p.id)
				m.remove(p)
			}
		}
	}
}

// remove stops a partition of a deleted topic, and deletes its files once its tail is archived: a deleted topic can be undeleted, with what
// was acknowledged a moment ago.
func (m *Manager) remove(p *Partition) {
	if p.failed.Load() || p.log == nil {
		m.forgo(p)
		return // its directory is swept at the next start
	}
	led := p.Leading()
	p.leave(ErrUnknownPartition)
	m.fetchers.drop(p)
	p.appendMu.Lock() // an append that was under way ends first; none begins afterwards
	a := p.archive.Load()
	p.appendMu.Unlock()
	_, c := m.o.TopicConfig(p.topic.Load())
	committed := p.Committed()
	if t := m.store.Image().Deleted[p.id.Topic]; !led && t != nil && int(p.id.Partition) < len(t.Partitions) && m.endsHere(t.Partitions[p.id.Partition]) {
		led, committed = true, p.log.FirstUnstable() // nobody led it: as the next process would
	}
	if led && p.tiered.Load() && !c.CopyDisabled {
		g := m.newParting(p.topic.Load(), p.id, p.log, committed)
		g.archive.Store(a)
		if through, there := g.through(); there && through < g.committed {
			m.keep(g)
			m.forgo(p)
			return
		}
		g.cancel()
	}
	if a != nil {
		a.Resign()
	}
	m.forgo(p)
	m.removeLog(p)
}

// forgo takes a partition off what the mark waits for: it is a parting, or has nothing to wait for.
func (m *Manager) forgo(p *Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.going, p)
}

// unassign ends a replica that this broker is not to have any more, and deletes its files.
func (m *Manager) unassign(h *hosted, p *Partition) {
	m.mu.Lock()
	h.parts[p.id.Partition] = nil
	m.mu.Unlock()
	m.announce()
	if p.failed.Load() || p.log == nil {
		return
	}
	p.stop(ErrNotLeader)
	m.fetchers.drop(p)
	m.removeLog(p)
}

// removeLog deletes the files of a partition that is not served any more.
func (m *Manager) removeLog(p *Partition) {
	p.appendMu.Lock() // retention is the other caller
	err := p.log.Remove()
	p.appendMu.Unlock()
	if err != nil {
		m.o.Logger.Error("remove log", "topic", p.name, "partition", p.id.Partition, "err", err)
		return
	}
	m.o.Logger.Info("partition removed", "topic", p.name, "partition", p.id.Partition)
}

// openAll opens logs, several at once, makes durable what was recovered, all together, and lets them be served.
func (m *Manager) openAll(parts []*Partition, img *meta.Image) {
	if len(parts) == 0 {
		return
	}
	logs := make([]*localseg.Log, len(parts))
	var g errgroup.Group
	g.SetLimit(closers)
	for i, p := range parts {
		g.Go(func() error {
			logs[i] = m.open(p)
			return nil
		})
	}
	g.Wait()
	opened := slices.DeleteFunc(slices.Clone(logs), func(l *localseg.Log) bool { return l == nil })
	if err := localseg.SyncRecovered(opened); err != nil {
		m.o.Logger.Error("sync recovered logs", "err", err) // those that it concerns are offline
	}
	for i, p := range parts {
		if logs[i] != nil {
			p.log = logs[i]
			m.admit(p, img.TopicsByID[p.id.Topic].Partitions[p.id.Partition])
		}
	}
	m.announce()
}

// newPartition enters a partition; it is not served before open.
func (m *Manager) newPartition(h *hosted, t *meta.Topic, mp *meta.Partition) *Partition {
	p := &Partition{m: m, id: mp.ID, name: t.Name, assigned: -1, former: -1, applied: assignment{leader: -1, epoch: -1}}
	if former, ok := m.former[mp.ID]; ok {
		p.former = former
	}
	p.core.self, p.core.lagMs = m.o.NodeID, m.o.LagMax.Milliseconds()
	if m.tiers != nil {
		p.remote = m.tiers.Follow(p.id, func() tier.Pointer { return m.pointer(p) })
	}
	p.gone.Store(&ErrNotLeader) // until it is elected
	p.proven.Store(m.o.Intact)
	p.topic.Store(t)
	m.mu.Lock()
	h.parts[mp.ID.Partition] = p
	m.mu.Unlock()
	delete(m.former, mp.ID)
	return p
}
