package group

import "bytes"

// Protocol is one way to assign partitions that a member can take part in, with what it tells the leader for it.
type Protocol struct {
	Name     string
	Metadata []byte
}

// member is one member of a group.
type member struct {
	id, instance         string // instance: group.instance.id, "" for a dynamic member
	clientID, clientHost string
	rebalanceMs          int32
	sessionMs            int32
	protocols            []Protocol // in the member's order of preference
	assignment           []byte

	join        Ticket // 0: not waiting
	sync        Ticket
	isNew       bool // has had no answer to its first join
	syncPending bool // has joined this generation and not synced
	alarm       alarm
}

func (m *member) static() bool { return m.instance != "" }

// metadata is what the member said for a protocol.
func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

// offers tells if the member's protocols are the same, in the same order.
func (m *member) offers(ps []Protocol) bool {
	if len(ps) != len(m.protocols) {
		return false
	}
	for i, p := range m.protocols {
		if p.Name != ps[i].Name || !bytes.Equal(p.Metadata, ps[i].Metadata) {
			return false
		}
	}
	return true
}

// vote is the first of the member's protocols that all members have.
func (m *member) vote(supported map[string]int, members int) string {
	for _, p := range m.protocols {
		if supported[p.Name] == members {
			return p.Name
		}
	}
	return ""
}

// names are the distinct names of protocols: one that is listed twice counts once.
func names(ps []Protocol) map[string]struct{} {
	set := make(map[string]struct{}, len(ps))
	for _, p := range ps {
		set[p.Name] = struct{}{}
	}
	return set
}
