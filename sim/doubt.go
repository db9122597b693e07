package sim

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

// What a cluster may lose of a lossy topic: an unclean election what the one that is elected lacks, a lost disk what the only replica had
// there, or the only one that is left in sync where one is enough, a deletion what was not archived before the topic was brought back.
// What is archived is never lost. What survives is not known to the history: so all that is not archived is in doubt from then on, and any
// of it that is seen again is beyond doubt again.
//
// Who has not heard of such an event may go on answering. Of a lossy topic only what the leader said counts, in an epoch that is
// not older than the last such event.

// brief is a record that a leader has acknowledged before others had it: as long as it leads in that epoch it has it.
type brief struct {
	value string
	epoch int32
}

// counts says that the answer binds.
func (r request) counts() bool { return !r.p.topic.lossy || r.sure && r.epoch >= r.p.since }

// displace makes room for a value where what was there is in doubt, and lets it appear elsewhere if where it was is. Called with mu held.
func (p *part) displace(off int64, v string, a *attempt) {
	if old := p.known[off]; old != nil && old.doubt && old.value != v {
		p.tries[old.value].at = -1
		delete(p.known, off)
	}
	if a.at >= 0 && a.at != off {
		if old := p.known[a.at]; old != nil && old.doubt {
			delete(p.known, a.at)
			a.at = -1
		}
	}
}

// doubt begins a new generation: what is archived through is sure, and leaders of epochs before since are heard no more. Called with mu
// held.
func (h *History) doubt(p *part, through int64, since int32) {
	p.gen++
	p.since = max(p.since, since)
	p.floor = through
	p.hw, p.end, p.start = 0, 0, 0
	clear(p.brief)
	for off, s := range p.known {
		if off >= p.floor {
			s.doubt, s.blur, s.wrong = true, time.Now(), h.wrong
		}
	}
}

// briefly enters an acknowledgement of a leader that may have the values alone.
func (h *History) briefly(r request, base int64, values []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !r.sure || !r.counts() || r.gen != r.p.gen {
		return
	}
	for i, v := range values {
		r.p.brief[base+int64(i)] = brief{v, r.epoch}
	}
}

// lasted checks what a leader has acknowledged alone, if it leads still. Nothing is written any more.
func (h *History) lasted(p *part, rp *replica.Partition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for off, b := range p.brief {
		if rp == nil || b.epoch != rp.LeaderEpoch() {
			continue
		}
		if off >= rp.LEO() {
			h.fail("a leader keeps what it has acknowledged alone", p, "epoch %d: the log ends at %d, %q was acknowledged at %d", b.epoch, rp.LEO(), clip(b.value), off)
		}
	}
}

// sole says that the topic has one replica.
func (h *History) sole(id manifest.TopicID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.names {
		if t.id == id {
			return t.sole
		}
	}
	return slices.ContainsFunc(h.dead, func(t *topic) bool { return t.id == id && t.sole })
}

// draw decides what kind of topic is made.
func (s *steward) draw(t *topic, configs map[string]string) {
	k := s.kinds.IntN(5)
	switch {
	case k < 2 && s.cluster.shape.unclean:
		t.unclean, t.lossy = true, true
		configs["unclean.leader.election.enable"], configs["min.insync.replicas"] = "true", "1"
	case k > 2 && s.cluster.shape.sole:
		t.sole, t.lossy, t.fixed = true, true, s.kinds.IntN(2) == 0
		configs["min.insync.replicas"] = "1"
	}
}

// witness sees what a broker writes to the metadata store before it is written.
type witness struct {
	meta.KV
	c *Cluster
}

// Txn implements meta.KV. An election of a leader that was not in sync, or whose disk has lost something, puts in doubt what it may lack,
// also if it is refused.
func (w *witness) Txn(ctx context.Context, guards []meta.Guard, ops []meta.Op) (bool, int64, error) {
	for _, op := range ops {
		id, p, ok := partitionOf(op)
		switch {
		case !ok:
		case p.Recovering:
			w.c.history.uncleanly(id, p.Ptr.Through, p.Epoch)
		default:
			w.c.history.led(id, p)
		}
	}
	return w.KV.Txn(ctx, guards, ops)
}

// Progress implements meta.Progresser.
func (w *witness) Progress(ctx context.Context) error { return w.KV.(meta.Progresser).Progress(ctx) }

// written is what a partition's record says, as far as it matters here.
type written struct {
	Leader     int32 `json:"leader"`
	Epoch      int32 `json:"epoch"`
	Recovering bool  `json:"recovering"`
	Ptr        struct {
		Through int64 `json:"through"`
	} `json:"ptr"`
}

