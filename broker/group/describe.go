package group

import (
	"cmp"
	"slices"
)

// Listed is a group in a list.
type Listed struct {
	Group, ProtocolType string
	State               State
}

// List gives all groups, in no order.
func (c *Core) List() []Listed {
	ls := make([]Listed, 0, len(c.groups))
	for _, g := range c.groups {
		ls = append(ls, Listed{g.id, g.protocolType, g.state})
	}
	return ls
}

// Described is a group with its members.
type Described struct {
	State                  State
	ProtocolType, Protocol string
	Generation             int32
	Members                []DescribedMember
}

// DescribedMember is one of them; Metadata and Assignment only in a stable group.
type DescribedMember struct {
	ID, Instance, ClientID, ClientHost string
	Metadata, Assignment               []byte
}

// Describe tells of one group; not ok if there is none.
func (c *Core) Describe(id string) (d Described, ok bool) {
	g := c.get(id)
	if g == nil {
		return Described{State: Dead}, false
	}
	d = Described{State: g.state, ProtocolType: g.protocolType, Generation: g.generation}
	if g.state == Stable {
		d.Protocol = g.protocol
	}
	for _, m := range g.members {
		dm := DescribedMember{ID: m.id, Instance: m.instance, ClientID: m.clientID, ClientHost: m.clientHost}
		if g.state == Stable {
			dm.Metadata, dm.Assignment = m.metadata(g.protocol), m.assignment
		}
		d.Members = append(d.Members, dm)
	}
	return d, true
}

// sorted makes a set of partitions a list that does not depend on the order of a map.
func sorted(set map[topicPartition]struct{}) []topicPartition {
	ks := make([]topicPartition, 0, len(set))
	for k := range set {
		ks = append(ks, k)
	}
	slices.SortFunc(ks, func(a, b topicPartition) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	return ks
}
