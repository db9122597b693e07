package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/varvelog/varve/manifest"
)

// owners looks at all replicas all the time: one process leads in an epoch, and what a leader holds for committed never shrinks.
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
		leads, hw := rp.Leading(), rp.HighWatermark()
		if !leads || !rp.Leading() || rp.LeaderEpoch() != k.epoch {
			continue
		}
		if was := o.epoch[k]; was != nil && was != l {
			o.c.violate("one leader an epoch", fmt.Sprintf("%s-%d: brokers %d and %d lead in epoch %d", rp.Topic(), k.id.Partition, was.n.id, l.n.id, k.epoch))
		}
		o.epoch[k] = l
		w := owned{k, l}
		if hw < o.hw[w] {
			o.c.violate("the high watermark does not go back", fmt.Sprintf("%s-%d: broker %d, epoch %d: %d, was %d", rp.Topic(), k.id.Partition, l.n.id, k.epoch, hw, o.hw[w]))
		}
		o.hw[w] = hw
	}
}
