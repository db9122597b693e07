package broker

import (
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/group"
)

// JoinGroup v0-v9: rebalance timeout from v1 (KIP-62), a second try with a member id from v4 (KIP-394), static members from v5 (KIP-345),
// protocol type in the answer from v7 (KIP-559), reason from v8 (KIP-800), SkipAssignment from v9 (KIP-814). The connection waits for
// the rebalance.
func handleJoinGroup(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.JoinGroupRequest)
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	j := group.JoinRequest{
		Group: req.Group, Member: req.MemberID, Instance: orEmpty(req.InstanceID),
		ClientID: c.clientID, ClientHost: c.clientHost(),
		SessionMs: req.SessionTimeoutMillis, RebalanceMs: req.RebalanceTimeoutMillis,
		ProtocolType: req.ProtocolType, NeedMemberID: req.Version >= 4, CanSkipAssignment: req.Version >= 9,
		Reason: orEmpty(req.Reason),
	}
	if req.Version < 1 {
		j.RebalanceMs = req.SessionTimeoutMillis // as it was before there were two
	}
	for _, p := range req.Protocols {
		j.Protocols = append(j.Protocols, group.Protocol{Name: p.Name, Metadata: p.Metadata})
	}
	res := s.groups.coord.Join(c.ctx, j)
	resp.ErrorCode, resp.MemberID, resp.Generation = code(res.Err), res.Member, res.Generation
	resp.LeaderID, resp.SkipAssignment = res.Leader, res.SkipAssignment
	resp.ProtocolType, resp.Protocol = named(res.ProtocolType, res.Err), named(res.Protocol, res.Err)
	if req.Version < 7 {
		resp.Protocol = &res.Protocol // null came later
	}
	for _, m := range res.Members {
		a := kmsg.NewJoinGroupResponseMember()
		a.MemberID, a.InstanceID, a.ProtocolMetadata = m.ID, orNull(m.Instance), m.Metadata
		resp.Members = append(resp.Members, a)
	}
	return resp, nil
}

// clientHost is the client's address as Kafka writes it.
func (c *conn) clientHost() string {
	host, _, err := net.SplitHostPort(c.nc.RemoteAddr().String())
	if err != nil {
		host = c.nc.RemoteAddr().String()
	}
	return "/" + host
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// named is a name that only answers without an error have.
func named(s string, err error) *string {
	if err != nil {
		return nil
	}
	return &s
}
