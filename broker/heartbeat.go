package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/group"
)

// Heartbeat v0-v4: static members from v3. REBALANCE_IN_PROGRESS asks to join again.
func handleHeartbeat(s *Server, _ *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.HeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = code(s.groups.coord.Heartbeat(group.HeartbeatRequest{
		Group: req.Group, Member: req.MemberID, Instance: orEmpty(req.InstanceID), Generation: req.Generation}))
	return resp, nil
}
