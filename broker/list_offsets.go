package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/broker/replica"
)

// ListOffsets (2), versions 1 to 11. A timestamp >= 0 asks for the first record at or after it; the negative ones are special, each
// from some version on (BUG-015). Nothing found is offset -1 and timestamp -1 without an error (BUG-019).

// specialFrom is the first version in which a special timestamp means something.
func specialFrom(ts int64) (version int16, ok bool) {
	switch ts {
	case -1, -2: // latest, earliest
		return 1, true
	case -3: // largest timestamp (KIP-734)
		return 7, true
	case -4: // earliest local (KIP-405)
		return 8, true
	case -5: // latest tiered (KIP-1005)
		return 9, true
	case -6: // earliest not yet tiered (KIP-1023)
		return 11, true
	}
	return 0, false
}

const (
	listOffsetsTimeout  = 30 * time.Second // where the request has none
	listOffsetsParallel = 16               // look-ups of one request that may wait for the archive
)

func handleListOffsets(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.ListOffsetsRequest)
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.SetVersion(req.Version)
	timeout := listOffsetsTimeout
	if req.Version >= 10 {
		timeout = min(timeout, time.Duration(max(req.TimeoutMillis, 0))*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	iso := replica.ReadUncommitted
	if req.IsolationLevel == 1 {
		iso = replica.ReadCommitted
	}
	twice := listedTwice(req)

	var g errgroup.Group
	g.SetLimit(listOffsetsParallel)
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		*out = kmsg.NewListOffsetsResponseTopic()
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p, a := &t.Partitions[j], &out.Partitions[j]
			*a = kmsg.NewListOffsetsResponseTopicPartition()
			a.Partition = p.Partition
			if twice[topicPartition{t.Topic, p.Partition}] {
				a.ErrorCode = code(fmt.Errorf("partition is listed twice: %w", errInvalidRequest))
				continue
			}
			if p.Timestamp == -1 || p.Timestamp == -2 {
				s.listOffset(ctx, req, t.Topic, p, iso, a)
				continue
			}
			g.Go(func() error {
				s.listOffset(ctx, req, t.Topic, p, iso, a)
				return nil
			})
		}
	}
	return resp, g.Wait()
}

func (s *Server) listOffset(ctx context.Context, req *kmsg.ListOffsetsRequest, topic string, p *kmsg.ListOffsetsRequestTopicPartition,
	iso replica.Isolation, a *kmsg.ListOffsetsResponseTopicPartition) {
	if from, ok := specialFrom(p.Timestamp); p.Timestamp < 0 && (!ok || req.Version < from) {
		a.ErrorCode = code(fmt.Errorf("timestamp %d in version %d: %w", p.Timestamp, req.Version, errUnsupportedVersion))
		return
	}
	part, err := s.Replicas.Leader(replica.TopicPartition{Topic: topic, Partition: p.Partition})
	if err == nil {
		err = part.CheckEpoch(p.CurrentLeaderEpoch)
	}
	if err != nil {
		a.ErrorCode = code(err)
		return
	}
	found, err := part.OffsetFor(ctx, p.Timestamp, iso)
	if errors.Is(err, replica.ErrUnsettled) && req.Version < 5 {
		err = kerr.LeaderNotAvailable // older clients do not know the other code
	}
	if err != nil {
		if !errors.Is(err, replica.ErrUnsettled) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			s.Options.Logger.Warn("list offsets", "topic", topic, "partition", p.Partition, "timestamp", p.Timestamp, "err", err)
		}
		a.ErrorCode = code(err)
		return
	}
	a.Timestamp, a.Offset, a.LeaderEpoch = found.Timestamp, found.Offset, found.LeaderEpoch
}

type topicPartition struct {
	topic     string
	partition int32
}

// listedTwice names the partitions that a request has more than once.
func listedTwice(req *kmsg.ListOffsetsRequest) map[topicPartition]bool {
	twice := map[topicPartition]bool{} // false: once
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			k := topicPartition{t.Topic, t.Partitions[j].Partition}
			_, seen := twice[k]
			twice[k] = seen
		}
	}
	return twice
}
