package control

import (
	"cmp"
	"slices"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

// Reason says why a partition changes; a label of metrics and a word in logs.
type Reason string

const (
	LeaderLost    Reason = "leader-lost"    // the leader is gone
	Returned      Reason = "returned"       // the leader registered anew: it never resumes an epoch (PROTOCOLS 7.3)
	Found         Reason = "found"          // there was no leader, and somebody who may lead has come
	Offline       Reason = "offline"        // nobody may lead
	Unclean       Reason = "unclean"        // led by a replica that was not in sync: records may be lost
	LogFailed     Reason = "log-failed"     // a replica's log met an error of the disk
	Drained       Reason = "drained"        // the leader or a follower is about to stop
	MemberLost    Reason = "member-lost"    // a follower in the ISR is gone
	MemberUnclean Reason = "member-unclean" // a member of the ISR came back without its clean-shutdown mark
	MemberGone    Reason = "member-gone"    // a member of the ISR was unregistered: it will not come back, or not with what it had
	Reassigned    Reason = "reassigned"     // a reassignment is complete
	Preferred     Reason = "preferred"      // the first replica takes its leadership back
)

// Change is what the controller does to one partition.
type Change struct {
	Topic  string
	Edit   meta.Edit
	Reason Reason
}

// Scope is what has to be looked at: the topics in which something has changed, or all.
type Scope struct {
	All    bool
	Topics map[manifest.TopicID]bool
}

func (s *Scope) empty() bool { return !s.All && len(s.Topics) == 0 }

// Rules are what the decision needs and the image does not say. Pure functions.
type Rules struct {
	// Unclean says that the topic prefers a leader that may lack records to none (unclean.leader.election.enable).
	Unclean func(*meta.Topic) bool
	// MinISR is min.insync.replicas of a topic; nil: 1.
	MinISR func(*meta.Topic) int32
}

// leastISR is how many members of an ISR the controller leaves there, though they are gone: below min.insync.replicas nothing becomes
// committed, so that they have all that is, and who seems to be alive may be the one whose disk is lost (KIP-966). The leader may take
// out more of them, since it is alive when it does.
func (r *Rules) leastISR(t *meta.Topic, replicas []int32) int {
	if r.MinISR == nil {
		return 1
	}
	return max(1, min(int(r.MinISR(t)), len(replicas)))
}

// Decision is what follows from an image.
type Decision struct {
	Changes []Change
	// Admit are registrations that have been dealt with once Changes are written.
	Admit []*meta.Broker
}

// Decide says what the image demands: each partition of the scope has a living leader from its ISR, in an epoch that began after its
// registration; who is gone, has a failed log, or may have lost its log's end, is in no ISR of which it is not the last member; complete
// reassignments end. It looks at nothing but the image, so that deciding again, or by another controller, comes to the same, and a change that is
// refused because the partition has moved on is decided anew.
//
// A registration that the controller has not dealt with widens the scope to all.
func Decide(img *meta.Image, scope Scope, r Rules) Decision {
	d := decider{img: img, rules: r, unclean: map[int32]bool{}, emptied: map[int32]bool{}}
	for id := range img.Forgotten {
		d.unclean[id], d.emptied[id] = true, true
	}
	for _, b := range img.Brokers {
		if !img.Admitted(b.ID, b.Epoch) {
			scope.All = true
			d.fresh = append(d.fresh, b)
			d.unclean[b.ID], d.emptied[b.ID] = !cleanly(img, b), emptied(img, b)
		}
	}
	slices.SortFunc(d.fresh, func(a, b *meta.Broker) int { return cmp.Compare(a.Epoch, b.Epoch) })
	var out Decision
	for _, t := range scope.topics(img) {
		for _, p := range t.Partitions {
			if e, why, ok := d.partition(t, p); ok {
				out.Changes = append(out.Changes, Change{Topic: t.Name, Edit: e, Reason: why})
			}
		}
	}
	out.Admit = d.fresh
	return out
}

// topics of the scope, in the order of their names.
func (s Scope) topics(img *meta.Image) []*meta.Topic {
	var out []*meta.Topic
	if s.All {
		for _, t := range img.Topics {
			out = append(out, t)
		}
	} else {
		for id := range s.Topics {
			if t := img.TopicsByID[id]; t != nil {
				out = append(out, t)
			}
		}
	}
	slices.SortFunc(out, func(a, b *meta.Topic) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// cleanly says that a broker that registers has lost nothing: it is, or continues, the very process that the cluster dealt with last. A
// mark that names others is that of an older disk. Whom the cluster has never seen has never held a committed record of it; whom it was
// told to forget may have.
func cleanly(img *meta.Image, b *meta.Broker) bool {
	if img.Forgotten[b.ID] {
		return false
	}
	k := img.Known[b.ID]
	return k == nil || b.Previous != 0 && b.Previous == k.Epoch || k.Process != "" && slices.Contains(b.Line(), k.Process)
}

// emptied says that a broker that registers has another directory than the one that the cluster knows, or may have: all that it had is gone.
func emptied(img *meta.Image, b *meta.Broker) bool {
	k := img.Known[b.ID]
	return img.Forgotten[b.ID] || k != nil && k.Directory != "" && k.Directory != b.Directory
}

// decider is one decision under way.
type decider struct {
	img     *meta.Image
	rules   Rules
	fresh   []*meta.Broker // registrations that have not been dealt with, oldest first
	unclean map[int32]bool // of the fresh ones, those that may have lost the ends of their logs; and who was forgotten
	emptied map[int32]bool // of those, the ones that have lost all
}

// alive: registered. Registrations that are dealt with in this very decision count.
func (d *decider) alive(id int32) bool { return d.img.Brokers[id] != nil }

// has says that the broker can serve its replica: alive, and its log is not offline. A new process is believed to have mended it, and
// says so if not.
func (d *decider) has(e *meta.Edit, id int32) bool {
	return d.alive(id) && (d.isFresh(id) || !slices.Contains(e.Base.Offline, id))
}

func (d *decider) draining(id int32) bool { b := d.img.Brokers[id]; return b != nil && b.Draining }

func (d *decider) isFresh(id int32) bool {
	return slices.ContainsFunc(d.fresh, func(b *meta.Broker) bool { return b.ID == id })
}

// partition decides on one partition; ok false means that it stays as it is.
func (d *decider) partition(t *meta.Topic, p *meta.Partition) (e meta.Edit, why Reason, ok bool) {
	e = meta.Edit{Base: p, Replicas: p.Replicas, ISR: p.ISR, Adding: p.Adding, Removing: p.Removing, Leader: p.Leader}
	why = d.shrink(&e, d.rules.leastISR(t, p.Replicas))
	// Members that are gone may be in the ISR, see shrink, and may come back without their logs' ends: those that leave stay until then.
	if done, ok := complete(&e); ok && len(d.staying(&done)) >= d.rules.leastISR(t, done.Replicas) {
		e, why = done, Reassigned
	}
	if w := d.lead(t, &e); w != "" {
		why = w
	}
	e.Online = without(p.Offline, func(id int32) bool { return !d.isFresh(id) })
	if len(e.Online) > 0 && why == "" {
		why = Returned
	}
	changed := e.Elect || len(e.Online) > 0 || !slices.Equal(e.ISR, p.ISR) || !slices.Equal(e.Replicas, p.Replicas) ||
		len(e.Adding) != len(p.Adding) || len(e.Removing) != len(p.Removing)
	return e, why, changed
}

// shrink takes out of the ISR who must not be in it, but never the last one.
//
//  1. Who came back unclean, or was forgotten. If all of the ISR did, one stays that has its disk still: the leader, or else who registered
//     last: it was the last member when it came.
//  2. Who is gone, or whose log has failed. If fewer than least are left, all stay: each has everything, and whoever comes back first,
//     cleanly, may lead.
//  3. Who is about to stop, unless fewer than least are left.
func (d *decider) shrink(e *meta.Edit, least int) (why Reason) {
	isr := without(e.ISR, func(id int32) bool { return d.unclean[id] })
	if len(isr) == 0 && len(e.ISR) > 0 {
		had := without(e.ISR, func(id int32) bool { return d.emptied[id] })
		if len(had) == 0 {
			had = e.ISR
		}
		isr = []int32{d.lastOf(e, had)}
	}
	if len(isr) < len(e.ISR) {
		if why = MemberUnclean; slices.ContainsFunc(e.ISR, func(id int32) bool { return d.img.Forgotten[id] && !d.alive(id) && !slices.Contains(isr, id) }) {
			why = MemberGone
		}
		e.ISR = isr
	}
	if isr = without(e.ISR, func(id int32) bool { return !d.has(e, id) }); len(isr) >= least && len(isr) < len(e.ISR) {
		if why = LogFailed; slices.ContainsFunc(e.ISR, func(id int32) bool { return !d.alive(id) }) {
			why = MemberLost
		}
		e.ISR = isr
	}
	if isr = d.staying(e); len(isr) >= least && len(isr) < len(e.ISR) {
		e.ISR, why = isr, Drained
	}
	return why
}

// staying are the members of the ISR that can serve their replicas, and are not about to stop.
func (d *decider) staying(e *meta.Edit) []int32 {
	return without(e.ISR, func(id int32) bool { return !d.has(e, id) || d.draining(id) })
}

// lastOf picks who stays of members of an ISR that all came back unclean at once.
func (d *decider) lastOf(e *meta.Edit, of []int32) int32 {
	if slices.Contains(of, e.Leader) {
		return e.Leader
	}
	last := of[0]
	for _, b := range d.fresh {
		if slices.Contains(of, b.ID) {
			last = b.ID
		}
	}
	return last
}

// lead elects where the leader cannot stay; why is empty if it can.
func (d *decider) lead(t *meta.Topic, e *meta.Edit) (why Reason) {
	was := e.Leader
	stays := was >= 0 && d.has(e, was) && slices.Contains(e.ISR, was) && slices.Contains(e.Replicas, was)
	e.Leader = d.candidate(e)
	if stays && !d.isFresh(was) && (!d.draining(was) || e.Leader < 0 || d.draining(e.Leader)) {
		e.Leader = was
		return ""
	}
	switch {
	case e.Leader < 0 && d.rules.Unclean(t) && d.anyone(e) >= 0:
		e.Leader = d.anyone(e)
		e.ISR, e.Unclean = []int32{e.Leader}, true
		why = Unclean
	case e.Leader < 0 && was < 0:
		return ""
	case e.Leader < 0:
		why = Offline
	case was < 0:
		why = Found
	case was == e.Leader:
		why = Returned
	case d.draining(was):
		why = Drained
	case d.alive(was) && !d.has(e, was):
		why = LogFailed
	case !slices.Contains(e.Replicas, was):
		why = Reassigned
	default:
		why = LeaderLost
	}
	e.Elect = true
	if b := d.img.Brokers[e.Leader]; b != nil {
		e.Registration = b.Epoch
	}
	return why
}

// candidate is the first living replica, in the order of the assignment, that is in sync; one that is about to stop only if there is no
// other; -1 if there is none.
func (d *decider) candidate(e *meta.Edit) int32 {
	second := int32(-1)
	for _, id := range e.Replicas {
		switch {
		case !d.has(e, id) || !slices.Contains(e.ISR, id):
		case !d.draining(id):
			return id
		case second < 0:
			second = id
		}
	}
	return second
}

// anyone is the first living replica, in sync or not; -1 if there is none.
func (d *decider) anyone(e *meta.Edit) int32 {
	for _, id := range e.Replicas {
		if d.has(e, id) && !d.draining(id) {
			return id
		}
	}
	return -1
}

// without returns the ids for which drop is false; ids itself if that is all.
func without(ids []int32, drop func(int32) bool) []int32 {
	if !slices.ContainsFunc(ids, drop) {
		return ids
	}
	return slices.DeleteFunc(slices.Clone(ids), drop)
}
