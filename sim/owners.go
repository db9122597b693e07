package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/manifest"
)

// owners looks at all replicas all the time: one process leads in an epoch, and what a leader tells readers to be committed never shrinks.
type owners struct {
	c *Cluster

	mu    sync.Mutex
	epoch map[ownedEpoch]*life // guarded by mu
	hw    map[owned]int64      // guarded by mu
}

type ownedEpoch struct {
	id    manifest.PartitionID
	epoch int32
}

type owned struct {
	ownedEpoch
	by *life
}

func newOwners(c *Cluster) *owners {
	return &owners{c: c, epoch: map[ownedEpoch]*life{}, hw: map[owned]int64{}}
}

// told checks what a reader was given by any replica: it is on all that are in sync now, whoever that is, or it was not committed.
func (o *owners) told(p *part, end int64) {
	mp, err := o.c.record(p)
	if err != nil {
		return // deleted meanwhile
	}
	for _, id := range mp.ISR {
		rp := o.c.node(id).partition(p)
		if rp == nil || rp.LEO() >= end {
			continue
		}
		o.c.faults.mu.Lock()
		o.c.faults.forget()
		sound := o.c.faults.sound(id, p.id)
		o.c.faults.mu.Unlock()
		// Still the same log, and still in sync.
		if now, err := o.c.record(p); err == nil && sound && slices.Contains(now.ISR, id) && o.c.node(id).partition(p) == rp && rp.LEO() < end {
			o.c.violate("readers see only what is committed", fmt.Sprintf("%s-%d (%s): up to %d, broker %d of ISR %v ends at %d",
				p.topic.name, p.id.Partition, p.topic.id, end, id, now.ISR, rp.LEO()))
		}
	}
}

const look = 40 * time.Millisecond

func (o *owners) watch(ctx context.Context) {
	for ctx.Err() == nil {
		for _, n := range o.c.nodes {
			if l := n.now(); l != nil {
				o.look(l)
			}
		}
		pause(ctx, look)
	}
}

func (o *owners) look(l *life) {
	m := l.manager.Load()
	if m == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, rp := range m.All() {
		// The epoch before and after: what is read in between is of it.
		k := ownedEpoch{rp.ID(), rp.LeaderEpoch()}
		leads, before, hw, after := rp.Leading(), serves(rp), rp.HighWatermark(), serves(rp)
		if !leads || !rp.Leading() || rp.LeaderEpoch() != k.epoch {
			continue
		}
		if was := o.epoch[k]; was != nil && was != l {
			o.c.violate("one leader an epoch", fmt.Sprintf("%s-%d: brokers %d and %d lead in epoch %d", rp.Topic(), k.id.Partition, was.n.id, l.n.id, k.epoch))
		}
		o.epoch[k] = l
		if !before || !after {
			continue
		}
		w := owned{k, l}
		if hw < o.hw[w] {
			o.c.violate("the high watermark does not go back", fmt.Sprintf("%s-%d: broker %d, epoch %d: %d, was %d", rp.Topic(), k.id.Partition, l.n.id, k.epoch, hw, o.hw[w]))
		}
		o.hw[w] = hw
	}
}

// serves says that a leader answers: one that may lack what is archived does not before its log is compared with the archive, or begins
// there, which may take its high watermark back.
func serves(rp *replica.Partition) bool { return rp.CheckEpoch(-1) == nil }
