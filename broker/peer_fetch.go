package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/peer"
	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

// Upstream fetches from other brokers with Kafka's Fetch, version 17: topic ids, the follower's broker epoch, no time stamp of the
// sender. It implements replica.Upstream.
type Upstream struct {
	NodeID int32
	Peers  *peer.Pool
}

var _ replica.Upstream = (*Upstream)(nil)

const replicaFetchVersion = 17

// Fetch sends one request on the connection of that lane and decodes its answer.
func (u *Upstream) Fetch(ctx context.Context, leader int32, lane int, r *replica.FetchRequest) (*replica.FetchAnswer, error) {
	req := u.fetchRequest(r)
	resp := kmsg.NewPtrFetchResponse()
	if err := u.exchange(ctx, leader, lane, req, resp); err != nil {
		return nil, err
	}
	return fetchAnswer(resp), nil
}

func (u *Upstream) fetchRequest(r *replica.FetchRequest) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = replicaFetchVersion
	req.ReplicaState.ID, req.ReplicaState.Epoch = u.NodeID, r.BrokerEpoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(r.MaxWait.Milliseconds()), int32(r.MinBytes), int32(r.MaxBytes)
	req.SessionID, req.SessionEpoch = r.Session, r.SessionEpoch
	topics := map[manifest.TopicID]int{}
	for i := range r.Parts {
		p := &r.Parts[i]
		at, ok := topics[p.ID.Topic]
		if !ok {
			at = len(req.Topics)
			topics[p.ID.Topic] = at
			t := kmsg.NewFetchRequestTopic()
			t.TopicID = p.ID.Topic
			req.Topics = append(req.Topics, t)
		}
		q := kmsg.NewFetchRequestTopicPartition()
		q.Partition, q.CurrentLeaderEpoch, q.FetchOffset = p.ID.Partition, p.Epoch, p.Offset
		q.LastFetchedEpoch, q.LogStartOffset, q.PartitionMaxBytes = p.FetchedEpoch, p.LogStart, int32(p.MaxBytes)
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, q)
	}
	for _, id := range r.Forgotten {
		f := kmsg.NewFetchRequestForgottenTopic()
		f.TopicID, f.Partitions = id.Topic, []int32{id.Partition}
		req.ForgottenTopics = append(req.ForgottenTopics, f)
	}
	return req
}

func fetchAnswer(resp *kmsg.FetchResponse) *replica.FetchAnswer {
	out := &replica.FetchAnswer{Session: resp.SessionID, Err: peerError(resp.ErrorCode)}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			a := replica.FetchedPart{
				ID:  manifest.PartitionID{Topic: t.TopicID, Partition: p.Partition},
				Err: peerError(p.ErrorCode), HW: p.HighWatermark, LogStart: p.LogStartOffset, LogEnd: -1, Records: p.RecordBatches,
			}
			if errors.Is(a.Err, localseg.ErrOffsetOutOfRange) {
				a.LogEnd = p.LastStableOffset // see fetch_replica.go
			}
			if d := p.DivergingEpoch; d.Epoch >= 0 || d.EndOffset >= 0 {
				a.Diverging, a.DivergingEpoch, a.DivergingEnd = true, d.Epoch, d.EndOffset
			}
			if len(a.Records) > 0 {
				p.UnknownTags.Each(func(tag uint32, b []byte) {
					if tag == appendTimesTag && a.Err == nil {
						a.Appended, a.Err = appendedOf(a.Records, b)
					}
				})
			}
			out.Parts = append(out.Parts, a)
		}
	}
	return out
}

// appendedOf decodes the append times of records.
func appendedOf(records, b []byte) ([]record.AppendTime, error) {
	first, _, err := record.Next(records)
	if err != nil {
		return nil, nil // who takes the records finds out
	}
	return decodeAppendTimes(b, first.BaseOffset())
}

// exchange sends req and reads its response into resp, whose byte slices alias what the lane reads into.
func (u *Upstream) exchange(ctx context.Context, id int32, lane int, req kmsg.Request, resp kmsg.Response) error {
	const correlation = 1 // one request at a time
	frame := peerFormatter.AppendRequest(nil, req, correlation)
	b, err := u.Peers.Do(ctx, id, lane, frame[4:])
	if err != nil {
		return err
	}
	name := kmsg.NameForKey(req.Key())
	if len(b) < 5 || binary.BigEndian.Uint32(b) != correlation {
		return fmt.Errorf("%s response of broker %d: %w", name, id, errMalformed)
	}
	b = b[4:]
	if req.IsFlexible() {
		c := cursor{b: b}
		if c.tags(); c.bad {
			return fmt.Errorf("%s response of broker %d: %w", name, id, errMalformed)
		}
		b = c.b
	}
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(b); err != nil {
		return fmt.Errorf("%s response of broker %d: %w: %w", name, id, errMalformed, err)
	}
	return nil
}

var peerFormatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("varve-replica"))

// peerErrors are the codes that a follower acts on; others are only waited out.
var peerErrors = map[int16]error{
	kerr.NotLeaderForPartition.Code:      replica.ErrNotLeader,
	kerr.FencedLeaderEpoch.Code:          replica.ErrFencedEpoch,
	kerr.UnknownLeaderEpoch.Code:         replica.ErrUnknownEpoch,
	kerr.OffsetOutOfRange.Code:           localseg.ErrOffsetOutOfRange,
	kerr.OffsetMovedToTieredStorage.Code: replica.ErrInArchive,
}

func peerError(code int16) error {
	if err, ok := peerErrors[code]; ok {
		return err
	}
	return kerr.ErrorForCode(code)
}
