package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kinds of coordinators in FindCoordinator.
const (
	groupCoordinator       = 0
	transactionCoordinator = 1
)

// FindCoordinator v0-v6 (KIP-699: several keys from v4). The first one creates __consumer_offsets, and is answered when it is there.
// There is no transaction coordinator yet: refused in a way that clients do not retry.
func handleFindCoordinator(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version < 4 {
		n, err := s.findCoordinator(c, req.CoordinatorType, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = code(err), message(err)
		resp.NodeID, resp.Host, resp.Port = n.id, n.host, n.port
		return resp, nil
	}
	for _, key := range req.CoordinatorKeys {
		a := kmsg.NewFindCoordinatorResponseCoordinator()
		n, err := s.findCoordinator(c, req.CoordinatorType, key)
		a.Key, a.ErrorCode, a.ErrorMessage = key, code(err), message(err)
		a.NodeID, a.Host, a.Port = n.id, n.host, n.port
		resp.Coordinators = append(resp.Coordinators, a)
	}
	return resp, nil
}

func (s *Server) findCoordinator(c *conn, kind int8, key string) (node, error) {
	nobody := node{id: -1, port: -1}
	switch kind {
	case groupCoordinator:
		n, err := s.groups.coordinator(c, key)
		if err != nil {
			return nobody, err
		}
		return n, nil
	case transactionCoordinator:
		return nobody, refuse(kerr.TransactionalIDAuthorizationFailed, "there is no transaction coordinator")
	}
	return nobody, refuse(kerr.InvalidRequest, "no coordinator of type %d", kind)
}
