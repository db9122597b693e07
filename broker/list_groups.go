package broker

import (
	"cmp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/group"
)

// classicType is what all groups here are (KIP-848).
const classicType = "classic"

// ListGroups v0-v5: only groups in some states from v4 (KIP-518), of some types from v5 (KIP-848). It lists what this broker coordinates.
func handleListGroups(s *Server, _ *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.ListGroupsRequest)
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	ls, err := s.groups.coord.List()
	if err != nil {
		resp.ErrorCode = code(err)
		return resp, nil
	}
	slices.SortFunc(ls, func(a, b group.Listed) int { return cmp.Compare(a.Group, b.Group) })
	for _, l := range ls {
		if !passes(req.StatesFilter, l.State.String()) || !passes(req.TypesFilter, classicType) {
			continue
		}
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = l.Group, l.ProtocolType, l.State.String(), classicType
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

// passes tells if a filter, which wants all when empty, has the value, in any case.
func passes(filter []string, value string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
}
