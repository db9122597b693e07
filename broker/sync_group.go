package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/group"
)

// SyncGroup v0-v5: static members from v3, protocol type and name, both required, from v5 (KIP-559). The connection waits for the
// leader's assignment.
func handleSyncGroup(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.SyncGroupRequest)
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		resp.ErrorCode = code(group.ErrInconsistent)
		return resp, nil
	}
	q := group.SyncRequest{Group: req.Group, Member: req.MemberID, Instance: orEmpty(req.InstanceID), Generation: req.Generation,
		ProtocolType: req.ProtocolType, Protocol: req.Protocol}
	for _, a := range req.GroupAssignment {
		q.Assignments = append(q.Assignments, group.Assignment{Member: a.MemberID, Bytes: a.MemberAssignment})
	}
	res := s.groups.coord.Sync(c.ctx, q)
	resp.ErrorCode, resp.MemberAssignment = code(res.Err), res.Assignment
	resp.ProtocolType, resp.Protocol = named(res.ProtocolType, res.Err), named(res.Protocol, res.Err)
	return resp, nil
}
