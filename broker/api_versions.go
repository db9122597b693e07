package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions (18), versions 0 to 5 (KIP-35, 511, 584). The ranges are those of the table, so that nothing is advertised that is not
// served. From version 5 on a client may say which broker it means to talk to; another one answers REBOOTSTRAP_REQUIRED.
func handleApiVersions(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.ApiVersionsRequest)
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.SetVersion(req.Version)
	if req.Version >= 3 {
		if !softwareName(req.ClientSoftwareName) || !softwareName(req.ClientSoftwareVersion) {
			resp.ErrorCode = kerr.InvalidRequest.Code
			return resp, nil
		}
		c.softwareName, c.softwareVersion = req.ClientSoftwareName, req.ClientSoftwareVersion
	}
	if req.Version >= 5 {
		switch {
		case (req.ClusterID == nil) != (req.NodeID == -1):
			resp.ErrorCode = kerr.InvalidRequest.Code
			return resp, nil
		case req.ClusterID != nil && (*req.ClusterID != s.Store.Image().Cluster || req.NodeID != s.Options.NodeID):
			resp.ErrorCode = kerr.RebootstrapRequired.Code
			return resp, nil
		}
	}
	resp.ApiKeys = s.apiKeys()
	return resp, nil
}

// softwareName checks KIP-511's pattern: letters, digits, '-' and '.', the last two not at an end.
func softwareName(s string) bool {
	alnum := func(c byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
	}
	if s == "" || !alnum(s[0]) || !alnum(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !alnum(s[i]) && s[i] != '-' && s[i] != '.' {
			return false
		}
	}
	return true
}

// tooNewApiVersions answers a version that is not served in the layout of version 0, which every client reads, with the range that is
// (BUG-036). The header was read as far as the correlation id at least.
func (c *conn) tooNewApiVersions(h header) error {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	for _, k := range c.s.apiKeys() {
		if kmsg.Key(k.ApiKey) == kmsg.ApiVersions {
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
	}
	dst := c.outbox.begin()
	start := len(dst)
	dst = resp.AppendTo(responseHeader(dst, h))
	return c.outbox.end(dst, start)
}
