package broker

import (
	"cmp"
	"slices"

	"github.com/varvelog/varve/meta"
)

// node is a broker as a client of this listener reaches it.
type node struct {
	id   int32
	host string
	port int32
	rack *string
}

// nodes lists the living brokers, ascending by id, with the address of the listener that the client came through.
func (c *conn) nodes() []node {
	img := c.s.Store.Image()
	out := make([]node, 0, len(img.Brokers)+1)
	self := false
	for _, b := range img.Brokers {
		if b.Fenced || len(b.Listeners) == 0 {
			continue
		}
		self = self || b.ID == c.s.Options.NodeID
		out = append(out, c.node(b.ID, b.Listeners, b.Rack))
	}
	if !self { // not registered yet
		out = append(out, c.node(c.s.Options.NodeID, c.s.Options.Advertised, c.s.Options.Rack))
	}
	slices.SortFunc(out, func(a, b node) int { return cmp.Compare(a.id, b.id) })
	return out
}

// node picks the listener of the client's name, else the first.
func (c *conn) node(id int32, listeners []meta.Listener, rack string) node {
	l := listeners[0]
	if i := slices.IndexFunc(listeners, func(l meta.Listener) bool { return l.Name == c.listener }); i >= 0 {
		l = listeners[i]
	}
	n := node{id: id, host: l.Host, port: l.Port}
	if rack != "" {
		n.rack = &rack
	}
	return n
}
