package control

import (
	"context"
	"slices"
	"time"

	"github.com/varvelog/varve/meta"
)

// dropMarks removes the marks of brokers that were unregistered. A broker writes its mark after it has registered, which this image may
// not show yet: it has to be unknown in two rounds.
func (a *Archivist) dropMarks(ctx context.Context) {
	if a.Store.Image().Controller != a.NodeID {
		a.strange = nil
		return
	}
	marks, err := a.Archive.Marks(ctx)
	if err != nil {
		a.Logger.Warn("marks of unregistered brokers", "err", err)
		return
	}
	img := a.Store.Image()
	before := a.strange
	a.strange = map[int32]bool{}
	for _, id := range marks {
		switch {
		case img.Known[id] != nil || img.Brokers[id] != nil:
		case !before[id]:
			a.strange[id] = true
		default:
			if err := a.Archive.DropMark(ctx, id); err != nil {
				a.Logger.Warn("mark of an unregistered broker", "broker", id, "err", err)
				a.strange[id] = true
				continue
			}
			a.Logger.Info("mark of an unregistered broker is removed", "broker", id)
		}
	}
}

const (
	goneLook = 10 * time.Second
	// goneFor is for how long a broker has been away when its mark is removed: longer than those that have taken over need to write marks
	// that are theirs.
	goneFor = time.Minute
	// deletedSlack is how much later than a topic's deletion a mark has to be to say that the topic's tail is archived: the two times are of
	// two clocks, and a leader goes on for a moment.
	deletedSlack = time.Hour
)

// absence is of a broker without a registration.
type absence struct {
	since   time.Time // or since its mark was removed: one that is only cut off from the metadata store may write it again
	dropped bool
}

// dropGone removes the mark of a broker that has been away for a while and has nothing that counts: others lead all that it has replicas
// of, and hold what is not archived of it, and it has archived what it led of deleted topics. Else the window would end where that broker
// did, until it is back; then it writes a mark before it takes a record.
func (a *Archivist) dropGone(ctx context.Context) {
	img := a.Store.Image()
	if img.Controller != a.NodeID {
		a.gone = nil
		return
	}
	if a.gone == nil {
		a.gone = map[int32]*absence{}
	}
	for id := range a.gone {
		if img.Known[id] == nil || img.Brokers[id] != nil {
			delete(a.gone, id)
		}
	}
	for id := range img.Known {
		g := a.gone[id]
		switch {
		case img.Brokers[id] != nil:
		case g == nil:
			a.gone[id] = &absence{since: time.Now()}
		case time.Since(g.since) < goneFor || !replaced(img, id):
		case a.hasTails(ctx, img, id):
		default:
			if err := a.Archive.DropMark(ctx, id); err != nil {
				a.Logger.Warn("mark of a broker that is away", "broker", id, "err", err)
				continue
			}
			if !g.dropped {
				a.Logger.Info("mark of a broker that is away is removed", "broker", id)
			}
			g.since, g.dropped = time.Now(), true
		}
	}
}

// replaced says that others lead every partition that the broker has a replica of.
func replaced(img *meta.Image, id int32) bool {
	for _, t := range img.Topics {
		for _, p := range t.Partitions {
			if slices.Contains(p.Replicas, id) && (p.Leader == id || img.Brokers[p.Leader] == nil) {
				return false
			}
		}
	}
	return true
}

// hasTails says that a topic was deleted whose end may be on the broker's disk alone: nobody is elected for a deleted topic, and other
// replicas are deleted with it, but it can be undeleted, or restored as of before. A mark that is later than the deletion says that the
// broker had archived it.
func (a *Archivist) hasTails(ctx context.Context, img *meta.Image, id int32) bool {
	deleted := int64(0)
	for _, t := range img.Deleted {
		if !t.Collecting && slices.ContainsFunc(t.Partitions, func(p *meta.Partition) bool {
			return p.Leader == id || p.Leader < 0 && slices.Contains(p.ISR, id)
		}) {
			deleted = max(deleted, t.DeletedMs)
		}
	}
	if deleted == 0 {
		return false
	}
	ms, ok, err := a.Archive.MarkOf(ctx, id)
	if err != nil {
		a.Logger.Warn("mark of a broker that is away", "broker", id, "err", err)
	}
	return err != nil || ok && ms < deleted+deletedSlack.Milliseconds()
}
