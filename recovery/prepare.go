package recovery

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/manifest"
)

// Prepare makes the plan of a request. It reads and changes nothing: a restore takes a lease before, so that what the plan
// refers to stays. *TargetError: the target is outside of what can be restored. ErrRequest: the request makes no sense. Other errors are
// the store's, or say what is damaged.
func Prepare(ctx context.Context, s *Source, inv *Inventory, req Request) (*Plan, error) {
	if req.Cluster != "" && req.Cluster != inv.Info.Cluster {
		return nil, fmt.Errorf("%w: the archive is of cluster %s, not %s", ErrRequest, inv.Info.Cluster, req.Cluster)
	}
	selected, err := inv.Select(req)
	if err != nil {
		return nil, err
	}
	w := inv.WindowOf(selected)
	if req.Target.Kind == AtTime && len(inv.unread) > 0 {
		return nil, fmt.Errorf("up to when the archive is complete is not known: the mark %s cannot be read; "+
			"its broker writes it anew if it runs; delete the object if that is gone for good, or restore the latest", inv.unread[0])
	}
	if req.Target.Kind == AtTime && !w.Contains(req.Target.Time) {
		return nil, &TargetError{fmt.Sprintf("%s is outside of what can be restored", Stamp(req.Target.Time)), w}
	}
	list, skipped, err := inv.choose(req, selected)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, &TargetError{"no topic existed then", w}
	}
	if err := req.Target.checkOffsets(list); err != nil {
		return nil, err
	}
	p := &Plan{Format: planFormat, Archive: inv.Info.ID, Cluster: inv.Info.Cluster, URL: s.URL, Kind: req.Target.Kind,
		Window: w.JSON(), Consistency: "partition", Skipped: skipped}
	if req.Target.Kind == AtTime {
		at := Time(req.Target.Time)
		p.Time = &at
	}
	for _, c := range list {
		t, err := planTopic(ctx, s, c, req, w)
		if err != nil {
			return nil, err
		}
		p.Topics = append(p.Topics, *t)
		p.Warnings = append(p.Warnings, inv.retentionWarning(t)...)
	}
	for _, d := range inv.Damage {
		if _, _, ok := manifest.ParseTopicRecordKey(d.Object); ok {
			p.Warnings = append(p.Warnings, "a topic is left out, since its records cannot be read: "+d.What)
		}
	}
	if len(inv.Marks) == 0 && len(inv.unread) == 0 {
		p.Warnings = append(p.Warnings, "no broker has left a mark of how far the archive is complete: the newest records may be missing in some partitions")
	}
	return p, checkNames(p.Topics, req.Rename)
}

func planTopic(ctx context.Context, s *Source, c chosen, req Request, w Window) (*TopicPlan, error) {
	t := &TopicPlan{Source: c.rec.Name, ID: c.topic.ID, Name: req.Rename.name(c.rec.Name), Internal: c.rec.Internal,
		Configs: c.rec.Configs, Note: c.note, Partitions: make([]PartitionPlan, c.rec.Partitions)}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inventoryWorkers)
	for n := range c.rec.Partitions {
		g.Go(func() error {
			p, err := resolve(ctx, s, c, n, req.Target, w)
			if err != nil {
				return fmt.Errorf("%s:%d: %w", c.rec.Name, n, err)
			}
			t.Partitions[n] = *p
			return nil
		})
	}
	return t, g.Wait()
}

// resolve finds what a partition comes back with.
func resolve(ctx context.Context, s *Source, c chosen, n int32, target Target, w Window) (*PartitionPlan, error) {
	part := c.topic.Partition(n)
	if part == nil || part.Tip == nil {
		if part != nil && part.Err != nil {
			return nil, part.Err
		}
		if end, ok := target.endOf(c.rec.Name, n); ok && end != 0 {
			return nil, &TargetError{fmt.Sprintf("offset %d of %s:%d is outside of [0, 0]: nothing of it is archived", end, c.rec.Name, n), w}
		}
		return &PartitionPlan{Partition: n}, nil
	}
	tip := part.Tip
	entries, err := allEntries(ctx, s, tip)
	if err != nil {
		return nil, err
	}
	start, end := tip.LogStart, tip.Through
	var leftOut, resolutionMs int64
	switch {
	case target.Kind == Offsets:
		end, _ = target.endOf(c.rec.Name, n)
		if end < tip.LogStart || end > tip.Through {
			return nil, &TargetError{fmt.Sprintf("offset %d of %s:%d is outside of [%d, %d], what the archive has", end, c.rec.Name, n, tip.LogStart, tip.Through), w}
		}
	case c.at != maxTime:
		start, end, err = cutAt(tip, entries, c.at, func(e *manifest.Entry) (*manifest.Footer, error) {
			f, err := s.Reader.Footer(ctx, e)
			if err == nil {
				leftOut, resolutionMs = manifest.CutDoubt(f, e, c.at)
			}
			return f, err
		})
		if err != nil {
			return nil, err
		}
	}
	p := planPartition(n, tip, entries, start, end)
	p.LeftOut, p.ResolutionMs = leftOut, resolutionMs
	return &p, nil
}

// allEntries copies a manifest's whole list.
func allEntries(ctx context.Context, s *Source, m *manifest.Manifest) ([]manifest.Entry, error) {
	var list []manifest.Entry
	for e, err := range s.Reader.Entries(ctx, m) {
		if err != nil {
			return nil, err
		}
		list = append(list, *e)
	}
	return list, nil
}

// retentionWarning says that retention will take records as soon as they are back.
func (inv *Inventory) retentionWarning(t *TopicPlan) []string {
	ms, err := strconv.ParseInt(t.Configs["retention.ms"], 10, 64)
	if err != nil {
		ms = defaultRetentionMs
	}
	policy := t.Configs["cleanup.policy"]
	if ms < 0 || policy == "compact" {
		return nil
	}
	old := slices.ContainsFunc(t.Partitions, func(p PartitionPlan) bool {
		return len(p.kept) > 0 && p.kept[0].MaxTimestamp >= 0 && p.kept[0].MaxTimestamp < inv.Now-ms
	})
	if !old {
		return nil
	}
	return []string{fmt.Sprintf("topic %s: retention.ms=%d holds for restored records too: those with older timestamps are deleted again soon after the start", t.Name, ms)}
}

// defaultRetentionMs is Kafka's default of retention.ms.
const defaultRetentionMs = 7 * 24 * 60 * 60 * 1000
