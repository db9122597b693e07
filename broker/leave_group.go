package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/group"
)

// LeaveGroup v0-v5: several members, by instance id too, from v3 (KIP-345), a reason from v5 (KIP-800). Before v3 the one member's error
// is that of the request.
func handleLeaveGroup(s *Server, _ *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.LeaveGroupRequest)
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	q := group.LeaveRequest{Group: req.Group}
	for _, m := range req.Members {
		q.Members = append(q.Members, group.LeaveMember{Member: m.MemberID, Instance: orEmpty(m.InstanceID), Reason: orEmpty(m.Reason)})
	}
	if req.Version < 3 {
		q.Members = []group.LeaveMember{{Member: req.MemberID}}
	}
	res := s.groups.coord.Leave(q)
	resp.ErrorCode = code(res.Err)
	if res.Err != nil {
		return resp, nil
	}
	if req.Version < 3 {
		resp.ErrorCode = code(res.Errs[0])
		return resp, nil
	}
	for i, m := range req.Members {
		a := kmsg.NewLeaveGroupResponseMember()
		a.MemberID, a.InstanceID, a.ErrorCode = m.MemberID, m.InstanceID, code(res.Errs[i])
		resp.Members = append(resp.Members, a)
	}
	return resp, nil
}
