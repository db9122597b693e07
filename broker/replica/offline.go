package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
)

// A log that met an error of the disk cannot be used until the next start, whose recovery sees what the disk holds. The broker goes on
// with its other logs. It names the replica in the partition's record, so that the controller has another one lead and takes this one out
// of the ISR, and so that clients see it in Metadata. A broker that begins anew is taken off that list by the controller; while it lives
// it puts itself there whenever it is not, and takes itself off where its log is sound: one that was deleted and made anew.

// reporters is how many records are written at once: a disk that fails takes many logs with it.
const reporters = 8

// fail takes p offline. From any goroutine, also with the append lock held.
func (p *Partition) fail(err error) {
	if !errors.Is(err, localseg.ErrOffline) {
		err = fmt.Errorf("%w: %w", localseg.ErrOffline, err)
	}
	if p.offline.CompareAndSwap(nil, &err) {
		p.m.metrics.offline.Inc()
	}
	p.m.offliner.add(p)
}

// Offline is why the log cannot be used, or nil.
func (p *Partition) Offline() error {
	if err := p.offline.Load(); err != nil {
		return *err
	}
	return nil
}

// Offline lists the partitions that are hosted and whose log cannot be used.
func (m *Manager) Offline() []*Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var out []*Partition
	for _, h := range m.byID {
		for _, p := range h.parts {
			if p != nil && p.Offline() != nil {
				out = append(out, p)
			}
		}
	}
	return out
}

// reportOffline ends what waits for failed logs, and names them in the metadata, until ctx ends.
func (m *Manager) reportOffline(ctx context.Context) {
	for {
		p := m.offliner.next(ctx)
		if p == nil {
			return
		}
		if p.Offline() != nil {
			m.fetchers.drop(p)
			p.wakeAll()
			p.wakeTails()
			m.announce()
		}
		m.writeOffline(ctx, p)
	}
}

// misreported says that the record does not say of this broker's log of p what is so.
func (m *Manager) misreported(p *Partition, rec *meta.Partition) bool {
	return m.hasReplica(rec) && slices.Contains(rec.Offline, m.o.NodeID) != (p.Offline() != nil)
}

// writeOffline adds this broker to the offline replicas in p's record, or takes it off, guarded by its registration: a later process is
// not spoken for.
func (m *Manager) writeOffline(ctx context.Context, p *Partition) {
	pause := firstPause
	rec, fresh := m.record(p), false
	for ; ; pause = min(2*pause, maxPause) {
		self := m.o.BrokerEpoch()
		err := errNoRecord
		if rec != nil {
			if !m.misreported(p, rec) || !m.serves(p) {
				return
			}
			if self >= 0 {
				next := *rec
				next.Offline = without(rec.Offline, m.o.NodeID)
				if p.Offline() != nil {
					next.Offline = append(next.Offline, m.o.NodeID)
				}
				next.PartitionEpoch++
				_, err = m.store.UpdatePartition(ctx, &next, meta.BrokerEpoch{ID: m.o.NodeID, Epoch: self})
			}
		}
		switch {
		case err == nil || ctx.Err() != nil || errors.Is(err, meta.ErrIncarnation):
			return
		case errors.Is(err, meta.ErrConflict) && !fresh:
			// The image was behind.
		default:
			m.o.Logger.Debug("report offline log", "topic", p.name, "partition", p.id.Partition, "err", err)
			if wait(ctx, pause) != nil {
				return
			}
		}
		was := rec
		if rec, err = m.store.GetPartition(ctx, p.id); errors.Is(err, meta.ErrUnknownTopic) {
			return
		}
		if fresh = err == nil; !fresh {
			rec = was
		}
	}
}

// serves says that p is what this broker has of the partition, and not what it had before the topic was deleted.
func (m *Manager) serves(p *Partition) bool {
	now, _ := m.find(TopicPartition{ID: p.id.Topic, Partition: p.id.Partition})
	return now == p
}

// without returns a copy of ids that lacks id.
func without(ids []int32, id int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(x int32) bool { return x == id })
}
