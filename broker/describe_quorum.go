package broker

import (
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// metadataTopic is the name under which Kafka's tools ask for the metadata quorum.
const metadataTopic = "__cluster_metadata"

// DescribeQuorum v0-v2 (KIP-595, 836: times, 853: nodes and directories). There is no such log here: the quorum is etcd's. The answer
// says what the tools' users want to know of it: the controller leads, in its term; its candidates, all brokers, are the voters; the log's
// end is the metadata revision that this broker has, and so has each that is registered, within a watch's latency. One that is not has what
// there was when it registered last, as far as is known, and when that ended is not.
func handleDescribeQuorum(s *Server, _ *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.DescribeQuorumRequest)
	resp := req.ResponseKind().(*kmsg.DescribeQuorumResponse)
	img := s.Store.Image()
	for i := range req.Topics {
		t := kmsg.NewDescribeQuorumResponseTopic()
		t.Topic = req.Topics[i].Topic
		for j := range req.Topics[i].Partitions {
			t.Partitions = append(t.Partitions, describeQuorum(img, t.Topic, req.Topics[i].Partitions[j].Partition))
		}
		resp.Topics = append(resp.Topics, t)
	}
	for id, b := range everybody(img) {
		n := kmsg.NewDescribeQuorumResponseNode()
		n.NodeID = id
		for _, l := range b.Listeners {
			nl := kmsg.NewDescribeQuorumResponseNodeListener()
			nl.Name, nl.Host, nl.Port = l.Name, l.Host, uint16(l.Port)
			n.Listeners = append(n.Listeners, nl)
		}
		resp.Nodes = append(resp.Nodes, n)
	}
	return resp, nil
}

func describeQuorum(img *meta.Image, topic string, partition int32) kmsg.DescribeQuorumResponseTopicPartition {
	p := kmsg.NewDescribeQuorumResponseTopicPartition()
	p.Partition = partition
	if topic != metadataTopic || partition != 0 {
		err := refuse(kerr.UnknownTopicOrPartition, "only %s-0 has a quorum", metadataTopic)
		p.ErrorCode, p.ErrorMessage = code(err), message(err)
		return p
	}
	now := time.Now().UnixMilli()
	p.LeaderID, p.HighWatermark = img.Controller, img.Rev
	p.LeaderEpoch = int32(min(img.Term, math.MaxInt32))
	for id, b := range everybody(img) {
		v := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		v.ReplicaID, v.LogEndOffset, v.LastFetchTimestamp, v.LastCaughtUpTimestamp = id, img.Rev, now, now
		if img.Brokers[id] == nil {
			v.LogEndOffset, v.LastFetchTimestamp, v.LastCaughtUpTimestamp = b.Epoch, -1, -1
		}
		p.CurrentVoters = append(p.CurrentVoters, v)
	}
	return p
}

// everybody are the brokers that are registered or known, in the order of their ids.
func everybody(img *meta.Image) iter.Seq2[int32, *meta.Broker] {
	all := maps.Clone(img.Known)
	maps.Copy(all, img.Brokers)
	return func(yield func(int32, *meta.Broker) bool) {
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if !yield(id, all[id]) {
				return
			}
		}
	}
}
