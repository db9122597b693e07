package control

import (
	"slices"

	"github.com/varvelog/varve/meta"
)

// Prefer makes the first replica of a partition its leader: ok is false if it is already, or may not lead now.
func Prefer(img *meta.Image, p *meta.Partition) (e meta.Edit, ok bool) {
	if len(p.Replicas) == 0 {
		return e, false
	}
	want := p.Replicas[0]
	if p.Leader == want || p.Leader < 0 || !img.Eligible(want) || !slices.Contains(p.ISR, want) || slices.Contains(p.Removing, want) ||
		slices.Contains(p.Offline, want) {
		return e, false
	}
	return meta.Edit{
		Base: p, Replicas: p.Replicas, ISR: p.ISR, Adding: p.Adding, Removing: p.Removing,
		Leader: want, Elect: true, Registration: img.Brokers[want].Epoch,
	}, true
}

// ElectUnclean makes the first living replica the leader of a partition that has none; in sync or not. ok is false if there is a leader,
// or no replica lives.
func ElectUnclean(img *meta.Image, t *meta.Topic, p *meta.Partition) (e meta.Edit, ok bool) {
	if p.Leader >= 0 && img.Alive(p.Leader) && !slices.Contains(p.Offline, p.Leader) {
		return e, false
	}
	d := decider{img: img, rules: Rules{Unclean: func(*meta.Topic) bool { return true }}}
	e = meta.Edit{Base: p, Replicas: p.Replicas, ISR: p.ISR, Adding: p.Adding, Removing: p.Removing, Leader: p.Leader}
	d.lead(t, &e)
	return e, e.Leader >= 0 && e.Elect
}

// Rebalance takes leaderships back to the preferred leaders of brokers that lead less than they should: where more than percent of the
// partitions of which a broker is the first replica are led by others (leader.imbalance.per.broker.percentage).
func Rebalance(img *meta.Image, percent int64) []Change {
	total, away := map[int32]int64{}, map[int32]int64{}
	for _, t := range img.Topics {
		for _, p := range t.Partitions {
			total[p.Replicas[0]]++
			if p.Leader != p.Replicas[0] {
				away[p.Replicas[0]]++
			}
		}
	}
	var out []Change
	for _, t := range (Scope{All: true}).topics(img) {
		for _, p := range t.Partitions {
			id := p.Replicas[0]
			if away[id]*100 <= total[id]*percent {
				continue
			}
			if e, ok := Prefer(img, p); ok {
				out = append(out, Change{Topic: t.Name, Edit: e, Reason: Preferred})
			}
		}
	}
	return out
}

// Held counts the partitions that a draining broker still has to be rid of: those that it leads and another broker in their ISR can
// lead, and those that it is in sync with and whose ISR is large enough without it.
func Held(img *meta.Image, id int32, r Rules) int {
	n := 0
	for _, t := range img.Topics {
		for _, p := range t.Partitions {
			others := 0
			for _, o := range p.ISR {
				if o != id && img.Eligible(o) && !slices.Contains(p.Offline, o) {
					others++
				}
			}
			if others > 0 && (p.Leader == id || slices.Contains(p.ISR, id) && others >= r.leastISR(t, p.Replicas)) {
				n++
			}
		}
	}
	return n
}

// OfflinePartitions counts the partitions without a living leader.
func OfflinePartitions(img *meta.Image) int {
	n := 0
	for _, t := range img.Topics {
		for _, p := range t.Partitions {
			if p.Leader < 0 || !img.Alive(p.Leader) {
				n++
			}
		}
	}
	return n
}

// UnderReplicated counts the partitions of which a replica is not in sync, or not there; those that a reassignment adds do not count.
func UnderReplicated(img *meta.Image) int {
	n := 0
	for _, t := range img.Topics {
		for _, p := range t.Partitions {
			for _, r := range p.Replicas {
				if (!slices.Contains(p.ISR, r) || img.Brokers[r] == nil) && !slices.Contains(p.Adding, r) {
					n++
					break
				}
			}
		}
	}
	return n
}
