package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// operator creates and deletes topics, brings them back, changes configurations and deletes records.
type operator struct {
	w    *stage
	rng  *rand.Rand
	c    caller
	made int

	replicas    int16                                     // of a new topic
	minISR      string                                    // min.insync.replicas of a new topic
	kind        func(t *topic, configs map[string]string) // decides on a new topic what else may be so of it; nil: nothing
	extra       func(ctx context.Context, p *part)
	extraChance int // one step in so many is extra's; 0: none
}

func newOperator(w *stage) *operator {
	o := &operator{w: w, rng: w.rand("operator"), replicas: 1, minISR: "1"}
	o.c = w.caller(o.rng)
	return o
}

func (o *operator) run(ctx context.Context) {
	defer o.c.close()
	for range 1 + o.rng.IntN(3) {
		o.create(ctx)
	}
	for ctx.Err() == nil {
		pause(ctx, time.Duration(o.rng.IntN(8000))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		p := o.w.history.pick(o.rng)
		if p != nil && o.extraChance > 0 && o.rng.IntN(o.extraChance) == 0 {
			o.extra(ctx, p)
			continue
		}
		switch k := o.rng.IntN(10); {
		case p == nil || k == 0 && o.made < 4:
			o.create(ctx)
		case k < 4:
			o.deleteRecords(ctx, p)
		case k < 7:
			o.configure(ctx, p.topic)
		case k == 7:
			o.grow(ctx, p.topic)
		case o.w.plan.topics && k == 8:
			o.delete(ctx, p.topic)
		case o.w.plan.topics:
			o.undelete(ctx)
		}
	}
}

// ms writes a random one of these.
func (o *operator) pick(values ...string) string { return values[o.rng.IntN(len(values))] }

// create makes a topic. Most drop local data early, some are not archived.
func (o *operator) create(ctx context.Context) {
	o.made++
	t := &topic{name: fmt.Sprintf("t%d", o.made), tiered: o.rng.IntN(6) > 0, windowMs: o.w.plan.windowMs}
	configs := map[string]string{"remote.storage.enable": fmt.Sprint(t.tiered), "retention.ms": "-1", "segment.ms": o.pick("1000", "20000", "3600000"), "min.insync.replicas": o.minISR}
	if t.tiered && o.rng.IntN(3) > 0 {
		configs["local.retention.bytes"] = o.pick("0", "2000", "20000")
	}
	replicas := o.replicas
	if o.kind != nil {
		o.kind(t, configs)
	}
	if t.sole {
		replicas = 1
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 10_000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = t.name, int32(1+o.rng.IntN(3)), replicas
	for k, v := range configs {
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = k, &v
		rt.Configs = append(rt.Configs, rc)
	}
	req.Topics = append(req.Topics, rt)
	for ctx.Err() == nil {
		if resp, err := o.c.do(ctx, nil, req); err == nil {
			o.w.event("create %s: code %d", t.name, resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
		}
		if m := o.lookUp(t.name); m != nil {
			t.id = m.ID
			o.w.history.created(t, int32(len(m.Partitions)))
			return
		}
		pause(ctx, time.Second)
	}
}

// lookUp reads a topic's record from the metadata store itself.
func (o *operator) lookUp(name string) *meta.Topic {
	img, err := o.w.image()
	if err != nil {
		return nil
	}
	return img.Topics[name]
}

func (o *operator) grow(ctx context.Context, t *topic) {
	if t.partitions >= 4 {
		return
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version, req.TimeoutMillis = 3, 10_000
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = t.name, t.partitions+1
	req.Topics = append(req.Topics, rt)
	o.c.do(ctx, nil, req)
	if m := o.lookUp(t.name); m != nil && m.ID == t.id {
		o.w.history.created(t, int32(len(m.Partitions)))
	}
}

func (o *operator) configure(ctx context.Context, t *topic) {
	name, value := "local.retention.bytes", o.pick("0", "3000", "-2")
	switch o.rng.IntN(6) {
	case 0:
		name, value = "local.retention.ms", o.pick("1000", "10000", "-2")
	case 1:
		name, value = "retention.ms", o.pick("20000", "60000")
	case 2:
		name, value = "retention.bytes", o.pick("5000", "30000")
	case 3:
		name, value = "segment.ms", o.pick("500", "5000", "3600000")
	case 4:
		name, value = "archive.max.lag.ms", o.pick("200", "3000", "20000")
	}
	o.alter(ctx, t, name, value)
}

// alter sets a topic's configuration.
func (o *operator) alter(ctx context.Context, t *topic, name, value string) {
	o.w.history.configuring(t, name, value)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	rc.Name, rc.Value = name, &value
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName, rr.Configs = kmsg.ConfigResourceTypeTopic, t.name, append(rr.Configs, rc)
	req.Resources = append(req.Resources, rr)
	if resp, err := o.c.do(ctx, nil, req); err == nil {
		o.w.event("%s %s=%s: code %d", t.name, name, value, resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode)
	}
}

// configuring widens what may happen to a topic from now on.
func (h *History) configuring(t *topic, name, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch name {
	case "retention.bytes":
		t.expires = true
	case "retention.ms":
		var ms int64
		fmt.Sscan(value, &ms)
		if t.retainMs == 0 || ms < t.retainMs {
			t.retainMs = ms
		}
	}
}

func (o *operator) deleteRecords(ctx context.Context, p *part) {
	r := o.w.history.ask(p)
	off := int64(-1)
	if o.rng.IntN(8) > 0 {
		off = r.start + o.rng.Int64N(max(r.hw, r.end, r.start)-r.start+1)
	}
	r = o.w.history.deleting(p, off)
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = 2, 5000
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Partition, rp.Offset = p.id.Partition, off
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic, rt.Partitions = p.topic.name, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := o.c.do(ctx, p, req)
	if err != nil {
		return
	}
	a := resp.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
	o.w.event("delete records of %s-%d before %d: code %d, start %d", p.topic.name, p.id.Partition, off, a.ErrorCode, a.LowWatermark)
	if a.ErrorCode == 0 {
		o.w.history.deleted(r.by(o.c), a.LowWatermark)
	}
}

// delete deletes a topic and waits until it is gone from the metadata.
func (o *operator) delete(ctx context.Context, t *topic) {
	o.w.history.deletingTopic(t)
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = 6, 10_000
	rt := kmsg.NewDeleteTopicsRequestTopic()
	rt.TopicID = t.id
	req.Topics = append(req.Topics, rt)
	for ctx.Err() == nil {
		o.c.do(ctx, nil, req)
		if img, err := o.w.image(); err == nil && img.TopicsByID[t.id] == nil {
			o.w.event("%s is deleted", t.name)
			o.w.history.deletedTopic(t)
			return
		}
		pause(ctx, time.Second)
	}
}

func (h *History) deletingTopic(t *topic) {
	h.mu.Lock()
	t.deleting = true
	t.lossy = t.lossy || h.replicated // who has not heard of the deletion may go on for a while
	h.mu.Unlock()
	h.dropped(t)
}

func (h *History) deletedTopic(t *topic) {
	h.mu.Lock()
	delete(h.names, t.name)
	h.dead = append(h.dead, t)
	h.mu.Unlock()
	h.dropped(t)
}

// undelete brings the topic that was deleted last back, if it is still inside its window.
func (o *operator) undelete(ctx context.Context) {
	t := o.w.history.lastDead()
	if t == nil {
		return
	}
	through := o.w.archivedThrough()
	err := o.w.undelete(ctx, t.id)
	img, ierr := o.w.image()
	if ierr != nil || img.TopicsByID[t.id] == nil {
		o.w.event("undelete %s: %v", t.name, err)
		return
	}
	o.w.event("%s is undeleted", t.name)
	o.w.history.undeleted(t, through)
}

func (h *History) lastDead() *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.dead) == 0 {
		return nil
	}
	t := h.dead[len(h.dead)-1]
	if h.names[t.name] != nil {
		return nil
	}
	h.dead = h.dead[:len(h.dead)-1]
	return t
}
