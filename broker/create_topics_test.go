package broker

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

func TestReplicasOfARestoredTopicAreAsAskedForElseAsBeforeElseTheDefault(t *testing.T) {
	inBubble(t, 3, nil, func(c *trio) {
		s := c.brokers[1].server
		for _, tc := range []struct{ asked, before, want int16 }{{-1, 0, 1}, {-1, 3, 3}, {2, 3, 2}, {2, 0, 2}} {
			s.Options.Restore = func(context.Context, string, string, bool) (Restored, error) {
				return Restored{ID: manifest.TopicID{1}, Replication: tc.before, Pointers: make([]meta.Pointer, 2), FirstEpochs: make([]int32, 2)}, nil
			}
			req := kmsg.NewPtrCreateTopicsRequest()
			req.Version, req.ValidateOnly = 7, true
			plan := "x"
			rt := kmsg.NewCreateTopicsRequestTopic()
			rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "again", -1, tc.asked
			rt.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: restoreConfig, Value: &plan}}
			req.Topics = append(req.Topics, rt)
			cl := c.dial(1)
			got := cl.do(req).(*kmsg.CreateTopicsResponse).Topics[0]
			cl.conn.Close()
			if got.ErrorCode != 0 || got.ReplicationFactor != tc.want || got.NumPartitions != 2 {
				t.Errorf("%+v: error %d, %d replicas of %d partitions", tc, got.ErrorCode, got.ReplicationFactor, got.NumPartitions)
			}
		}
	})
}
