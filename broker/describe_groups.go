package broker

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/group"
)

// DescribeGroups v0-v6: static members from v4. A group that does not exist is Dead; from v6 on that is an error too.
func handleDescribeGroups(s *Server, _ *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.DescribeGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, id := range req.Groups {
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group, g.AuthorizedOperations = id, noAuthorizedOperations
		d, err := s.groups.coord.Describe(id)
		switch {
		case err == nil:
			describeGroup(&g, d)
		case errors.Is(err, group.ErrGroupNotFound) && req.Version < 6:
			g.State = group.Dead.String()
		default:
			g.ErrorCode, g.ErrorMessage = code(err), message(err)
			if errors.Is(err, group.ErrGroupNotFound) {
				g.State = group.Dead.String()
			}
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func describeGroup(g *kmsg.DescribeGroupsResponseGroup, d group.Described) {
	g.State, g.ProtocolType, g.Protocol = d.State.String(), d.ProtocolType, d.Protocol
	for _, m := range d.Members {
		a := kmsg.NewDescribeGroupsResponseGroupMember()
		a.MemberID, a.InstanceID, a.ClientID, a.ClientHost = m.ID, orNull(m.Instance), m.ClientID, m.ClientHost
		a.ProtocolMetadata, a.MemberAssignment = m.Metadata, m.Assignment
		g.Members = append(g.Members, a)
	}
}
