package broker

import (
	"slices"

	"github.com/varvelog/varve/meta"
)

// living are the brokers that are there, by their ids.
type living map[int32]bool

func livingOf(img *meta.Image) living {
	l := living{}
	for id := range img.Brokers {
		l[id] = img.Alive(id)
	}
	return l
}

// gone says that a replica's broker, or its log, is not there. So is the leader -1.
func (l living) gone(p *meta.Partition, id int32) bool {
	return !l[id] || slices.Contains(p.Offline, id)
}

// offline lists the replicas that are gone; nil: none.
func (l living) offline(p *meta.Partition) (ids []int32) {
	for _, id := range p.Replicas {
		if l.gone(p, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// eligible divides those who have all that is committed as Kafka 4 shows them (KIP-966): who is there is in sync; who is not, and stays in
// the ISR since fewer than min.insync.replicas would be left, may lead once it is back. The slices are to be read only.
func (l living) eligible(p *meta.Partition) (isr, others []int32) {
	if !slices.ContainsFunc(p.ISR, func(id int32) bool { return l.gone(p, id) }) {
		return p.ISR, []int32{}
	}
	isr, others = []int32{}, []int32{}
	for _, id := range p.ISR {
		if l.gone(p, id) {
			others = append(others, id)
		} else {
			isr = append(isr, id)
		}
	}
	return isr, others
}
