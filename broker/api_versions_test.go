package broker

import (
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestApiVersionsAtEveryVersion(t *testing.T) {
	w := newWorld(t, settings{})
	c := w.dial()
	for v := int16(0); v <= 5; v++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = v, "a-client", "1.2.3"
		got := c.do(req).(*kmsg.ApiVersionsResponse)
		if got.ErrorCode != 0 || len(got.ApiKeys) != len(apiTable()) {
			t.Fatalf("v%d: code %d, %d keys", v, got.ErrorCode, len(got.ApiKeys))
		}
		for _, k := range got.ApiKeys {
			a := apiTable()[kmsg.Key(k.ApiKey)]
			if k.MaxVersion != a.max || k.MinVersion != a.min && k.ApiKey != 0 {
				t.Errorf("v%d key %d: [%d, %d], table has [%d, %d]", v, k.ApiKey, k.MinVersion, k.MaxVersion, a.min, a.max)
			}
			if known := kmsg.RequestForKey(k.ApiKey); known == nil || known.MaxVersion() < k.MaxVersion {
				t.Errorf("key %d is advertised up to %d, which cannot be decoded", k.ApiKey, k.MaxVersion)
			}
		}
	}
}

func TestApiVersionsThatIsTooNewIsAnsweredInTheOldestLayout(t *testing.T) { // BUG-036
	w := newWorld(t, settings{})
	c := w.dial()
	for _, version := range []int16{6, 99, -1} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, "x", "1"
		b := formatter.AppendRequest(nil, req, 77)
		if _, err := c.conn.Write(b); err != nil {
			t.Fatal(err)
		}
		frame, err := c.frame()
		if err != nil {
			t.Fatal(err)
		}
		if got := binary.BigEndian.Uint32(frame); got != 77 {
			t.Fatalf("correlation id %d, want 77", got)
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := resp.ReadFrom(frame[4:]); err != nil {
			t.Fatal(err)
		}
		if resp.ErrorCode != kerr.UnsupportedVersion.Code || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 5 {
			t.Fatalf("version %d: %+v", version, resp)
		}
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "x", "1"
	if got := c.do(req).(*kmsg.ApiVersionsResponse); got.ErrorCode != 0 {
		t.Fatalf("afterwards: code %d", got.ErrorCode)
	}
}

func TestApiVersionsChecksWhoIsMeant(t *testing.T) {
	w := newWorld(t, settings{})
	c := w.dial()
	cluster, other := w.store.Image().Cluster, "other"
	for _, tc := range []struct {
		name    string
		sw      string
		cluster *string
		node    int32
		want    int16
	}{
		{"this broker", "x", &cluster, 1, 0},
		{"nobody yet", "x", nil, -1, 0},
		{"another broker", "x", &cluster, 2, kerr.RebootstrapRequired.Code},
		{"another cluster", "x", &other, 1, kerr.RebootstrapRequired.Code},
		{"half of it", "x", &cluster, -1, kerr.InvalidRequest.Code},
		{"bad software name", "-x", nil, -1, kerr.InvalidRequest.Code},
		{"no software name", "", nil, -1, kerr.InvalidRequest.Code},
	} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 5, tc.sw, "1"
		req.ClusterID, req.NodeID = tc.cluster, tc.node
		if got := c.do(req).(*kmsg.ApiVersionsResponse).ErrorCode; got != tc.want {
			t.Errorf("%s: code %d, want %d", tc.name, got, tc.want)
		}
	}
}
