package sim

import (
	"errors"
	"time"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/manifest"
)

// What a crash may take. The end of a process takes nothing: the page cache lives. The end of the machine may take what is
// neither synced nor archived, and what is left is a prefix. Undeleting a topic brings back what was archived of it.

// anchor raises the floors to what is durable now. p may be nil or half started.
func (h *History) anchor(p *process) {
	through := h.w.archivedThrough()
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, t := range through {
		if e := h.parts[id]; e != nil {
			e.floor = max(e.floor, t)
		}
	}
	if p == nil || p.replicas == nil {
		return
	}
	for _, rp := range p.replicas.All() {
		if e := h.parts[rp.ID()]; e != nil && !e.open {
			e.disk = max(e.disk, rp.Log().RecoveryPoint())
			e.floor = max(e.floor, e.disk)
		}
	}
}

// machineCrashed begins a new generation of every partition. Call it after anchor, when nothing runs.
func (h *History) machineCrashed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.parts {
		h.lose(p)
	}
}

// undeleted begins a new generation of a topic whose local logs are gone.
func (h *History) undeleted(t *topic, through map[manifest.PartitionID]int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.again = true
	h.names[t.name] = t
	if h.replicated {
		return // what it may lack is in doubt since before
	}
	t.deleting = false
	for i := range t.partitions {
		p := h.parts[manifest.PartitionID{Topic: t.id, Partition: i}]
		p.floor = through[p.id]
		p.start, p.disk = 0, 0
		h.lose(p)
		p.cut(p.floor)
		p.open = true
	}
}

// lose is called with mu held.
func (h *History) lose(p *part) {
	p.gen++
	p.open = true
	p.hw, p.end = 0, 0
}

// cut forgets what is at and above end. Called with mu held.
func (p *part) cut(end int64) {
	for off, s := range p.known {
		if off >= end {
			if a := p.tries[s.value]; a != nil {
				a.at = -1
			}
			delete(p.known, off)
		}
	}
}

// recovered looks at the logs that a process found, before it serves anybody: how much a lost machine took is known now.
func (h *History) recovered(proc *process) {
	through := h.w.archivedThrough()
	for _, p := range h.unknown() {
		rp, err := proc.replicas.Leader(replica.TopicPartition{Topic: p.topic.name, ID: p.id.Topic, Partition: p.id.Partition})
		switch {
		case err == nil:
			h.found(p, rp.LEO())
		case errors.Is(err, replica.ErrArchive):
			h.found(p, through[p.id]) // it starts from the archive
		default:
			h.w.event("%s-%d stays unknown: %v", p.topic.name, p.id.Partition, err)
		}
	}
}

// blur marks the records whose append times a process that did not end well may have taken with it; a machine may have taken them
// all, since the recovery point speaks of records. Of a cluster any replica may lead later, and archive what it has. What is in the
// archive by now keeps its time, whatever becomes of the log and of the objects.
func (h *History) blur(machine bool) {
	through := h.w.archivedThrough()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.parts {
		for off, s := range p.known {
			if off >= through[p.id] && (machine || h.replicated || off >= p.disk) {
				s.blur, s.wrong = time.Now(), h.wrong
			}
		}
	}
}

// unknown lists the partitions of which it is not known how much was lost.
func (h *History) unknown() (out []*part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.living() {
		if p.open {
			out = append(out, p)
		}
	}
	return out
}

func (h *History) found(p *part, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.w.event("%s-%d recovered to %d, floor %d", p.topic.name, p.id.Partition, end, p.floor)
	if end < p.floor {
		h.fail("what is synced or archived survives the machine", p, "the log ends at %d", end)
	}
	p.cut(end)
	p.floor = max(p.floor, end)
	p.open = false
}
