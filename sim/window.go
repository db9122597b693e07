package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/recovery"
)

// Restores are planned from the living bucket, as `varve restore` does it beside brokers that run: whatever time the window shows is
// promised at that moment. The window's end is the sharpest: the marks say it.

const (
	ruleWindow = "a restore to a time inside the window has what was acknowledged by then"
	ruleOffset = "a restore to an offset has all below it"
)

// window plans restores to the end of the window that the bucket shows now, to an earlier moment inside it, and to offsets.
func (w *stage) window(ctx context.Context, rng *rand.Rand, past []moment) {
	if w.failed() {
		return
	}
	ctx = context.WithoutCancel(ctx) // the end of the run is no end of the bucket
	s, err := recovery.OpenSource(ctx, "mem:", func(context.Context, string) (objstore.Bucket, error) { return w.bucket, nil })
	if err != nil {
		return // there is no archive yet
	}
	inv, err := recovery.TakeInventory(ctx, s)
	if err != nil {
		w.violate("the archive can be read", err.Error())
		return
	}
	list, err := inv.Select(recovery.Request{})
	if err != nil || len(inv.Marks) == 0 {
		return // nothing is promised
	}
	shown := inv.WindowOf(list)
	end := w.history.moment()
	end.ms = shown.To
	at := []moment{end}
	for range 4 { // most are inside
		if len(past) > 0 {
			if m := past[rng.IntN(len(past))]; shown.Contains(m.ms) {
				at = append(at, m)
				break
			}
		}
	}
	for _, m := range at {
		if shown.Contains(m.ms) {
			w.planned(ctx, s, inv, shown, recovery.Target{Kind: recovery.AtTime, Time: m.ms}, ruleWindow, m)
		}
	}
	if len(list) > 0 {
		w.offsetTarget(ctx, rng, s, inv, shown, list[rng.IntN(len(list))])
	}
}

// offsetTarget plans a restore of a topic to any offset of each partition.
func (w *stage) offsetTarget(ctx context.Context, rng *rand.Rand, s *recovery.Source, inv *recovery.Inventory, shown recovery.Window, t *recovery.Topic) {
	to := recovery.Target{Kind: recovery.Offsets}
	for _, p := range t.Partitions {
		if p.Tip != nil {
			off := p.Tip.LogStart + rng.Int64N(p.Tip.Through-p.Tip.LogStart+1)
			to.Offsets = append(to.Offsets, recovery.OffsetPoint{Topic: t.Last().Name, Partition: p.ID.Partition, Offset: off})
		}
	}
	if len(to.Offsets) != int(t.Last().Partitions) {
		return // of one nothing is archived, or the bucket does not know yet how many there are
	}
	m := w.history.moment()
	m.ms = math.MaxInt64
	w.planned(ctx, s, inv, shown, to, ruleOffset, m, t.Last().Name)
}

// planned makes the plan of a restore and compares it with what was acknowledged.
func (w *stage) planned(ctx context.Context, s *recovery.Source, inv *recovery.Inventory, shown recovery.Window, to recovery.Target, rule string, at moment, topics ...string) {
	plan, err := recovery.Prepare(ctx, s, inv, recovery.Request{Target: to, Topics: topics})
	var outside *recovery.TargetError
	switch {
	case errors.As(err, &outside) && to.Kind == recovery.AtTime: // no topic lived then
		plan = &recovery.Plan{}
	case errors.As(err, &outside):
		return
	case err != nil:
		w.violate("a moment can be restored", err.Error())
		return
	}
	have := map[manifest.PartitionID]*recovery.PartitionPlan{}
	for i := range plan.Topics {
		for j := range plan.Topics[i].Partitions {
			p := &plan.Topics[i].Partitions[j]
			have[manifest.PartitionID{Topic: plan.Topics[i].ID, Partition: p.Partition}] = p
		}
	}
	if err := w.history.promised(at, have, to.Kind == recovery.Offsets); err != nil {
		w.violate(rule, fmt.Sprintf("%d, the window is [%d, %d] at %d: %v\n\t%s", w.since(at.ms), w.since(shown.From), w.since(shown.To), time.Since(w.began).Milliseconds(), err, w.summary(inv)))
	}
}

// since is a time, ms, by the run's time.
func (w *stage) since(ms int64) int64 { return ms - w.began.UnixMilli() }

// summary describes the inventory: marks, by the run's time, and what there is.
func (w *stage) summary(inv *recovery.Inventory) string {
	var b strings.Builder
	for _, m := range inv.Marks {
		fmt.Fprintf(&b, "broker %d: all through %d, written at %d; ", m.Broker, w.since(m.TimeMs), w.since(m.Written))
	}
	for _, t := range inv.Topics {
		fmt.Fprintf(&b, "%s (%s), %d partitions;", t.Last().Name, t.ID, t.Last().Partitions)
		for _, p := range t.Partitions {
			if p.Tip != nil {
				fmt.Fprintf(&b, " %d: [%d, %d)", p.ID.Partition, p.Tip.LogStart, p.Tip.Through)
			}
		}
		b.WriteString("; ")
	}
	return b.String()
}

// promised compares plans with what was acknowledged at the moment, and with what was sent after it. Of offset targets only those
// partitions count that are planned.
func (h *History) promised(at moment, have map[manifest.PartitionID]*recovery.PartitionPlan, offsets bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, gone := range at.gone {
		plan := have[p.id]
		if p.open || !p.topic.tiered || plan == nil && offsets || !p.topic.stays(h) {
			continue
		}
		for off, s := range p.known {
			in := plan != nil && plan.Start <= off && off < plan.End && !inGap(plan, off)
			where := fmt.Sprintf("%s-%d (%s): offset %d", p.topic.name, p.id.Partition, p.topic.id, off)
			switch {
			case in && s.after().UnixMilli() > at.ms && p.gen > 0: // as in stays: of what a machine took the bucket may show more than was committed
			case in && s.after().UnixMilli() > at.ms:
				return fmt.Errorf("%s, appended %s later, is in the restore", where, s.after().Sub(time.UnixMilli(at.ms)))
			case in || !s.acked || off < gone:
			case offsets && off >= plan.End:
			case h.mayBeGone(p, off) && (plan == nil || off < plan.Start || off >= plan.End || inGap(plan, off)): // deleted before it was archived
			case s.by().UnixMilli() > at.ms-2*record.AppendResolutionMs:
			case plan == nil && h.wrong > 0: // by the clock that was wrong then the topic did not exist yet
			case plan == nil:
				return fmt.Errorf("%s, acknowledged %s before, is missing: the plan does not have its partition", where, time.UnixMilli(at.ms).Sub(s.by()))
			default:
				return fmt.Errorf("%s, acknowledged %s before, is missing: the restore has [%d, %d), gaps %v", where, time.UnixMilli(at.ms).Sub(s.by()), plan.Start, plan.End, plan.Gaps)
			}
		}
	}
	return nil
}

// stays says that nothing of the topic may be lost. Of a cluster the unarchived tail of one that is deleted may be, with the broker that led
// it; of one that was brought back in the middle of that some is known no more. Called with h.mu held.
func (t *topic) stays(h *History) bool {
	return !t.again && !t.lossy && (!h.replicated || !t.deleting && h.names[t.name] == t)
}

func inGap(p *recovery.PartitionPlan, off int64) bool {
	for _, g := range p.Gaps {
		if g.From <= off && off < g.To {
			return true
		}
	}
	return false
}
