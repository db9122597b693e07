package control

import (
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/meta"
)

// Errors of Reassign and Cancel.
var (
	ErrNoReassignment = errors.New("no reassignment is in progress")
	ErrBadReplicas    = errors.New("invalid replicas")
)

// Reassign begins to move a partition onto the target replicas, the first of which is the preferred leader: what is new is added first,
// what goes is removed once the new ones are in sync. A reassignment that is under way is redirected: replicas that it was adding and
// that the new target lacks leave at once; that is refused where too few in sync would be left.
func Reassign(img *meta.Image, t *meta.Topic, p *meta.Partition, target []int32, r Rules) (meta.Edit, error) {
	if err := checkTarget(img, p, target); err != nil {
		return meta.Edit{}, err
	}
	had := without(p.Replicas, func(id int32) bool { return slices.Contains(p.Adding, id) })
	e := meta.Edit{
		Base: p, Leader: p.Leader,
		Adding:   without(target, func(id int32) bool { return slices.Contains(had, id) }),
		Removing: without(had, func(id int32) bool { return slices.Contains(target, id) }),
	}
	e.Replicas = append(slices.Clone(target), e.Removing...)
	e.ISR = without(p.ISR, func(id int32) bool { return !slices.Contains(e.Replicas, id) })
	return e, r.keepLed(img, t, p, &e)
}

// checkTarget refuses what no partition can be moved onto.
func checkTarget(img *meta.Image, p *meta.Partition, target []int32) error {
	if len(target) == 0 {
		return fmt.Errorf("%w: none", ErrBadReplicas)
	}
	for i, id := range target {
		if id < 0 || slices.Contains(target[:i], id) {
			return fmt.Errorf("%w: %v", ErrBadReplicas, target)
		}
		if img.Brokers[id] == nil && img.Known[id] == nil && !slices.Contains(p.Replicas, id) {
			return fmt.Errorf("%w: broker %d of %v is unknown", ErrBadReplicas, id, target)
		}
	}
	return nil
}

// Cancel ends a reassignment where it began: the added replicas leave, the others stay. It is refused where too few in sync would be left.
func Cancel(img *meta.Image, t *meta.Topic, p *meta.Partition, r Rules) (meta.Edit, error) {
	if len(p.Adding) == 0 && len(p.Removing) == 0 {
		return meta.Edit{}, ErrNoReassignment
	}
	added := func(id int32) bool { return slices.Contains(p.Adding, id) }
	e := meta.Edit{Base: p, Replicas: without(p.Replicas, added), ISR: without(p.ISR, added), Leader: p.Leader}
	return e, r.keepLed(img, t, p, &e)
}

// keepLed elects another leader where the edit takes the present one out. It is refused where it takes out who is in sync and leaves fewer
// than min.insync.replicas: what is acknowledged would be on fewer disks than the topic demands, and nothing could be written any more.
// It is refused as well where that many are left, but not there: those may come back without the ends of their logs.
// Kafka's controller refuses only what leaves nobody.
func (r *Rules) keepLed(img *meta.Image, t *meta.Topic, p *meta.Partition, e *meta.Edit) error {
	least := r.leastISR(t, e.Replicas)
	if len(e.ISR) < len(p.ISR) && len(e.ISR) < least {
		return fmt.Errorf("%w: %v of %v would be in sync (%v are), at least %d have to be", ErrBadReplicas, e.ISR, e.Replicas, p.ISR, least)
	}
	away := func(id int32) bool { return !img.Eligible(id) || slices.Contains(p.Offline, id) }
	if there := without(e.ISR, away); len(there) < len(without(p.ISR, away)) && len(there) < least {
		return fmt.Errorf("%w: %v of %v would be in sync and there (%v are in sync), at least %d have to be", ErrBadReplicas, there, e.Replicas, p.ISR, least)
	}
	if p.Leader >= 0 && !slices.Contains(e.ISR, p.Leader) {
		d := decider{img: img}
		if e.Leader = d.candidate(e); e.Leader >= 0 {
			e.Registration = img.Brokers[e.Leader].Epoch
		}
		e.Elect = true
	}
	return nil
}

// complete ends the reassignment of e if all of its added replicas are in sync. Whether those that leave are not needed any more, and who
// leads, is not decided here.
func complete(e *meta.Edit) (meta.Edit, bool) {
	if len(e.Adding) == 0 && len(e.Removing) == 0 {
		return *e, false
	}
	for _, id := range e.Adding {
		if !slices.Contains(e.ISR, id) {
			return *e, false
		}
	}
	leaves := func(id int32) bool { return slices.Contains(e.Removing, id) }
	done := *e
	done.Replicas, done.ISR = without(e.Replicas, leaves), without(e.ISR, leaves)
	done.Adding, done.Removing = nil, nil
	if len(done.ISR) == 0 || len(done.Replicas) == 0 {
		return *e, false
	}
	return done, true
}
