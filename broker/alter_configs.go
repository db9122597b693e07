package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterConfigs v0-v2, the older one: it replaces all, so that what is not named goes back to its default (BUG-064).
func handleAlterConfigs(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.AlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout(0)*30)
	defer cancel()
	for i := range req.Resources {
		in := &req.Resources[i]
		a := kmsg.NewAlterConfigsResponseResource()
		a.ResourceType, a.ResourceName = in.ResourceType, in.ResourceName
		err := s.replaceConfigs(ctx, in, req.ValidateOnly)
		a.ErrorCode, a.ErrorMessage = code(err), message(err)
		resp.Resources = append(resp.Resources, a)
	}
	return resp, nil
}

func (s *Server) replaceConfigs(ctx context.Context, in *kmsg.AlterConfigsRequestResource, validateOnly bool) error {
	res, err := s.resource(s.Store.Image(), in.ResourceType, in.ResourceName)
	if err != nil {
		return err
	}
	next := map[string]string{}
	for i := range in.Configs {
		e := &in.Configs[i]
		if e.Value == nil {
			return refuse(kerr.InvalidRequest, "%s: null is no value", e.Name)
		}
		next[e.Name] = *e.Value
	}
	return s.alter(ctx, res, validateOnly, func(map[string]string) (map[string]string, error) { return next, nil })
}
