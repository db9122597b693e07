package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/tier"
)

// A restore's pin has the id "restore/<new topic id>/<ms>": it stays as long as the topic is known, living or deleted.
const (
	pinPrefix  = "restore/"
	pinTries   = 64        // transactions; a leader that commits all the time moves the record
	pinPending = time.Hour // a pin without a topic for less may be of a restore under way
)

func pinID(topic manifest.TopicID, now time.Time) string {
	return fmt.Sprintf("%s%s/%d", pinPrefix, topic, now.UnixMilli())
}

func parsePin(id string) (topic manifest.TopicID, ok bool) {
	rest, ok := strings.CutPrefix(id, pinPrefix)
	if !ok {
		return topic, false
	}
	name, ms, ok := strings.Cut(rest, "/")
	topic, err := manifest.ParseTopicID(name)
	_, nerr := strconv.ParseInt(ms, 10, 64)
	return topic, ok && err == nil && nerr == nil
}

// fork reads this cluster's own archive: of each partition the committed manifest, which is pinned in one transaction.
func (j *attachment) fork(ctx context.Context) (err error) {
	if j.src, err = j.ownSource(ctx); err != nil {
		return err
	}
	for id, url := range j.src.Attached {
		// What this cluster refers to elsewhere it holds a lease for; whether that still lives is asked before it is relied on.
		at := j.Store.Image().Attached[id]
		if at == nil || j.validateOnly {
			continue
		}
		b, err := j.src.foreign(id)
		if err != nil {
			return fmt.Errorf("%s: %w", url, err)
		}
		if err := checkLease(ctx, b, id, at.LeaseID); err != nil {
			return err
		}
	}
	j.parts = make([]PartitionPlan, len(j.order.Partitions))
	return j.each(ctx, func(ctx context.Context, n int32) error {
		id := manifest.PartitionID{Topic: j.order.ID, Partition: n}
		return j.pin(ctx, id, func(m *manifest.Manifest) error {
			var err error
			j.parts[n], err = j.plan(ctx, n, m)
			return err
		})
	})
}

// ownSource is the cluster's own archive as a source.
func (j *attachment) ownSource(ctx context.Context) (*Source, error) {
	s := &Source{URL: j.order.URL, Bucket: j.Bucket, open: j.Open}
	return s, s.load(ctx)
}

// pin pins a partition of this cluster while its committed manifest has what use wants of it. use may be called again,
// with a newer manifest; its error ends the attempt.
func (j *attachment) pin(ctx context.Context, id manifest.PartitionID, use func(*manifest.Manifest) error) error {
	pin := meta.Pin{ID: pinID(j.id, time.Now()), Reason: "topic " + j.name + " was restored from it"}
	for range pinTries {
		p, err := j.Store.GetPartition(ctx, id)
		if err != nil {
			return err
		}
		m, err := j.committed(ctx, p)
		if err != nil {
			return err
		}
		if err := use(m); err != nil {
			return err
		}
		if j.validateOnly || m == nil || hasPin(p.Pointer.Pins, j.id) {
			return nil
		}
		next := *p
		next.Pointer.Pins = append(slices.Clone(p.Pointer.Pins), pin)
		_, err = j.Store.UpdatePartition(ctx, &next)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, meta.ErrConflict), errors.Is(err, meta.ErrUnavailable):
			// Read again: the leader has committed, or ours went through without an answer.
		default:
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("pin %s: %w", id, meta.ErrConflict)
}

func hasPin(pins []meta.Pin, topic manifest.TopicID) bool {
	return slices.ContainsFunc(pins, func(p meta.Pin) bool {
		t, ok := parsePin(p.ID)
		return ok && t == topic
	})
}

// committed is the manifest behind a partition's pointer, nil if there is none.
func (j *attachment) committed(ctx context.Context, p *meta.Partition) (*manifest.Manifest, error) {
	if p.Pointer.Manifest == "" {
		return nil, nil
	}
	reader := j.src.Reader
	if j.src.ID() != j.Info.ID {
		own, err := j.ownSource(ctx)
		if err != nil {
			return nil, err
		}
		reader = own.Reader
	}
	m, err := reader.Manifest(ctx, p.Pointer.Manifest)
	if err != nil {
		return nil, &tier.ManifestError{Partition: p.ID, Key: p.Pointer.Manifest, Err: err}
	}
	return m, nil
}

// pinOwn pins those partitions of this cluster whose objects another archive's manifest refers to: what was restored from
// here, and comes back.
func (j *attachment) pinOwn(ctx context.Context, p *PartitionPlan) error {
	refs := map[manifest.PartitionID]map[string]bool{}
	for i := range p.kept {
		if p.kept[i].Archive != j.Info.ID {
			continue
		}
		name, ok := manifest.ParseSegmentKey(p.kept[i].Object)
		if !ok {
			return fmt.Errorf("object %s of this archive is of no partition", p.kept[i].Object)
		}
		if refs[name.Partition] == nil {
			refs[name.Partition] = map[string]bool{}
		}
		refs[name.Partition][p.kept[i].Object] = true
	}
	for id, objects := range refs {
		err := j.pin(ctx, id, func(m *manifest.Manifest) error { return j.listed(ctx, m, objects) })
		if err != nil {
			return fmt.Errorf("pin %s: %w", id, err)
		}
	}
	return nil
}

// listed makes sure that a manifest of this cluster lists the objects, none of them doomed.
func (j *attachment) listed(ctx context.Context, m *manifest.Manifest, objects map[string]bool) error {
	own, err := j.ownSource(ctx)
	if err != nil {
		return err
	}
	left := len(objects)
	if m != nil {
		for e, err := range own.Reader.Entries(ctx, m) {
			if err != nil {
				return err
			}
			if e.Archive == "" && e.State != manifest.Doomed && objects[e.Object] {
				left--
			}
		}
	}
	if left > 0 {
		return fmt.Errorf("%d objects that are referred to are released for deletion; plan again", left)
	}
	return nil
}

// PinSweeper removes the pins of restored topics that are no more: deleted, and collected. Not for concurrent use.
type PinSweeper struct {
	Store *meta.Store

	strange map[string]time.Time // pins of topics that are not known: since when
}

// Sweep is to be called now and then. A pin may be of a restore under way, whose topic is yet to be created: it goes once it has been seen
// without its topic for long, by the process's own time. When it was made is said by the clock of another broker, which may be wrong.
func (s *PinSweeper) Sweep(ctx context.Context) (removed int, err error) {
	img := s.Store.Image()
	before := s.strange
	s.strange = map[string]time.Time{}
	var errs []error
	for _, topics := range []map[manifest.TopicID]*meta.Topic{img.TopicsByID, img.Deleted} {
		for _, t := range topics {
			for _, p := range t.Partitions {
				next := *p
				next.Pointer.Pins = slices.DeleteFunc(slices.Clone(p.Pointer.Pins), func(pin meta.Pin) bool {
					topic, ok := parsePin(pin.ID)
					if !ok || img.TopicsByID[topic] != nil || img.Deleted[topic] != nil {
						return false
					}
					since, seen := before[pin.ID]
					if !seen {
						since = time.Now()
					}
					s.strange[pin.ID] = since
					return time.Since(since) > pinPending
				})
				if len(next.Pointer.Pins) == len(p.Pointer.Pins) {
					continue
				}
				// A conflict is for the next sweep.
				if _, err := s.Store.UpdatePartition(ctx, &next); err != nil && !errors.Is(err, meta.ErrConflict) {
					errs = append(errs, err)
				} else if err == nil {
					removed++
				}
			}
		}
	}
	return removed, errors.Join(errs...)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
