// Package control is the control of the cluster: where replicas go and who leads (pure: Place, Decide, Reassign, Prefer), and the shell
// around it: the controller under its lease, a broker's registration, the detector of crashed brokers, the archivist of topic records.
// It moves no data and knows no Kafka wire. cmd/varve runs the shell, broker's administrative handlers call the pure part.
//
// Every change is a transaction guarded by the record that was looked at, those of the controller by its term too; a crash between two
// leaves partitions to be decided on by the next controller, which looks at the image alone.
package control

import (
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/meta"
)

// ErrTooFewBrokers: fewer brokers than replicas asked for, or none of them lives.
var ErrTooFewBrokers = errors.New("replication factor larger than available brokers")

// Place assigns replicas to n partitions, each on rf different brokers: racks apart where there are enough of them, leaders and replicas on
// the brokers that have the fewest so far. The first replica is the preferred leader. The same image gives the same answer.
//
// Brokers that are known but away, or about to stop, are taken for what the living ones are too few for, and never as the first replica: they
// join the ISR once they are back (as Kafka's StripedReplicaPlacer takes fenced brokers).
func Place(img *meta.Image, n, rf int) ([][]int32, error) {
	var living, away []int32
	for id := range img.Brokers {
		if img.Eligible(id) {
			living = append(living, id)
		} else {
			away = append(away, id)
		}
	}
	for id := range img.Known {
		if img.Brokers[id] == nil {
			away = append(away, id)
		}
	}
	slices.Sort(living)
	slices.Sort(away)
	if all := len(living) + len(away); len(living) == 0 || rf < 1 || rf > all {
		return nil, fmt.Errorf("%w: %d replicas, %d brokers, of which %d are alive", ErrTooFewBrokers, rf, all, len(living))
	}
	load := newLoad(img)
	out := make([][]int32, n)
	for p := range out {
		out[p] = load.pick(img, living, away, rf)
	}
	return out, nil
}

// load counts what each broker has.
type load struct {
	leaders, replicas map[int32]int
}

func newLoad(img *meta.Image) *load {
	l := &load{map[int32]int{}, map[int32]int{}}
	for _, t := range img.Topics {
		for _, p := range t.Partitions {
			if len(p.Replicas) > 0 {
				l.leaders[p.Replicas[0]]++
			}
			for _, r := range p.Replicas {
				l.replicas[r]++
			}
		}
	}
	return l
}

// pick chooses one partition's replicas and counts them.
func (l *load) pick(img *meta.Image, living, away []int32, rf int) []int32 {
	var chosen []int32
	racks := map[string]int{}
	for len(chosen) < rf {
		from := living
		if len(chosen) >= len(living) {
			from = away
		}
		best := int32(-1)
		for _, id := range from {
			if slices.Contains(chosen, id) {
				continue
			}
			if best < 0 || l.better(img, racks, len(chosen) == 0, id, best) {
				best = id
			}
		}
		chosen = append(chosen, best)
		racks[rack(img, best)]++
		l.replicas[best]++
	}
	l.leaders[chosen[0]]++
	return chosen
}

// rack of a broker, also of one that is away.
func rack(img *meta.Image, id int32) string {
	if b := img.Brokers[id]; b != nil {
		return b.Rack
	}
	return img.Known[id].Rack
}

// better tells whether a should rather take the next replica than b: an unused rack first, then fewer leaders (for the first
// replica), then fewer replicas.
func (l *load) better(img *meta.Image, racks map[string]int, leader bool, a, b int32) bool {
	if ra, rb := racks[rack(img, a)], racks[rack(img, b)]; ra != rb {
		return ra < rb
	}
	if leader && l.leaders[a] != l.leaders[b] {
		return l.leaders[a] < l.leaders[b]
	}
	return l.replicas[a] < l.replicas[b]
}
