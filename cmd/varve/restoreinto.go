package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/recovery"
)

// restorePlanConfig is the topic config, in CreateTopics alone, whose value is the order of one topic's restore.
const restorePlanConfig = "varve.restore.plan"

// intoCluster restores topics into a running cluster, each by one CreateTopics that carries its part of the plan, so that
// the broker that makes it does what was printed. First all are checked; a topic of the name that was not made by the same
// plan is refused before anything is written. Each topic comes back whole or not at all.
func (f *restoreFlags) intoCluster(ctx context.Context, repo string, req recovery.Request, out printer) error {
	plan, err := prepare(ctx, repo, req)
	if err != nil {
		return err
	}
	out.plan(plan)
	cl, err := dial(ctx, f.into, kgo.FetchMaxBytes(1<<20), kgo.FetchMaxPartitionBytes(64<<10))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(60_000)
	c := &clusterRestore{cl: cl, adm: adm, plan: plan, out: out, rf: f.replication, res: &recovery.Result{Plan: plan, Topics: make([]recovery.RestoredTopic, len(plan.Topics))}}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	p := &progress{w: out.stderr}
	for i := range plan.Topics {
		c.restore(ctx, i)
		p.say("topics", i+1, len(plan.Topics))
	}
	last := fmt.Sprintf("restored into the cluster at %s", f.into)
	if c.before == len(plan.Topics) {
		last = "already restored from the same plan; nothing was changed"
	}
	return out.result(c.res, last)
}

type clusterRestore struct {
	cl     *kgo.Client
	adm    *kadm.Client
	plan   *recovery.Plan
	out    printer
	rf     int16 // -1: the cluster chooses
	res    *recovery.Result
	orders []recovery.Order
	bodies []string
	before int // topics that an earlier run has made
}

// prepare finds topics that exist, and has the cluster check the orders of the others.
func (c *clusterRestore) prepare(ctx context.Context) error {
	there, err := c.adm.ListTopicsWithInternal(ctx)
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	var exist []string
	for i := range c.plan.Topics {
		t := &c.plan.Topics[i]
		o := c.plan.Order(t)
		body, err := o.Encode()
		if err != nil {
			return fmt.Errorf("plan of %s: %w", t.Name, err)
		}
		c.orders, c.bodies = append(c.orders, o), append(c.bodies, string(body))
		c.res.Topics[i] = recovery.RestoredTopic{Name: t.Name}
		if d, ok := there[t.Name]; ok && d.Err == nil {
			if !o.Made(t.Name, manifest.TopicID(d.ID)) {
				exist = append(exist, t.Name)
				continue
			}
			c.res.Topics[i].ID, c.res.Topics[i].Done = manifest.TopicID(d.ID), true
			c.before++
			fmt.Fprintf(c.out.stderr, "%s is there already, from the same plan\n", t.Name)
		}
	}
	if len(exist) > 0 {
		return fmt.Errorf("%s exist in the cluster, and were not made by this plan: use --map or --to-suffix, or delete them; nothing was changed", strings.Join(exist, ", "))
	}
	for i := range c.plan.Topics {
		if c.res.Topics[i].Done {
			continue
		}
		name := c.plan.Topics[i].Name
		r, err := c.adm.ValidateCreateTopics(ctx, -1, c.rf, map[string]*string{restorePlanConfig: &c.bodies[i]}, name)
		if err == nil {
			err = topicRefusal(r[name])
		}
		if err != nil {
			return fmt.Errorf("the cluster refuses to restore %s: %w; nothing was changed", name, err)
		}
	}
	return nil
}

// topicRefusal is the reason of a refusal in the broker's words.
func topicRefusal(r kadm.CreateTopicResponse) error {
	switch {
	case r.Err == nil:
		return nil
	case r.ErrMessage != "":
		return errors.New(r.ErrMessage)
	}
	return r.Err
}

