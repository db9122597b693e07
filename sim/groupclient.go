package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// commits is the history of group offsets in a cluster. Each offset is committed once, and the commits of a group come from one client.
//
// What is established is that the last one acknowledged, or answered to a fetch, was applied, and all established before it are overwritten.
// A commit whose answer was lost may be applied whenever the network delivers it: it may be seen until it is established itself.
type commits struct {
	c *Cluster

	mu   sync.Mutex
	keys map[offsetKey]*committed // guarded by mu
}

type committed struct {
	sent        map[int64]bool // true: established
	established int64          // the last one; -1: none
	past        []int64        // those before it
}

func newCommits(c *Cluster) *commits { return &commits{c: c, keys: map[offsetKey]*committed{}} }

// drop forgets what was committed for a topic: its deletion takes the offsets with it.
func (o *commits) drop(t *topic) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k := range o.keys {
		if k.part.topic == t {
			delete(o.keys, k)
		}
	}
}

func (o *commits) begin(k offsetKey, off int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys[k] == nil {
		o.keys[k] = &committed{sent: map[int64]bool{}, established: -1}
	}
	o.keys[k].sent[off] = false
}

// saw enters that off, -1 for none, is what is committed: it was acknowledged, or answered to a fetch.
func (o *commits) saw(k offsetKey, off int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := o.keys[k]
	if key == nil {
		return // its topic is being deleted
	}
	was, sent := key.sent[off]
	switch {
	case off == key.established:
	case !sent:
		o.fail(k, off, "which nobody has committed", key)
	case was:
		o.fail(k, off, "which was overwritten", key)
	default:
		key.sent[off] = true
		key.past = append(key.past, key.established)
		key.established = off
	}
}

// fail is called with mu held.
func (o *commits) fail(k offsetKey, off int64, why string, key *committed) {
	o.c.violate("group offsets survive", fmt.Sprintf("group %s (partition %d) %s-%d: offset %d, %s; committed was %d, before %v", k.group, groupPartition(k.group),
		k.part.topic.name, k.part.id.Partition, off, why, key.established, key.past[max(0, len(key.past)-5):]))
}

// list is what was committed at some time.
func (o *commits) list() (out []offsetKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k := range o.keys {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b offsetKey) int { return compareKeys(a, b) })
	return out
}

func compareKeys(a, b offsetKey) int {
	key := func(k offsetKey) string { return fmt.Sprint(k.group, " ", k.part.topic.name, " ", k.part.id.Partition) }
	switch x, y := key(a), key(b); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// offsetsParts are the partitions of groups, for what asks who leads them; none before the topic is there.
func (c *Cluster) offsetsParts() (out []*part) {
	img, err := c.image()
	if err != nil || img.Topics[offsetsTopic] == nil {
		return nil
	}
	t := &topic{name: offsetsTopic, id: img.Topics[offsetsTopic].ID}
	for _, p := range img.Topics[offsetsTopic].Partitions {
		out = append(out, &part{id: p.ID, topic: t})
	}
	return out
}

// groupClient commits offsets of groups of its own, and asks for them. It finds the coordinator as clients do, by asking any broker.
type groupClient struct {
	c      *Cluster
	rng    *rand.Rand
	to     *router
	number int
	n      int64
	belief map[string]int32 // coordinators
}

func newGroupClient(c *Cluster, i int) *groupClient {
	rng := c.rand(fmt.Sprint("group client", i))
	return &groupClient{c: c, rng: rng, to: newRouter(c, rng), number: i, belief: map[string]int32{}}
}

func (g *groupClient) run(ctx context.Context) {
	defer g.to.close()
	for ctx.Err() == nil {
		pause(ctx, time.Duration(1+g.rng.Int64N(int64(2*g.c.plan.think))))
		p := g.c.history.pick(g.rng)
		if p == nil || ctx.Err() != nil || g.c.history.vanishing(p.topic) {
			continue
		}
		k := offsetKey{group: fmt.Sprintf("g%d-%d", g.number, g.rng.IntN(2)), part: p}
		if g.rng.IntN(3) == 0 {
			g.ask(ctx, k)
		} else {
			g.commit(ctx, k)
		}
	}
}

// vanishing says that the topic's offsets may be dropped at any time.
func (h *History) vanishing(t *topic) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return t.deleting
}

// coordinator is who the client believes to coordinate the group.
func (g *groupClient) coordinator(ctx context.Context, group string) (int32, bool) {
	if id, ok := g.belief[group]; ok {
		return id, true
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 4, []string{group}
	resp, err := g.to.to(g.to.any()).do(ctx, nil, req)
	if err != nil {
		return 0, false
	}
	a := resp.(*kmsg.FindCoordinatorResponse).Coordinators
	if len(a) != 1 || a[0].ErrorCode != 0 || g.c.node(a[0].NodeID) == nil {
		return 0, false
	}
	g.belief[group] = a[0].NodeID
	return a[0].NodeID, true
}

// do sends a request to the coordinator. Certain: it led the group's partition all the while.
func (g *groupClient) do(ctx context.Context, group string, req kmsg.Request) (resp kmsg.Response, certain bool) {
	id, ok := g.coordinator(ctx, group)
	if !ok {
		return nil, false
	}
	parts := g.c.offsetsParts()
	if len(parts) == 0 {
		return nil, false
	}
	p := parts[groupPartition(group)]
	before := g.c.leads(id, p)
	resp, err := g.to.to(id).do(ctx, nil, req)
	if err != nil {
		delete(g.belief, group)
		return nil, false
	}
	return resp, before != nil && *before == *orNone(g.c.leads(id, p))
}

func (g *groupClient) commit(ctx context.Context, k offsetKey) {
	g.n++
	g.c.commits.begin(k, g.n)
	resp, _ := g.do(ctx, k.group, commitOf(k, g.n))
	if resp == nil {
		return
	}
	if code := resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code == 0 {
		g.c.commits.saw(k, g.n)
	} else {
		delete(g.belief, k.group)
	}
}

// ask tells whether there was an answer that counts.
func (g *groupClient) ask(ctx context.Context, k offsetKey) bool {
	resp, certain := g.do(ctx, k.group, askFor(k))
	if resp == nil {
		return false
	}
	a := resp.(*kmsg.OffsetFetchResponse).Groups[0]
	if a.ErrorCode != 0 || a.Topics[0].Partitions[0].ErrorCode != 0 {
		delete(g.belief, k.group)
		return false
	}
	if certain {
		g.c.commits.saw(k, a.Topics[0].Partitions[0].Offset)
	}
	return certain
}

// groupOffsets asks for all that was committed.
func (c *Cluster) groupOffsets(ctx context.Context) {
	g := newGroupClient(c, 99)
	defer g.to.close()
	for _, k := range c.commits.list() {
		if c.history.vanishing(k.part.topic) {
			continue
		}
		c.until(ctx, "group offsets can be asked for when nothing is wrong", func() (bool, string) { return g.ask(ctx, k) || c.failed(), k.group })
		if c.failed() {
			return
		}
	}
}
