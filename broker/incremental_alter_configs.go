package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// IncrementalAlterConfigs v0-v1 (KIP-339): what is not named stays.
func handleIncrementalAlterConfigs(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout(0)*30)
	defer cancel()
	type id struct {
		kind kmsg.ConfigResourceType
		name string
	}
	times := map[id]int{}
	for i := range req.Resources {
		times[id{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		in := &req.Resources[i]
		a := kmsg.NewIncrementalAlterConfigsResponseResource()
		a.ResourceType, a.ResourceName = in.ResourceType, in.ResourceName
		var err error
		if times[id{in.ResourceType, in.ResourceName}] > 1 {
			err = refuse(kerr.InvalidRequest, "%q is more than once in the request", in.ResourceName)
		} else {
			err = s.incrementalAlter(ctx, in, req.ValidateOnly)
		}
		a.ErrorCode, a.ErrorMessage = code(err), message(err)
		resp.Resources = append(resp.Resources, a)
	}
	return resp, nil
}

func (s *Server) incrementalAlter(ctx context.Context, in *kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool) error {
	img := s.Store.Image()
	res, err := s.resource(img, in.ResourceType, in.ResourceName)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range in.Configs {
		if name := in.Configs[i].Name; seen[name] {
			return refuse(kerr.InvalidRequest, "%s is more than once in the request", name)
		}
		seen[in.Configs[i].Name] = true
	}
	return s.alter(ctx, res, validateOnly, func(set map[string]string) (map[string]string, error) {
		if set == nil {
			set = map[string]string{}
		}
		for i := range in.Configs {
			e := &in.Configs[i]
			if err := apply(in.ResourceType, set, e.Name, e.Op, e.Value, func(name string) string { return s.inForce(res, name) }); err != nil {
				return nil, err
			}
		}
		return set, nil
	})
}

// inForce is the value that a list has before APPEND or SUBTRACT when the resource does not set it.
func (s *Server) inForce(r configResource, name string) string {
	img := s.Store.Image()
	entries := s.config().DescribeBroker(s.dynamic(img), false)
	if r.topic != nil {
		entries = s.config().DescribeTopic(s.dynamic(img), r.topic.Configs)
	}
	for _, e := range entries {
		if e.Key.Name == name && e.Value != nil {
			return *e.Value
		}
	}
	return ""
}
