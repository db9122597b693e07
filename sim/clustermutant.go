package sim

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/meta"
)

// ClusterMutant is a planted bug of replication. The zero value is none.
type ClusterMutant struct {
	Name      string
	Plan      func(*plan, *clusterPlan)
	KV        func(meta.KV) meta.KV
	Upstream  func(c *Cluster, id int32, u replica.Upstream) replica.Upstream
	Forgetful bool // the end of a process takes what it had not synced
	Hasty     bool // who asks for acks=all gets acks=1, and is not told
}

func (m ClusterMutant) adjust(p *plan, c *clusterPlan) {
	if m.Plan != nil {
		m.Plan(p, c)
	}
}

func (m ClusterMutant) kv(kv meta.KV) meta.KV {
	if m.KV != nil {
		return m.KV(kv)
	}
	return kv
}

func (m ClusterMutant) upstream(c *Cluster, id int32, u replica.Upstream) replica.Upstream {
	if m.Upstream != nil {
		return m.Upstream(c, id, u)
	}
	return u
}

// ClusterMutants are all planted bugs of replication, each at a seam that the broker does not see behind.
func ClusterMutants() []ClusterMutant {
	return []ClusterMutant{
		{Name: "acknowledged before the ISR has it", Hasty: true},
		{Name: "no truncation when the epoch changes", Upstream: func(_ *Cluster, _ int32, u replica.Upstream) replica.Upstream { return forgetfulFollower{u} }},
		{Name: "an ISR is written over a newer record", KV: func(kv meta.KV) meta.KV { return &carelessKV{KV: kv} }},
		{Name: "the high watermark does not wait", Upstream: func(c *Cluster, id int32, u replica.Upstream) replica.Upstream {
			return &boaster{Upstream: u, c: c, id: id}
		}},
		{Name: "the high watermark of group offsets does not wait", Upstream: func(c *Cluster, id int32, u replica.Upstream) replica.Upstream {
			return &boaster{Upstream: u, c: c, id: id, groups: true, late: 500 * time.Millisecond}
		}, Plan: func(p *plan, c *clusterPlan) {
			p.think, p.length, c.groups, c.machines = 60*time.Millisecond, 90*time.Second, true, true
		}},
		{Name: "an unclean leader takes nothing from the archive", KV: func(kv meta.KV) meta.KV { return &editedKV{KV: kv, edit: uncleanAndAlone} },
			Plan: func(p *plan, c *clusterPlan) { p.maxLagMs, c.unclean, c.sole = 500, true, false }},
		{Name: "an undeleted topic forgets its archive", KV: func(kv meta.KV) meta.KV { return &editedKV{KV: kv, edit: withoutArchive} },
			Plan: func(p *plan, _ *clusterPlan) { p.topics = true }},
		{Name: "a killed process takes what it had not synced", Forgetful: true, Plan: func(_ *plan, c *clusterPlan) { c.unclean, c.sole = false, true }},
		{Name: "an unregistered broker has never been there", KV: func(kv meta.KV) meta.KV { return &amnesiac{kv} },
			Plan: func(p *plan, c *clusterPlan) {
				p.length, c.machines, c.partings, c.session = 90*time.Second, true, true, 2*time.Second
			}},
		{Name: "a follower takes its end for the high watermark", Upstream: func(_ *Cluster, _ int32, u replica.Upstream) replica.Upstream { return hastyFollower{u} }},
	}
}

// forgetfulFollower never says which epoch its log ends in, so that no leader finds that it diverges.
type forgetfulFollower struct{ replica.Upstream }

func (f forgetfulFollower) Fetch(ctx context.Context, leader int32, lane int, r *replica.FetchRequest) (*replica.FetchAnswer, error) {
	c := *r
	c.Parts = nil
	for _, p := range r.Parts {
		p.FetchedEpoch = -1
		c.Parts = append(c.Parts, p)
	}
	return f.Upstream.Fetch(ctx, leader, lane, &c)
}

// hastyFollower believes that all that a leader has is committed.
type hastyFollower struct{ replica.Upstream }

