package replica

import (
	"context"
	"time"

	"github.com/varvelog/varve/localseg"
)

// flush makes rolled segments durable, off the path of acknowledgements, until ctx ends.
func (m *Manager) flush(ctx context.Context) {
	for {
		p := m.flusher.next(ctx)
		if p == nil {
			return
		}
		if p.unreadable() != nil {
			continue
		}
		if err := p.log.FlushRolled(); err != nil && p.unreadable() == nil {
			m.o.Logger.Error("flush log", "topic", p.name, "partition", p.id.Partition, "err", err)
		}
	}
}

// backlogCheck is how often the bytes that wait for the archive are counted anew, where there is a limit.
const backlogCheck = time.Second

// keepHouse applies retention and counts the backlog until ctx ends.
func (m *Manager) keepHouse(ctx context.Context) {
	retain := time.NewTicker(m.o.RetentionCheck)
	defer retain.Stop()
	var backlog <-chan time.Time
	if m.o.LocalMaxBytes > 0 {
		t := time.NewTicker(backlogCheck)
		defer t.Stop()
		backlog = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-retain.C:
			m.retain(ctx)
			if time.Since(m.flushed) >= wholeFlush {
				m.flushed = time.Now()
				m.flushAll()
			}
		case <-backlog:
			m.countBacklog()
		}
	}
}

// wholeFlush is how often, at most, active segments are flushed: by then the system has written most of them anyway.
const wholeFlush = 5 * time.Minute

// retain deletes what retention allows. Local data of a tiered topic goes only below what is committed to the archive.
func (m *Manager) retain(ctx context.Context) {
	now := m.o.Wall.Ms()
	for _, p := range m.All() {
		if ctx.Err() != nil {
			return
		}
		through := m.archivedThrough(p)
		p.appendMu.Lock()
		if p.unreadable() != nil || !p.tiered.Load() && p.uncommittedSegment() {
			p.appendMu.Unlock()
			continue
		}
		deleted, err := p.log.Retain(now, through)
		p.appendMu.Unlock()
		if err != nil {
			m.o.Logger.Error("retention", "topic", p.name, "partition", p.id.Partition, "err", err)
			continue
		}
		m.metrics.retained.Add(float64(deleted))
		if a := p.archive.Load(); a != nil && p.Leading() {
			a.Notify() // it may have rolled
		}
	}
}

// flushAll makes everything durable, so that recovery after a crash has a bounded past to look at.
func (m *Manager) flushAll() {
	var logs []*localseg.Log
	for _, p := range m.All() {
		if p.unreadable() == nil {
			logs = append(logs, p.log)
		}
	}
	if err := localseg.FlushAll(logs); err != nil {
		m.o.Logger.Error("flush logs", "err", err)
	}
}

// archivedThrough is the offset below which everything of p is committed to the archive, as far as is known.
func (m *Manager) archivedThrough(p *Partition) int64 {
	through := int64(0)
	if a := p.archive.Load(); a != nil {
		through = a.Through()
	}
	if p.Leading() {
		return through // what its own archive engine has compared with the log
	}
	if rec := m.record(p); rec != nil {
		through = max(through, rec.Pointer.Through)
	}
	return through
}

// uncommittedSegment says that a closed segment has records above the high watermark: retention waits until they are decided.
func (p *Partition) uncommittedSegment() bool {
	hw := p.hw.Load()
	if hw >= p.log.LEO() {
		return false
	}
	segs := p.log.Segments()
	return len(segs) > 0 && segs[len(segs)-1].Base > hw
}

// countBacklog counts the local bytes of tiered partitions that are not archived. A segment that is archived in part counts whole.
func (m *Manager) countBacklog() {
	var sum int64
	for _, p := range m.All() {
		if !p.tiered.Load() || !p.Leading() {
			continue
		}
		if p.dirty.Swap(false) || p.backlog.Load() > 0 {
			through := int64(0)
			if a := p.archive.Load(); a != nil {
				through = a.Through()
			}
			var n int64
			for _, s := range p.log.Segments() {
				if s.End > through {
					n += s.SizeBytes
				}
			}
			p.backlog.Store(n)
		}
		sum += p.backlog.Load()
	}
	m.backlog.Store(sum)
}
