package replica

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/varvelog/varve/meta"
)

// isrWriters is how many changes of ISRs are written at once.
const isrWriters = 8

// missingCheck is how often it is looked whether an ISR has members that are not registered.
const missingCheck = 500 * time.Millisecond

// watchMissing tells the partitions that are led which members of their ISR are not registered, until ctx ends.
func (m *Manager) watchMissing(ctx context.Context) {
	t := time.NewTicker(missingCheck)
	defer t.Stop()
	told := map[*Partition]bool{} // that some are
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		maps.DeleteFunc(told, func(p *Partition, _ bool) bool { return !p.Leading() }) // an election begins anew
		img := m.store.Image()
		for _, p := range m.Led() {
			away := away(img, m.record(p))
			if len(away) == 0 && !told[p] {
				continue
			}
			if len(away) == 0 {
				delete(told, p)
			} else {
				told[p] = true
			}
			p.do(Event{Kind: Missed, Away: away, NowMs: m.nowMs()})
		}
	}
}

// away are the members of the ISR that are not registered.
func away(img *meta.Image, mp *meta.Partition) (ids []int32) {
	if mp == nil {
		return nil
	}
	for _, id := range mp.ISR {
		if img.Brokers[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// watchLag looks twice in replica.lag.time.max.ms for followers that do not keep up, until ctx ends.
func (m *Manager) watchLag(ctx context.Context) {
	t := time.NewTicker(max(m.o.LagMax/2, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		for _, p := range m.All() {
			if p.Leading() {
				p.do(Event{Kind: Ticked, NowMs: m.nowMs()})
			}
		}
	}
}

// writeISRs writes proposals until ctx ends.
func (m *Manager) writeISRs(ctx context.Context) {
	for {
		p := m.isr.next(ctx)
		if p == nil {
			return
		}
		m.writeISR(ctx, p)
	}
}

func (p *Partition) proposal() *Proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.proposal
}

// writes returns the registration of this broker by which prop is written: the one of the first try, also in later ones. Two workers may be
// at one proposal, where one of them began with the one before; once the first has found that a registration has changed, and that the
// proposal is refused, the other must not write it with the new one.
func (p *Partition) writes(prop *Proposal, self int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if prop.writer == 0 {
		prop.writer = self
	}
	return prop.writer
}

// writeISR writes the proposal of p by a transaction that is guarded by the partition's record, by this broker's registration and by
// those of the joiners (PROTOCOLS 7.2). It goes on until the outcome is known: until then the high watermark counts the old ISR and the
// new one, so that nothing is lost whichever it is.
//
// A try whose answer is lost may land much later. It cannot once the record has changed, or a registration: so only a record with
// another partition epoch, or a refusal, settles a proposal. The archive's pointer is in the same record; when that moves, the
// proposal is tried again on the newer one, and the former try is void.
func (m *Manager) writeISR(ctx context.Context, p *Partition) {
	pause := firstPause
	rec := m.record(p)
	for {
		prop := p.proposal()
		if prop == nil {
			return // a newer record, or another leader, has settled it
		}
		err := m.tryISR(ctx, p, prop, rec)
		if err == nil {
			return
		}
		conflict := errors.Is(err, meta.ErrConflict)
		if !conflict {
			m.o.Logger.Warn("change the ISR", "topic", p.name, "partition", p.id.Partition, "epoch", prop.Epoch, "isr", prop.ISR, "err", err)
			if wait(ctx, pause) != nil || errors.Is(err, meta.ErrIncarnation) {
				return
			}
			pause = min(2*pause, maxPause)
		}
		was := rec
		if rec, err = m.store.GetPartition(ctx, p.id); err != nil {
			if errors.Is(err, meta.ErrUnknownTopic) || ctx.Err() != nil {
				return
			}
			rec = was
			if wait(ctx, pause) != nil {
				return
			}
			continue
		}
		switch {
		case rec.LeaderEpoch != prop.Epoch:
			return // not leader any more: the image will say so
		case rec.PartitionEpoch != prop.Version:
			p.learn(rec)
			return
		case conflict && was != nil && rec.ModRev == was.ModRev:
			// The record is as it was, so a registration is not: who would join is another process now, or we are.
			p.do(Event{Kind: Refused, Epoch: prop.Epoch, Version: prop.Version})
			return
		}
	}
}

// errNoRecord: there is nothing yet on which a proposal can rest.
var errNoRecord = errors.New("no record of the partition, or no registration of this broker")

// tryISR writes prop on top of rec.
func (m *Manager) tryISR(ctx context.Context, p *Partition, prop *Proposal, rec *meta.Partition) error {
	self := m.o.BrokerEpoch()
	if rec == nil || self < 0 {
		return errNoRecord
	}
	if rec.LeaderEpoch != prop.Epoch || rec.PartitionEpoch != prop.Version {
		return meta.ErrConflict
	}
	self = p.writes(prop, self)
	next := *rec
	next.ISR = prop.ISR
	next.PartitionEpoch++
	next.Recovering = false // nobody joins before this leader serves
	alive := []meta.BrokerEpoch{{ID: m.o.NodeID, Epoch: self}}
	for _, j := range prop.Joiners {
		alive = append(alive, meta.BrokerEpoch{ID: j.ID, Epoch: j.BrokerEpoch})
	}
	stored, err := m.store.UpdatePartition(ctx, &next, alive...)
	if err != nil {
		return err
	}
	m.o.Logger.Info("ISR changed", "topic", p.name, "partition", p.id.Partition, "epoch", prop.Epoch, "isr", prop.ISR, "was", rec.ISR)
	if len(prop.Joiners) > 0 {
		m.metrics.isrExpands.Inc()
	} else {
		m.metrics.isrShrinks.Inc()
	}
	p.learn(stored)
	return nil
}

// learn takes over a record that is newer than the image, maybe.
func (p *Partition) learn(rec *meta.Partition) {
	p.do(Event{Kind: Known, Epoch: rec.LeaderEpoch, Version: rec.PartitionEpoch, Replicas: rec.Replicas, ISR: rec.ISR})
}

// record is the image's record of p, nil if there is none.
func (m *Manager) record(p *Partition) *meta.Partition {
	t := m.store.Image().TopicsByID[p.id.Topic]
	if t == nil || int(p.id.Partition) >= len(t.Partitions) {
		return nil
	}
	return t.Partitions[p.id.Partition]
}
