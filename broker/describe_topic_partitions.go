package broker

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// DescribeTopicPartitions v0 (KIP-966): Metadata in pages. Topics come in name order; the cursor is the first partition of the
// next page.
func handleDescribeTopicPartitions(s *Server, _ *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	img := s.Store.Image()
	names := make([]string, 0, len(req.Topics))
	for i := range req.Topics {
		names = append(names, req.Topics[i].Topic)
	}
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(img.Topics))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	room := min(int(req.ResponsePartitionLimit), int(s.config().Int("max.request.partition.size.limit")))
	if room <= 0 {
		room = int(s.config().Int("max.request.partition.size.limit"))
	}
	first := int32(0)
	if req.Cursor != nil {
		at, _ := slices.BinarySearch(names, req.Cursor.Topic)
		if at < len(names) && names[at] == req.Cursor.Topic {
			first = max(req.Cursor.Partition, 0)
		}
		names = names[at:]
	}
	for _, name := range names {
		if room == 0 {
			resp.NextCursor = cursorAt(name, 0)
			break
		}
		a, next := s.describePartitions(img, name, first, &room)
		resp.Topics = append(resp.Topics, a)
		if next >= 0 {
			resp.NextCursor = cursorAt(name, next)
			break
		}
		first = 0
	}
	return resp, nil
}

func cursorAt(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}

// describePartitions describes partitions of one topic from first on while there is room; next is the first one left out, or -1.
func (s *Server) describePartitions(img *meta.Image, name string, first int32, room *int) (a kmsg.DescribeTopicPartitionsResponseTopic, next int32) {
	a = kmsg.NewDescribeTopicPartitionsResponseTopic()
	a.Topic, a.AuthorizedOperations = &name, -2147483648
	if err := checkTopicName(name); err != nil {
		a.ErrorCode = code(err)
		return a, -1
	}
	t := img.Topics[name]
	if t == nil {
		a.ErrorCode = kerr.UnknownTopicOrPartition.Code
		return a, -1
	}
	a.TopicID, a.IsInternal = t.ID, t.Internal
	alive := livingOf(img)
	for i := first; i < int32(len(t.Partitions)); i++ {
		if *room == 0 {
			return a, i
		}
		*room--
		a.Partitions = append(a.Partitions, describePartition(alive, t.Partitions[i]))
	}
	return a, -1
}

func describePartition(alive living, p *meta.Partition) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	a := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	a.Partition, a.LeaderID, a.LeaderEpoch = p.ID.Partition, p.Leader, p.LeaderEpoch
	a.Replicas, a.LastKnownELR = p.Replicas, []int32{} // Kafka's admin client cannot take null
	a.ISR, a.EligibleLeaderReplicas = alive.eligible(p)
	a.OfflineReplicas = alive.offline(p)
	if alive.gone(p, p.Leader) {
		a.ErrorCode, a.LeaderID = kerr.LeaderNotAvailable.Code, -1
	}
	return a
}
