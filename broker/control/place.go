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

// ErrTooFewBrokers: fewer living brokers than replicas asked for.
var ErrTooFewBrokers = errors.New("replication factor larger than available brokers")

// Place assigns replicas to partitions [first, first+n) of a topic: each on rf different living brokers, racks apart where there
// are enough of them, leaders and replicas on the brokers that have the fewest so far. The first replica is the preferred
// leader. The same image gives the same answer.
func Place(img *meta.Image, n, rf int) ([][]int32, error) {
	var ids []int32
	for id, b := range img.Brokers {
		if !b.Fenced && !b.Draining {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if rf < 1 || rf > len(ids) {
		return nil, fmt.Errorf("%w: %d replicas, %d brokers", ErrTooFewBrokers, rf, len(ids))
	}
	load := newLoad(img)
	out := make([][]int32, n)
	for p := range out {
		out[p] = load.pick(img, ids, rf)
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
func (l *load) pick(img *meta.Image, ids []int32, rf int) []int32 {
	var chosen []int32
	racks := map[string]int{}
	for len(chosen) < rf {
		best := int32(-1)
		for _, id := range ids {
			if slices.Contains(chosen, id) {
				continue
			}
			if best < 0 || l.better(img, racks, len(chosen) == 0, id, best) {
				best = id
			}
		}
		chosen = append(chosen, best)
		racks[img.Brokers[best].Rack]++
		l.replicas[best]++
	}
	l.leaders[chosen[0]]++
	return chosen
}

// better tells whether a should rather take the next replica than b: an unused rack first, then fewer leaders (for the first
// replica), then fewer replicas.
func (l *load) better(img *meta.Image, racks map[string]int, leader bool, a, b int32) bool {
	if ra, rb := racks[img.Brokers[a].Rack], racks[img.Brokers[b].Rack]; ra != rb {
		return ra < rb
	}
	if leader && l.leaders[a] != l.leaders[b] {
		return l.leaders[a] < l.leaders[b]
	}
	return l.replicas[a] < l.replicas[b]
}
