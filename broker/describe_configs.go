package broker

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/config"
)

// DescribeConfigs v1-v4 (KIP-133, 226: sources and synonyms, 569: types and documentation).
func handleDescribeConfigs(s *Server, _ *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	img := s.Store.Image()
	for i := range req.Resources {
		in := &req.Resources[i]
		a := kmsg.NewDescribeConfigsResponseResource()
		a.ResourceType, a.ResourceName = in.ResourceType, in.ResourceName
		res, err := s.resource(img, in.ResourceType, in.ResourceName)
		if err != nil {
			a.ErrorCode, a.ErrorMessage = code(err), message(err)
			resp.Resources = append(resp.Resources, a)
			continue
		}
		var entries []config.Entry
		switch res.kind {
		case kmsg.ConfigResourceTypeTopic:
			entries = s.config().DescribeTopic(s.dynamic(img), res.topic.Configs)
		case kmsg.ConfigResourceTypeBroker:
			entries = s.config().DescribeBroker(s.dynamic(img), res.cluster)
		}
		for _, e := range entries {
			if in.ConfigNames != nil && !slices.Contains(in.ConfigNames, e.Key.Name) {
				continue
			}
			a.Configs = append(a.Configs, describe(e, req.IncludeSynonyms, req.IncludeDocumentation))
		}
		resp.Resources = append(resp.Resources, a)
	}
	return resp, nil
}

func describe(e config.Entry, synonyms, doc bool) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Value, out.ReadOnly, out.IsSensitive = e.Key.Name, e.Value, e.ReadOnly, e.Sensitive
	out.Source, out.IsDefault = kmsg.ConfigSource(e.Source), e.Source == config.SourceDefault
	out.ConfigType = kmsg.ConfigType(e.Key.Type)
	if doc && e.Key.Doc != "" {
		out.Documentation = &e.Key.Doc
	}
	if synonyms {
		for _, y := range e.Synonyms {
			sy := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			sy.Name, sy.Value, sy.Source = y.Name, y.Value, kmsg.ConfigSource(y.Source)
			out.ConfigSynonyms = append(out.ConfigSynonyms, sy)
		}
	}
	return out
}
