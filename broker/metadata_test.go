package broker

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func metadataReq(version int16, allow bool, names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = version, allow
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &n
		req.Topics = append(req.Topics, rt)
	}
	return req
}

func (c *client) metadata(req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	c.t.Helper()
	return c.do(req).(*kmsg.MetadataResponse)
}

func TestMetadataAtEveryVersion(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 2, nil)
	w.topic("u", 1, nil)
	c := w.dial()
	for v := int16(0); v <= 13; v++ {
		got := c.metadata(metadataReq(v, false, "t"))
		if len(got.Brokers) != 1 || got.Brokers[0].NodeID != 1 || len(got.Topics) != 1 {
			t.Fatalf("v%d: %+v", v, got)
		}
		if v >= 1 && got.ControllerID != 1 || v >= 2 && str(got.ClusterID) != w.store.Image().Cluster {
			t.Fatalf("v%d: controller %d cluster %s", v, got.ControllerID, str(got.ClusterID))
		}
		a := got.Topics[0]
		if a.ErrorCode != 0 || str(a.Topic) != "t" || len(a.Partitions) != 2 || v >= 10 && a.TopicID != topic.ID {
			t.Fatalf("v%d: topic %+v", v, a)
		}
		for i, p := range a.Partitions {
			if p.ErrorCode != 0 || p.Partition != int32(i) || p.Leader != 1 || len(p.Replicas) != 1 || len(p.ISR) != 1 {
				t.Fatalf("v%d: partition %+v", v, p)
			}
			if v >= 7 && p.LeaderEpoch != w.partition("t", int32(i)).LeaderEpoch() {
				t.Fatalf("v%d: epoch %d", v, p.LeaderEpoch)
			}
		}
		all := metadataReq(v, false)
		want := 0
		if v == 0 {
			want = 2
		}
		if got := c.metadata(all); len(got.Topics) != want {
			t.Fatalf("v%d no topics: %d, want %d", v, len(got.Topics), want)
		}
		if v > 0 {
			all.Topics = nil
			if got := c.metadata(all); len(got.Topics) != 2 {
				t.Fatalf("v%d null topics: %d, want 2", v, len(got.Topics))
			}
		}
	}
}

func TestMetadataCreatesTopicsOnlyWhereAllowed(t *testing.T) { // BUG-066
	w := newWorld(t, settings{})
	c := w.dial()
	if got := c.metadata(metadataReq(4, false, "x1")).Topics[0]; got.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Fatalf("x1: code %d", got.ErrorCode)
	}
	for _, name := range []string{"a b", "..", ".", "", strings.Repeat("n", 250)} {
		if got := c.metadata(metadataReq(4, true, name)).Topics[0]; got.ErrorCode != kerr.InvalidTopicException.Code {
			t.Fatalf("%q: code %d, want %d", name, got.ErrorCode, kerr.InvalidTopicException.Code)
		}
	}
	if n := len(w.store.Image().Topics); n != 0 {
		t.Fatalf("%d topics were created", n)
	}
	for i, v := range []int16{0, 3, 4, 13} { // before version 4 it is always allowed
		name := "made" + string(rune('a'+i))
		if got := c.metadata(metadataReq(v, v >= 4, name)).Topics[0]; got.ErrorCode != kerr.LeaderNotAvailable.Code {
			t.Fatalf("%s: code %d", name, got.ErrorCode)
		}
		if got := c.metadata(metadataReq(v, false, name)).Topics[0]; got.ErrorCode != 0 || len(got.Partitions) != 3 {
			t.Fatalf("%s afterwards: %+v", name, got)
		}
	}
}

func TestMetadataDoesNotCreateWhereTheBrokerForbids(t *testing.T) {
	w := newWorld(t, settings{broker: func(o *Options) { o.AutoCreateTopics = false }})
	c := w.dial()
	if got := c.metadata(metadataReq(4, true, "x")).Topics[0]; got.ErrorCode != kerr.UnknownTopicOrPartition.Code || len(w.store.Image().Topics) != 0 {
		t.Fatalf("code %d, %d topics", got.ErrorCode, len(w.store.Image().Topics))
	}
}

func TestMetadataByTopicID(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	for v := int16(10); v <= 13; v++ {
		req := metadataReq(v, true)
		known, unknown := kmsg.NewMetadataRequestTopic(), kmsg.NewMetadataRequestTopic()
		known.TopicID, unknown.TopicID = topic.ID, [16]byte{1, 2, 3}
		req.Topics = append(req.Topics, known, unknown)
		got := c.metadata(req).Topics
		want := [2]int16{0, kerr.UnknownTopicID.Code}
		if v < 12 {
			want = [2]int16{kerr.InvalidRequest.Code, kerr.InvalidRequest.Code}
		}
		if got[0].ErrorCode != want[0] || got[1].ErrorCode != want[1] {
			t.Fatalf("v%d: codes %d, %d, want %v", v, got[0].ErrorCode, got[1].ErrorCode, want)
		}
		if v >= 12 && str(got[0].Topic) != "t" {
			t.Fatalf("v%d: %+v", v, got[0])
		}
	}
}