// partitionOf reads an op that writes a partition's record.
func partitionOf(op meta.Op) (id manifest.PartitionID, p written, ok bool) {
	_, rest, found := strings.Cut(op.Key, "/partition/")
	topic, number, _ := strings.Cut(rest, "/")
	if !found || op.Delete || json.Unmarshal(op.Value, &p) != nil {
		return id, p, false
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return id, p, false
	}
	id.Partition = int32(n)
	id.Topic, err = manifest.ParseTopicID(topic)
	return id, p, err == nil
}

func (h *History) uncleanly(id manifest.PartitionID, through int64, epoch int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.parts[id]
	switch {
	case p == nil || epoch <= p.since:
	case !p.topic.unclean:
		h.fail("a leader was in sync", p, "epoch %d", epoch)
	default:
		h.w.event("%s-%d is led uncleanly in epoch %d, archived through %d", p.topic.name, id.Partition, epoch, through)
		h.doubt(p, through, epoch)
	}
}

// lacks says that a broker's disk has lost something of partitions that it was in sync with. Where an unclean election is preferred to
// none, min.insync.replicas is 1: the others may go away, cut off from the metadata as well as ended, and leave it as the last one in sync
// before the controller has heard that it came back unclean. Then it leads, which counts as clean, and what it lacks is lost.
func (h *History) lacks(id int32, epochs map[manifest.PartitionID]int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for pid, epoch := range epochs {
		if p := h.parts[pid]; p != nil && p.topic.unclean {
			p.lacking[id] = epoch
		}
	}
}

// regained ends that: the controller has dealt with the broker's return.
func (h *History) regained(id int32, pid manifest.PartitionID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.parts[pid]; p != nil {
		delete(p.lacking, id)
	}
}

// led looks at a record that says who leads.
func (h *History) led(id manifest.PartitionID, w written) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.parts[id]
	if p == nil || w.Epoch <= p.since {
		return
	}
	if was, ok := p.lacking[w.Leader]; ok && w.Epoch > was {
		h.w.event("%s-%d is led in epoch %d by broker %d, whose disk has lost something, archived through %d", p.topic.name, id.Partition, w.Epoch, w.Leader, w.Ptr.Through)
		h.doubt(p, w.Ptr.Through, w.Epoch)
	}
}

// lossy says that what was acknowledged in p may be lost.
func (h *History) lossy(p *part) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return p.topic.lossy
}

// recoveryPoints are the ends of what is durable of a process's logs.
func recoveryPoints(l *life) map[manifest.PartitionID]int64 {
	out := map[manifest.PartitionID]int64{}
	if m := l.manager.Load(); m != nil {
		for _, rp := range m.All() {
			out[rp.ID()] = rp.Log().RecoveryPoint()
		}
	}
	return out
}

// diskGone puts in doubt what a broker's disk may have had alone, above durable.
func (c *Cluster) diskGone(id int32, durable map[manifest.PartitionID]int64) {
	img, err := c.image()
	if err != nil {
		return
	}
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	for pid, p := range c.history.parts {
		t := img.TopicsByID[pid.Topic]
		if t == nil {
			t = img.Deleted[pid.Topic]
		}
		if t == nil || !p.topic.sole || !slices.Contains(t.Partitions[pid.Partition].Replicas, id) {
			continue
		}
		c.history.doubt(p, max(t.Partitions[pid.Partition].Pointer.Through, durable[pid]), 0)
	}
}

var errNotUndeleted = errors.New("it is not there")

// undeleteThrough brings a topic back through a broker, as the command does. What was not archived when it was asked for is in doubt.
func (c *Cluster) undeleteThrough(ctx context.Context, id manifest.TopicID) error {
	img, err := c.image()
	if err != nil || img.Deleted[id] == nil {
		return errors.Join(err, errNotUndeleted)
	}
	name := img.Deleted[id].Name
	c.history.mu.Lock()
	for _, mp := range img.Deleted[id].Partitions {
		if p := c.history.parts[mp.ID]; p != nil {
			c.history.doubt(p, mp.Pointer.Through, mp.LeaderEpoch+1)
		}
	}
	c.history.mu.Unlock()
	to := newRouter(c, c.rand("undelete "+name))
	defer to.close()
	which := id.String()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 10_000
	rc := kmsg.NewCreateTopicsRequestTopicConfig()
	rc.Name, rc.Value = "varve.undelete", &which
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor, rt.Configs = name, -1, -1, append(rt.Configs, rc)
	req.Topics = append(req.Topics, rt)
	for range 5 {
		resp, err := to.do(ctx, nil, req)
		if err == nil {
			c.event("undelete %s: code %d", name, resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
		}
		if img, err := c.image(); err == nil && (img.TopicsByID[id] != nil || img.Deleted[id] == nil) {
			break
		}
		pause(ctx, time.Second)
	}
	return nil
}
