package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/group"
)

const offsetsTopic = "__consumer_offsets"

// offsets is the history of group offsets: commits in their order, by one committer.
type offsets struct {
	w *World

	mu   sync.Mutex
	keys map[offsetKey][]commit // guarded by mu
}

type offsetKey struct {
	group string
	part  *part
}

// commit is one attempt. Once it is sure, and until a machine is lost, no earlier one may be seen any more.
type commit struct {
	offset int64
	sure   bool
	end    int64 // of the group's log when it was sure
}

func newOffsets(w *World) *offsets {
	return &offsets{w: w, keys: map[offsetKey][]commit{}}
}

func groupPartition(g string) int32 { return group.PartitionFor(g, 2) }

// logEnd is where a group's log ends now, and below which offset it is durable.
func (o *offsets) logEnd(p *process, partition int32) (end, floor int64) {
	if p == nil || p.replicas == nil {
		return 0, 0
	}
	for _, rp := range p.replicas.All() {
		if rp.Topic() == offsetsTopic && rp.ID().Partition == partition {
			floor = rp.Log().RecoveryPoint()
			if a := rp.Archive(); a != nil {
				floor = max(floor, a.Through())
			}
			return rp.LEO(), floor
		}
	}
	return 0, 0
}

// floors is what a crash of the machine leaves for sure. Call it while the process runs.
func (o *offsets) floors(p *process) (out [2]int64) {
	for i := range out {
		_, out[i] = o.logEnd(p, int32(i))
	}
	return out
}

func (o *offsets) machineCrashed(floors [2]int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, list := range o.keys {
		for i := range list {
			if list[i].end > floors[groupPartition(k.group)] {
				list[i].sure = false
			}
		}
	}
}

func (o *offsets) begin(k offsetKey, off int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keys[k] = append(o.keys[k], commit{offset: off})
}

// saw enters that off is the committed offset: acknowledged, or answered to a fetch.
func (o *offsets) saw(k offsetKey, off int64, fetched bool) {
	o.w.history.mu.Lock()
	loose := k.part.topic.deleting || o.w.history.names[k.part.topic.name] != k.part.topic
	o.w.history.mu.Unlock()
	if loose {
		return
	}
	end, _ := o.logEnd(o.w.process(), groupPartition(k.group))
	o.mu.Lock()
	list := o.keys[k]
	at := slices.IndexFunc(list, func(c commit) bool { return c.offset == off })
	last := -1
	for i := range list {
		if list[i].sure {
			last = i
		}
	}
	if at >= last && at >= 0 {
		list[at].sure, list[at].end = true, end
		o.mu.Unlock()
		return
	}
	want := "none"
	if last >= 0 {
		want = fmt.Sprint(list[last].offset)
	}
	o.mu.Unlock()
	if fetched && last >= 0 {
		o.w.violate("group offsets survive", fmt.Sprintf("group %s %s-%d: offset %d, committed was %s", k.group, k.part.topic.name, k.part.id.Partition, off, want))
	}
}

// drop forgets what was committed for a topic: its deletion takes the offsets with it.
func (o *offsets) drop(t *topic) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k := range o.keys {
		if k.part.topic == t {
			delete(o.keys, k)
		}
	}
}

// committer commits offsets and asks for them.
type committer struct {
	w   *World
	rng *rand.Rand
	c   caller
	n   int64
}

func newCommitter(w *World) *committer {
	c := &committer{w: w, rng: w.rand("committer")}
	c.c = w.caller(c.rng)
	return c
}

func (c *committer) run(ctx context.Context) {
	defer c.c.close()
	for ctx.Err() == nil {
		pause(ctx, time.Duration(1+c.rng.Int64N(int64(2*c.w.plan.think))))
		p := c.w.history.pick(c.rng)
		if p == nil || ctx.Err() != nil {
			continue
		}
		k := offsetKey{group: fmt.Sprintf("g%d", c.rng.IntN(3)), part: p}
		switch c.rng.IntN(4) {
		case 0:
			c.find(ctx, k.group)
		case 1:
			c.ask(ctx, k)
		default:
			c.commit(ctx, k)
		}
	}
}

// find makes the broker create the topic of the groups.
func (c *committer) find(ctx context.Context, group string) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 4, []string{group}
	c.c.do(ctx, nil, req)
}

// commitOf commits an offset, for whoever is in the group.
func commitOf(k offsetKey, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, k.group, -1
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset = k.part.id.Partition, offset
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.Partitions = k.part.topic.name, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// askFor asks for the committed offset.
func askFor(k offsetKey) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 8
	rt := kmsg.NewOffsetFetchRequestGroupTopic()
	rt.Topic, rt.Partitions = k.part.topic.name, []int32{k.part.id.Partition}
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group, rg.Topics = k.group, append(rg.Topics, rt)
	req.Groups = append(req.Groups, rg)
	return req
}

func (c *committer) commit(ctx context.Context, k offsetKey) {
	c.n++
	c.w.offsets.begin(k, c.n)
	resp, err := c.c.do(ctx, nil, commitOf(k, c.n))
	if err == nil && resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode == 0 {
		c.w.offsets.saw(k, c.n, false)
	}
}

// ask tells whether there was an answer.
func (c *committer) ask(ctx context.Context, k offsetKey) bool {
	resp, err := c.c.do(ctx, nil, askFor(k))
	if err != nil {
		return false
	}
	g := resp.(*kmsg.OffsetFetchResponse).Groups[0]
	if g.ErrorCode != 0 || g.Topics[0].Partitions[0].ErrorCode != 0 {
		return false
	}
	c.w.offsets.saw(k, g.Topics[0].Partitions[0].Offset, true)
	return true
}