func (f hastyFollower) Fetch(ctx context.Context, leader int32, lane int, r *replica.FetchRequest) (*replica.FetchAnswer, error) {
	a, err := f.Upstream.Fetch(ctx, leader, lane, r)
	if err != nil {
		return nil, err
	}
	for i := range a.Parts {
		if p := &a.Parts[i]; p.Err == nil && !p.Diverging {
			p.HW = math.MaxInt64
		}
	}
	return a, nil
}

// carelessKV drops the guard on the partition's record from changes of ISRs, which are those guarded by registrations.
type carelessKV struct{ meta.KV }

func (k *carelessKV) Txn(ctx context.Context, guards []meta.Guard, ops []meta.Op) (bool, int64, error) {
	if len(ops) == 1 && strings.Contains(ops[0].Key, "/partition/") {
		registered := false
		var left []meta.Guard
		for _, g := range guards {
			registered = registered || strings.Contains(g.Key, "/broker/")
			if g.Key != ops[0].Key {
				left = append(left, g)
			}
		}
		if registered {
			guards = left
		}
	}
	return k.KV.Txn(ctx, guards, ops)
}

// Progress implements meta.Progresser.
func (k *carelessKV) Progress(ctx context.Context) error { return k.KV.(meta.Progresser).Progress(ctx) }

// boaster tells the leader, before each fetch, that it has everything already.
type boaster struct {
	replica.Upstream
	c      *Cluster
	id     int32
	groups bool          // only of the partitions of groups
	late   time.Duration // how long it then takes to fetch
}

func (b *boaster) Fetch(ctx context.Context, leader int32, lane int, r *replica.FetchRequest) (*replica.FetchAnswer, error) {
	lie := *r
	lie.Session, lie.SessionEpoch, lie.MaxWait, lie.Parts, lie.Forgotten = 0, -1, 0, nil, nil
	for _, p := range r.Parts {
		known := &part{id: p.ID}
		b.c.history.mu.Lock()
		data := b.c.history.parts[p.ID] != nil
		b.c.history.mu.Unlock()
		if data == b.groups {
			continue
		}
		if rp := b.c.node(leader).partition(known); rp != nil {
			p.Offset, p.FetchedEpoch = rp.LEO(), -1
			lie.Parts = append(lie.Parts, p)
		}
	}
	if len(lie.Parts) > 0 {
		if _, err := b.Upstream.Fetch(ctx, leader, lane, &lie); err != nil {
			return nil, err
		}
		pause(ctx, b.late)
	}
	return b.Upstream.Fetch(ctx, leader, lane, r)
}

// editedKV changes partitions' records on their way.
type editedKV struct {
	meta.KV
	edit func(guards []meta.Guard, record map[string]any)
}

func (k *editedKV) Txn(ctx context.Context, guards []meta.Guard, ops []meta.Op) (bool, int64, error) {
	ops = slices.Clone(ops)
	for i, op := range ops {
		record := map[string]any{}
		if _, _, ok := partitionOf(op); ok && json.Unmarshal(op.Value, &record) == nil {
			k.edit(guards, record)
			ops[i].Value, _ = json.Marshal(record) // of what was read as JSON
		}
	}
	return k.KV.Txn(ctx, guards, ops)
}

// Progress implements meta.Progresser.
func (k *editedKV) Progress(ctx context.Context) error { return k.KV.(meta.Progresser).Progress(ctx) }

// uncleanAndAlone takes the pointer out of the records of leaders that were not in sync.
func uncleanAndAlone(_ []meta.Guard, record map[string]any) {
	if record["recovering"] == true {
		delete(record, "ptr")
	}
}

// withoutArchive takes the pointer out of the records of a topic that is brought back: their transaction is guarded by its deletion.
func withoutArchive(guards []meta.Guard, record map[string]any) {
	if len(guards) > 2 && slices.ContainsFunc(guards, func(g meta.Guard) bool { return strings.Contains(g.Key, "/deleted/") }) {
		delete(record, "ptr")
	}
}
