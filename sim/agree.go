package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/meta"
)

// settle starts what is down in a cluster without faults, and checks what must be so then.
func (c *Cluster) settle() {
	if c.failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 12*patience)
	defer cancel()
	for _, step := range []func(context.Context){c.startAll, c.land, c.fullISR, c.catchUp, c.sameLogs, c.readBack, c.archivedIsLocal, c.groupOffsets, c.restores} {
		if c.failed() {
			return
		}
		c.audit()
		step(ctx)
	}
}

func (c *Cluster) startAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, n := range c.nodes {
		n.hands.Lock()
		if n.now() == nil {
			n.start(ctx)
		}
		n.hands.Unlock()
	}
	for _, n := range c.nodes {
		n.hands.Lock()
		if n.doubtful {
			c.faults.await(ctx, n)
			n.killed()
			n.start(ctx)
		}
		n.hands.Unlock()
	}
	if ctx.Err() != nil {
		c.violate("a broker starts when nothing is wrong", "it did not")
	}
}

// land waits for transactions that are still on their way: a topic's deletion may be one of them.
func (c *Cluster) land(ctx context.Context) {
	pause(ctx, lateMax)
	if img, err := c.image(); err == nil {
		c.history.gone(img)
	}
}

// gone enters deletions whose answer nobody has seen.
func (h *History) gone(img *meta.Image) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, t := range h.names {
		if t.deleting && img.TopicsByID[t.id] == nil {
			delete(h.names, name)
			h.dead = append(h.dead, t)
		}
	}
}

// fullISR waits until every replica of every partition is in sync, every partition is led, and no reassignment is left.
func (c *Cluster) fullISR(ctx context.Context) {
	for _, p := range append(c.parts(), c.offsetsParts()...) {
		c.until(ctx, "the ISR is full again when nothing is wrong", func() (bool, string) {
			mp, err := c.record(p)
			if err != nil {
				return false, err.Error()
			}
			full := len(mp.ISR) == len(mp.Replicas) && len(mp.Adding)+len(mp.Removing) == 0 && c.led(p) != nil
			why := fmt.Sprintf("%s-%d: leader %d, epoch %d, replicas %v, ISR %v, adding %v, removing %v, led %v", p.topic.name, p.id.Partition,
				mp.Leader, mp.LeaderEpoch, mp.Replicas, mp.ISR, mp.Adding, mp.Removing, c.led(p) != nil)
			for _, id := range mp.Replicas {
				if rp := c.node(id).partition(p); rp != nil {
					why += fmt.Sprintf("; broker %d: [%d, %d), high watermark %d, offline: %v", id, rp.LogStart(), rp.LEO(), rp.HighWatermark(), rp.Offline())
				}
			}
			return full, why
		})
		if c.failed() {
			return
		}
	}
}

// record is the partition's as the metadata store has it.
func (c *Cluster) record(p *part) (*meta.Partition, error) {
	img, err := c.image()
	if err != nil {
		return nil, err
	}
	t := img.TopicsByID[p.id.Topic]
	if t == nil {
		return nil, fmt.Errorf("%s is not there", p.topic.name)
	}
	return t.Partitions[p.id.Partition], nil
}

// sameLogs waits until the replicas of each partition end where its leader ends, with everything committed, and compares them batch by
// batch.
func (c *Cluster) sameLogs(ctx context.Context) {
	for _, p := range append(c.parts(), c.offsetsParts()...) {
		var replicas map[int32]*replica.Partition
		c.until(ctx, "replicas reach the leader when nothing is wrong", func() (ok bool, state string) {
			mp, err := c.record(p)
			if err != nil {
				return false, err.Error()
			}
			replicas = map[int32]*replica.Partition{}
			ends := ""
			ok = c.led(p) != nil
			for _, id := range mp.Replicas {
				rp := c.node(id).partition(p)
				if rp == nil {
					return false, fmt.Sprintf("%s-%d: broker %d has none", p.topic.name, p.id.Partition, id)
				}
				replicas[id] = rp
				ends += fmt.Sprintf(" broker %d: high watermark %d, end %d;", id, rp.HighWatermark(), rp.LEO())
				ok = ok && rp.LEO() == c.led(p).LEO() && rp.HighWatermark() == rp.LEO()
			}
			return ok, fmt.Sprintf("%s-%d:%s", p.topic.name, p.id.Partition, ends)
		})
		if c.failed() {
			return
		}
		if p.topic.name == offsetsTopic {
			continue // each replica compacts its own
		}
		c.history.lasted(p, c.led(p))
		if err := errors.Join(compareLogs(replicas), inOrder(replicas)); err != nil {
			c.violate("replicas do not diverge", fmt.Sprintf("%s-%d (%s): %v", p.topic.name, p.id.Partition, p.topic.id, err))
			return
		}
	}
}

// inOrder checks that append times do not go back in a log, whatever became of clocks.
func inOrder(replicas map[int32]*replica.Partition) error {
	for id, rp := range replicas {
		log := rp.Log()
		times, err := log.AppendTimes(log.LocalStart(), log.LEO())
		if err != nil {
			return fmt.Errorf("append times of broker %d: %w", id, err)
		}
		last := int64(0)
		for _, t := range times {
			if t.Ms < last {
				return fmt.Errorf("append times of broker %d go back at offset %d: %d, was %d", id, t.Offset, t.Ms, last)
			}
			last = t.LastMs()
		}
	}
	return nil
}

// compareLogs compares what any two replicas both have locally.
func compareLogs(replicas map[int32]*replica.Partition) error {
	type holder struct {
		id    int32
		batch []byte
	}
	seen := map[int64]holder{}
	for _, id := range slices.Sorted(maps.Keys(replicas)) {
		batches, err := localBatches(replicas[id].Log())
		if err != nil {
			return fmt.Errorf("broker %d: %w", id, err)
		}
		for off, b := range batches {
			if h, ok := seen[off]; ok && !bytes.Equal(h.batch, b) {
				return fmt.Errorf("brokers %d and %d have different batches at %d", h.id, id, off)
			}
			seen[off] = holder{id, b}
		}
	}
	return nil
}