// restore makes one topic and reads back what the cluster has of it.
func (c *clusterRestore) restore(ctx context.Context, i int) {
	t, res := &c.plan.Topics[i], &c.res.Topics[i]
	if !res.Done {
		r, err := c.adm.CreateTopics(ctx, -1, c.rf, map[string]*string{restorePlanConfig: &c.bodies[i]}, t.Name)
		if err == nil {
			err = topicRefusal(r[t.Name])
		}
		if err != nil && errors.Is(r[t.Name].Err, kerr.TopicAlreadyExists) {
			err = c.madeMeanwhile(ctx, i, err) // the first answer may have been lost
		}
		if err != nil {
			res.Error = err.Error()
			return
		}
		if id := r[t.Name].ID; id != (kadm.TopicID{}) {
			res.ID = manifest.TopicID(id)
		}
	}
	if err := c.check(ctx, t, res); err != nil {
		res.Done, res.Error = false, err.Error()
		return
	}
	res.Done = true
}

func (c *clusterRestore) madeMeanwhile(ctx context.Context, i int, cause error) error {
	name := c.plan.Topics[i].Name
	there, err := c.adm.ListTopicsWithInternal(ctx, name)
	if err != nil {
		return err
	}
	if d := there[name]; d.Err == nil && c.orders[i].Made(name, manifest.TopicID(d.ID)) {
		c.res.Topics[i].ID = manifest.TopicID(d.ID)
		return nil
	}
	return cause
}

// checkMax is how long a restored topic may take until it answers.
const checkMax = 60 * time.Second

// check compares the offsets that the cluster has with the plan, and reads the first batch of each partition.
func (c *clusterRestore) check(ctx context.Context, t *recovery.TopicPlan, res *recovery.RestoredTopic) error {
	ctx, cancel := context.WithTimeout(ctx, checkMax)
	defer cancel()
	var starts, ends kadm.ListedOffsets
	for {
		var err error
		if starts, err = c.adm.ListStartOffsets(ctx, t.Name); err == nil {
			ends, err = c.adm.ListEndOffsets(ctx, t.Name)
		}
		if err = errors.Join(err, starts.Error(), ends.Error()); err == nil && len(ends[t.Name]) == len(t.Partitions) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("check: it does not answer yet: %w", errors.Join(err, ctx.Err()))
		case <-time.After(100 * time.Millisecond):
		}
	}
	for n := range t.Partitions {
		p := &t.Partitions[n]
		start, _ := starts.Lookup(t.Name, p.Partition)
		end, _ := ends.Lookup(t.Name, p.Partition)
		res.Ends = append(res.Ends, end.Offset)
		if start.Offset < p.Start || end.Offset < p.End {
			return fmt.Errorf("check: %s:%d has offsets [%d, %d), planned were [%d, %d)", t.Name, n, start.Offset, end.Offset, p.Start, p.End)
		}
	}
	return c.readFirst(ctx, t, starts)
}

// readFirst waits for a record of every partition that has any.
func (c *clusterRestore) readFirst(ctx context.Context, t *recovery.TopicPlan, starts kadm.ListedOffsets) error {
	at := map[int32]kgo.Offset{}
	for n := range t.Partitions {
		if offsets, _ := t.Partitions[n].Records(); offsets > 0 {
			start, _ := starts.Lookup(t.Name, int32(n))
			at[int32(n)] = kgo.NewOffset().At(start.Offset)
		}
	}
	if len(at) == 0 {
		return nil
	}
	c.cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{t.Name: at})
	defer c.cl.RemoveConsumePartitions(map[string][]int32{t.Name: allPartitions(len(t.Partitions))})
	for len(at) > 0 {
		fetched := c.cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("check: %d partitions give no record: %w", len(at), err)
		}
		var failed error
		fetched.EachError(func(_ string, n int32, err error) { failed = fmt.Errorf("check: read partition %d: %w", n, err) })
		if failed != nil {
			return failed
		}
		fetched.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) > 0 {
				delete(at, p.Partition)
			}
		})
	}
	return nil
}

func allPartitions(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}
