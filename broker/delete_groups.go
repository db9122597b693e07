package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// DeleteGroups v0-v3. Only groups without members can be deleted, with their offsets.
func handleDeleteGroups(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.DeleteGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for i, err := range s.groups.coord.DeleteGroups(c.ctx, req.Groups) {
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group, g.ErrorCode, g.ErrorMessage = req.Groups[i], code(err), message(err)
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}
