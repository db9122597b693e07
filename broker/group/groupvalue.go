package group

import "fmt"

// groupValueVersion is the version of group metadata that is written; 0 to 4 are read.
const groupValueVersion = 3

// maxRecord bounds the value of one record, far above what members can say.
const maxRecord = 32 << 20

// Metadata is what the log has of a group.
type Metadata struct {
	ProtocolType string
	Generation   int32
	Protocol     string // "": null
	Leader       string // "": null
	StateMs      int64  // -1: not known
	Members      []MemberMetadata
}

// MemberMetadata is what the log has of a member.
type MemberMetadata struct {
	ID, Instance           string // Instance "": null
	ClientID, ClientHost   string
	RebalanceMs, SessionMs int32
	Subscription           []byte // what it said for the protocol
	Assignment             []byte
}

// record is the group's metadata record, with the assignments given.
func (g *group) record(assignments map[string][]byte) (Record, error) {
	m := Metadata{ProtocolType: g.protocolType, Generation: g.generation, Protocol: g.protocol, Leader: g.leader, StateMs: g.stateMs}
	size := 0
	for _, mb := range g.members {
		mm := MemberMetadata{ID: mb.id, Instance: mb.instance, ClientID: mb.clientID, ClientHost: mb.clientHost,
			RebalanceMs: mb.rebalanceMs, SessionMs: mb.sessionMs,
			Subscription: mb.metadata(g.protocol), Assignment: assignments[mb.id]}
		m.Members = append(m.Members, mm)
		size += 64 + len(mm.ID) + len(mm.Instance) + len(mm.ClientID) + len(mm.ClientHost) + len(mm.Subscription) + len(mm.Assignment)
	}
	if size > maxRecord {
		return Record{}, ErrRecordTooLarge
	}
	return Record{Key: appendGroupKey(nil, g.id), Value: AppendMetadata(make([]byte, 0, size+64), m)}, nil
}

// AppendMetadata encodes the value of a group's metadata in the version that is written. Strings must be shorter than 32 KiB.
func AppendMetadata(b []byte, m Metadata) []byte {
	b = appendInt16(b, groupValueVersion)
	b = appendString(b, m.ProtocolType)
	b = appendInt32(b, m.Generation)
	b = appendNullable(b, m.Protocol)
	b = appendNullable(b, m.Leader)
	b = appendInt64(b, m.StateMs)
	b = appendInt32(b, int32(len(m.Members)))
	for _, mm := range m.Members {
		b = appendString(b, mm.ID)
		b = appendNullable(b, mm.Instance)
		b = appendString(b, mm.ClientID)
		b = appendString(b, mm.ClientHost)
		b = appendInt32(b, mm.RebalanceMs)
		b = appendInt32(b, mm.SessionMs)
		b = appendBytes(b, mm.Subscription)
		b = appendBytes(b, mm.Assignment)
	}
	return b
}

// DecodeMetadata reads the value of a group's metadata.
func DecodeMetadata(b []byte) (Metadata, error) {
	r := reader{b: b}
	version := r.int16()
	if !r.bad && (version < 0 || version > 4) {
		return Metadata{}, fmt.Errorf("group value of version %d: %w", version, ErrUnsupported)
	}
	r.flexible = version >= 4
	m := Metadata{ProtocolType: r.string(), Generation: r.int32(), Protocol: r.string(), Leader: r.string(), StateMs: -1}
	if version >= 2 {
		m.StateMs = r.int64()
	}
	least := 18 // three strings, a timeout, two byte strings
	if r.flexible {
		least = 15
	}
	for n := r.count(least); n > 0 && !r.bad; n-- {
		m.Members = append(m.Members, decodeMember(&r, version))
	}
	r.tags(nil)
	return m, r.err("group value")
}

func decodeMember(r *reader, version int16) MemberMetadata {
	m := MemberMetadata{ID: r.string()}
	if version >= 3 {
		m.Instance = r.string()
	}
	m.ClientID, m.ClientHost = r.string(), r.string()
	if version >= 1 {
		m.RebalanceMs = r.int32()
	}
	m.SessionMs = r.int32()
	if version == 0 {
		m.RebalanceMs = m.SessionMs // as it was before there were two
	}
	m.Subscription, m.Assignment = r.bytes(), r.bytes()
	r.tags(nil)
	return m
}
