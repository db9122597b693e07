package replica

import (
	"slices"
	"time"

	"github.com/varvelog/varve/meta"
)

// hold keeps appends to a partition waiting while it is about to be led by another broker: what is appended now its followers may get
// or not, and who of them has more than the next leader has to cut its log, with syncs, before it counts again. So the leader takes
// nothing more, and by the time of the election, some milliseconds later, all of the ISR have the same; acknowledgements of what was
// appended go on. Clients lose nothing by it: what they are kept waiting for they would have to send again.
//
// Nothing depends on it. The wait is bounded, whether the election comes or not, since followers and metadata may be slow; after that
// appends go on as before.
type hold struct {
	until time.Time
	over  chan struct{} // closed when the partition is led elsewhere, or anew, or goes on here
}

// holdMax bounds how long an append waits for an election that has been announced.
const holdMax = 90 * time.Millisecond

// wait returns when the hold is over.
func (h *hold) wait() {
	left := time.Until(h.until)
	if left <= 0 {
		return
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-h.over:
	case <-t.C:
	}
}

// holdAppends has appends wait from now on. Once for each epoch: a second announcement of the same move does not hold them again.
func (p *Partition) holdAppends() {
	if p.hold.Load() != nil || !p.Leading() {
		return
	}
	p.hold.CompareAndSwap(nil, &hold{until: time.Now().Add(holdMax), over: make(chan struct{})})
}

// letGo ends a hold.
func (p *Partition) letGo() {
	if h := p.hold.Swap(nil); h != nil {
		close(h.over)
	}
}

// yield holds the appends to all that this broker leads and others are to lead, once it is about to stop. Owned by Start, then by Run.
func (m *Manager) yield(img *meta.Image) {
	self := img.Brokers[m.o.NodeID]
	draining := self != nil && self.Draining && self.Epoch == m.o.BrokerEpoch()
	if draining == m.draining {
		return
	}
	m.draining = draining
	for _, p := range m.Led() {
		if mp := img.Partition(p.id); draining && mp != nil && m.yields(img, mp) {
			p.holdAppends()
		} else {
			p.letGo()
		}
	}
}

// yields says that another broker may lead p in this one's stead.
func (m *Manager) yields(img *meta.Image, p *meta.Partition) bool {
	return p.Leader == m.o.NodeID && slices.ContainsFunc(p.ISR, func(id int32) bool {
		return id != m.o.NodeID && img.Eligible(id) && !slices.Contains(p.Offline, id)
	})
}
