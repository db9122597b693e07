package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

func appendTimeConfig(t *meta.Topic) (localseg.Config, tier.TopicConfig) {
	return localseg.Config{Delete: true, LogAppendTime: true}, tier.TopicConfig{Name: t.Name}
}

func listOffsetsReq(version int16, topic string, timestamps ...int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = version
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for i, ts := range timestamps {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = int32(i), ts
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func listOffset(c *client, topic string, version int16, ts int64) kmsg.ListOffsetsResponseTopicPartition {
	c.t.Helper()
	return c.do(listOffsetsReq(version, topic, ts)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
}

func TestListOffsetsInsideOneBatch(t *testing.T) { // BUG-001
	const b = 1_700_000_000_000
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	c.produce(topic, 0, batch(t, record.BatchOptions{}, b, b+10, b+10, b+20))
	for _, tc := range []struct{ ts, offset, found int64 }{
		{b, 0, b}, {b + 5, 1, b + 10}, {b + 10, 1, b + 10}, {b + 11, 3, b + 20}, {b + 20, 3, b + 20}, {b + 21, -1, -1},
	} {
		for v := int16(1); v <= 11; v++ {
			got := listOffset(c, "t", v, tc.ts)
			if got.ErrorCode != 0 || got.Offset != tc.offset || got.Timestamp != tc.found {
				t.Errorf("v%d B+%d: code %d offset %d timestamp %d, want %d, %d", v, tc.ts-b, got.ErrorCode, got.Offset, got.Timestamp, tc.offset, tc.found)
			}
		}
	}
}

func TestListOffsetsFindsNothing(t *testing.T) { // BUG-019
	w := newWorld(t, settings{config: func(t *meta.Topic) (localseg.Config, tier.TopicConfig) {
		return localseg.Config{Delete: true, RetentionMs: -1}, tier.TopicConfig{Name: t.Name}
	}})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	c.produce(topic, 0, batch(t, record.BatchOptions{}, 1000, 2000, 3000))
	if got := listOffset(c, "t", 11, 3001); got.ErrorCode != 0 || got.Offset != -1 || got.Timestamp != -1 {
		t.Fatalf("above all: %+v", got)
	}
	del := kmsg.NewPtrDeleteRecordsRequest()
	for v := int16(0); v <= 2; v++ {
		del.Version = v
		dt := kmsg.NewDeleteRecordsRequestTopic()
		dt.Topic = "t"
		dp := kmsg.NewDeleteRecordsRequestTopicPartition()
		dp.Offset = -1
		dt.Partitions = append(dt.Partitions, dp)
		del.Topics = []kmsg.DeleteRecordsRequestTopic{dt}
		if got := c.do(del).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]; got.ErrorCode != 0 || got.LowWatermark != 3 {
			t.Fatalf("DeleteRecords v%d: %+v", v, got)
		}
	}
	for _, ts := range []int64{0, -3} {
		if got := listOffset(c, "t", 11, ts); got.ErrorCode != 0 || got.Offset != -1 || got.Timestamp != -1 {
			t.Fatalf("empty log, timestamp %d: %+v", ts, got)
		}
	}
}

func TestListOffsetsSpecialTimestampsByVersion(t *testing.T) { // BUG-015, the plain topic
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	at := now()
	c.produce(topic, 0, batch(t, record.BatchOptions{}, at, at, at))
	for _, tc := range []struct {
		version int16
		ts      int64
		code    int16
		offset  int64
	}{
		{1, -1, 0, 3}, {1, -2, 0, 0}, {8, -4, 0, 0}, {9, -5, 0, -1}, {11, -6, 0, -1}, {7, -3, 0, 0},
		{6, -3, kerr.UnsupportedVersion.Code, -1}, {7, -4, kerr.UnsupportedVersion.Code, -1},
		{8, -5, kerr.UnsupportedVersion.Code, -1}, {10, -6, kerr.UnsupportedVersion.Code, -1},
		{9, -7, kerr.UnsupportedVersion.Code, -1},
	} {
		got := listOffset(c, "t", tc.version, tc.ts)
		if got.ErrorCode != tc.code || got.Offset != tc.offset {
			t.Errorf("v%d %d: code %d offset %d, want %d, %d", tc.version, tc.ts, got.ErrorCode, got.Offset, tc.code, tc.offset)
		}
		if tc.ts == -5 && got.LeaderEpoch != -1 {
			t.Errorf("-5: epoch %d, want -1", got.LeaderEpoch)
		}
	}
	req := listOffsetsReq(5, "t", -1, -1)
	req.Topics[0].Partitions[1].Partition = 0
	for _, p := range c.do(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
		if p.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("partition listed twice: code %d, want %d", p.ErrorCode, kerr.InvalidRequest.Code)
		}
	}
	fenced := listOffsetsReq(11, "t", -1)
	for epoch, want := range map[int32]int16{-1: 0, 0: 0, 5: kerr.UnknownLeaderEpoch.Code} {
		fenced.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		if got := c.do(fenced).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode; got != want {
			t.Errorf("current epoch %d: code %d, want %d", epoch, got, want)
		}
	}
}

func TestListOffsetsMaxTimestampIsTheRecords(t *testing.T) { // BUG-038
	w := newWorld(t, settings{})
	for i, codec := range []record.Codec{0, 1} {
		topic := w.topic([]string{"plain", "gzip"}[i], 1, nil)
		c := w.dial()
		c.produce(topic, 0, batch(t, record.BatchOptions{Codec: codec}, 100, 300, 200))
		for round := range 2 {
			if got := listOffset(c, topic.Name, 7, -3); got.Offset != 1 || got.Timestamp != 300 {
				t.Fatalf("%s round %d: offset %d timestamp %d, want 1, 300", topic.Name, round, got.Offset, got.Timestamp)
			}
			c.produce(topic, 0, batch(t, record.BatchOptions{Codec: codec}, 300))
		}
	}
}

func TestHeaderMaxTimestampIsRecomputed(t *testing.T) { // BUG-058
	w := newWorld(t, settings{})
	for i, claimed := range []int64{-1, 9_999_999_999_999} {
		topic := w.topic([]string{"low", "high"}[i], 1, nil)
		c := w.dial()
		b := batch(t, record.BatchOptions{}, 1000, 2000, 3000)
		record.Batch(b).SetMaxTimestamp(claimed, false)
		c.produce(topic, 0, b)
		for _, tc := range []struct{ ts, offset int64 }{{2500, 2}, {-3, 2}} {
			if got := listOffset(c, topic.Name, 11, tc.ts); got.Offset != tc.offset || got.Timestamp != 3000 {
				t.Errorf("claimed %d, timestamp %d: offset %d timestamp %d", claimed, tc.ts, got.Offset, got.Timestamp)
			}
		}
		stored := c.do(fetchReq(18, topic, 0, 0)).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches
		if got := record.Batch(stored).MaxTimestamp(); got != 3000 {
			t.Errorf("stored max timestamp %d, want 3000", got)
		}
	}
}

func TestDeleteRecordsRefusals(t *testing.T) {
	w := newWorld(t, settings{config: func(t *meta.Topic) (localseg.Config, tier.TopicConfig) {
		compacted := t.Name == "compacted"
		return localseg.Config{Delete: !compacted, Compact: compacted}, tier.TopicConfig{Name: t.Name}
	}})
	topic := w.topic("t", 1, nil)
	w.topic("compacted", 1, nil)
	c := w.dial()
	c.produce(topic, 0, batch(t, record.BatchOptions{}, now(), now(), now()))
	for _, tc := range []struct {
		topic     string
		partition int32
		offset    int64
		code      int16
		low       int64
	}{
		{"t", 0, 4, kerr.OffsetOutOfRange.Code, -1}, {"t", 0, -2, kerr.OffsetOutOfRange.Code, -1},
		{"t", 0, 2, 0, 2}, {"t", 0, 1, 0, 2}, {"t", 7, 0, kerr.UnknownTopicOrPartition.Code, -1}, {"nope", 0, 0, kerr.UnknownTopicOrPartition.Code, -1},
		{"compacted", 0, 0, kerr.PolicyViolation.Code, -1}, {"__consumer_offsets", 0, 0, kerr.InvalidTopicException.Code, -1},
	} {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version = 2
		dt := kmsg.NewDeleteRecordsRequestTopic()
		dt.Topic = tc.topic
		dp := kmsg.NewDeleteRecordsRequestTopicPartition()
		dp.Partition, dp.Offset = tc.partition, tc.offset
		dt.Partitions = append(dt.Partitions, dp)
		req.Topics = append(req.Topics, dt)
		got := c.do(req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
		if got.ErrorCode != tc.code || got.LowWatermark != tc.low {
			t.Errorf("%s-%d before %d: code %d low watermark %d, want %d, %d", tc.topic, tc.partition, tc.offset, got.ErrorCode, got.LowWatermark, tc.code, tc.low)
		}
	}
}
