package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster v0-v2 (KIP-700, 919: endpoint types, 1073: fenced brokers).
func handleDescribeCluster(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.ClusterAuthorizedOperations = -2147483648
	const brokers = 1
	if resp.EndpointType = brokers; req.EndpointType != brokers {
		err := refuse(kerr.MismatchedEndpointType, "these are brokers, endpoint type 1; %d was asked for", req.EndpointType)
		resp.ErrorCode, resp.ErrorMessage = code(err), message(err)
		return resp, nil
	}
	img := s.Store.Image()
	resp.ClusterID, resp.ControllerID = img.Cluster, img.Controller
	if !img.Alive(img.Controller) {
		resp.ControllerID = s.Options.NodeID // any broker takes administrative requests
	}
	for id, b := range everybody(img) {
		if b.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		a := kmsg.NewDescribeClusterResponseBroker()
		a.NodeID, a.IsFenced = id, b.Fenced
		if b.Rack != "" {
			a.Rack = &b.Rack
		}
		for i, l := range b.Listeners {
			if i == 0 || l.Name == c.listenerName() {
				a.Host, a.Port = l.Host, l.Port
			}
		}
		resp.Brokers = append(resp.Brokers, a)
	}
	return resp, nil
}
