package broker

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
)

func TestProduceAndFetchAtEveryVersion(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	offset := int64(0)
	for v := int16(3); v <= 13; v++ {
		for _, acks := range []int16{1, -1} {
			resp := c.do(produceReq(v, acks, topic, 0, batch(t, record.BatchOptions{}, now(), now()))).(*kmsg.ProduceResponse)
			p := resp.Topics[0].Partitions[0]
			if p.ErrorCode != 0 || p.BaseOffset != offset || p.LogAppendTime != -1 {
				t.Fatalf("produce v%d acks %d: %+v", v, acks, p)
			}
			offset += 2
		}
	}
	for v := int16(4); v <= 18; v++ {
		resp := c.do(fetchReq(v, topic, 0, 0)).(*kmsg.FetchResponse)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.HighWatermark != offset || p.LastStableOffset != offset || v >= 5 && p.LogStartOffset != 0 {
			t.Fatalf("fetch v%d: %+v", v, p)
		}
		if got := offsets(t, p.RecordBatches); len(got) != int(offset) || got[len(got)-1] != offset-1 {
			t.Fatalf("fetch v%d: offsets %v", v, got)
		}
	}
}

// offsets decodes the offsets of all records.
func offsets(t testing.TB, b []byte) (out []int64) {
	t.Helper()
	for len(b) > 0 {
		first, rest, err := record.Next(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Check(); err != nil {
			t.Fatal(err)
		}
		it := first.Records(1 << 20)
		for it.Next() {
			out = append(out, it.Record().Offset)
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
		it.Close()
		b = rest
	}
	return out
}

func TestProduceRefusals(t *testing.T) {
	w := newWorld(t, settings{broker: func(o *Options) {
		o.Rules = func(*meta.Topic) record.ValidateOptions {
			r := defaultRules
			r.MaxBytes = 10_000
			return r
		}
	}})
	topic := w.topic("t", 1, nil)
	good := batch(t, record.BatchOptions{}, now())
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	oldMagic := bytes.Clone(good)
	oldMagic[16] = 1
	zstd := batch(t, record.BatchOptions{Codec: codecZstd}, now())
	big, err := record.Build(nil, record.BatchOptions{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]record.Record{{Timestamp: now(), Value: make([]byte, 20_000)}})
	if err != nil {
		t.Fatal(err)
	}
	txn := batch(t, record.BatchOptions{ProducerID: 7, Transactional: true}, now())
	for _, tc := range []struct {
		name    string
		version int16
		acks    int16
		topic   meta.Topic
		part    int32
		records []byte
		want    *kerr.Error
	}{
		{"acks 2", 9, 2, *topic, 0, good, kerr.InvalidRequiredAcks},
		{"acks -2", 9, -2, *topic, 0, good, kerr.InvalidRequiredAcks},
		{"unknown topic", 9, 1, meta.Topic{Name: "nope"}, 0, good, kerr.UnknownTopicOrPartition},
		{"unknown topic id", 13, 1, meta.Topic{Name: "t", ID: [16]byte{1}}, 0, good, kerr.UnknownTopicID},
		{"no topic id", 13, 1, meta.Topic{Name: "t"}, 0, good, kerr.UnknownTopicID},
		{"unknown partition", 9, 1, *topic, 5, good, kerr.UnknownTopicOrPartition},
		{"negative partition", 9, 1, *topic, -1, good, kerr.UnknownTopicOrPartition},
		{"internal topic (BUG-083)", 9, -1, meta.Topic{Name: "__consumer_offsets"}, 0, good, kerr.InvalidTopicException},
		{"internal topic (BUG-083)", 9, -1, meta.Topic{Name: "__transaction_state"}, 0, good, kerr.InvalidTopicException},
		{"null records", 9, 1, *topic, 0, nil, kerr.InvalidRecord},
		{"no records", 9, 1, *topic, 0, []byte{}, kerr.InvalidRecord},
		{"two batches", 9, 1, *topic, 0, append(bytes.Clone(good), good...), kerr.InvalidRecord},
		{"bit flip", 9, 1, *topic, 0, flipped, kerr.CorruptMessage},
		{"cut short", 9, 1, *topic, 0, good[:len(good)-1], kerr.CorruptMessage},
		{"garbage", 9, 1, *topic, 0, bytes.Repeat([]byte{0xff}, 100), kerr.CorruptMessage},
		{"old magic", 9, 1, *topic, 0, oldMagic, kerr.InvalidRecord},
		{"zstd before v7", 6, 1, *topic, 0, zstd, kerr.UnsupportedCompressionType},
		{"too large", 9, 1, *topic, 0, big, kerr.MessageTooLarge},
		{"transactional", 9, 1, *topic, 0, txn, kerr.InvalidTxnState},
	} {
		c := w.dial()
		resp := c.do(produceReq(tc.version, tc.acks, &tc.topic, tc.part, tc.records)).(*kmsg.ProduceResponse)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != tc.want.Code || p.BaseOffset != -1 {
			t.Errorf("%s: code %d (%v) base %d, want %d", tc.name, p.ErrorCode, kerr.ErrorForCode(p.ErrorCode), p.BaseOffset, tc.want.Code)
		}
		if tc.version >= 8 && p.ErrorMessage == nil {
			t.Errorf("%s: no error message", tc.name)
		}
	}
	if leo := w.partition("t", 0).LEO(); leo != 0 {
		t.Fatalf("LEO = %d after refusals, want 0", leo)
	}
}

func TestRefusedRecordsAreNamed(t *testing.T) { // KIP-467
	w := newWorld(t, settings{broker: func(o *Options) {
		o.Rules = func(*meta.Topic) record.ValidateOptions {
			r := defaultRules
			r.TimestampAfterMs = 1000
			return r
		}
	}})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	for v := int16(3); v <= 13; v++ {
		resp := c.do(produceReq(v, -1, topic, 0, batch(t, record.BatchOptions{}, now(), now()+3_600_000, now()))).(*kmsg.ProduceResponse)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != kerr.InvalidTimestamp.Code {
			t.Fatalf("v%d: code %d, want %d", v, p.ErrorCode, kerr.InvalidTimestamp.Code)
		}
		if v >= 8 && (len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 1 || p.ErrorRecords[0].ErrorMessage == nil) {
			t.Fatalf("v%d: %+v", v, p.ErrorRecords)
		}
	}
}

func TestAnswersNameTheLeaderElsewhere(t *testing.T) { // KIP-951
	w := newWorld(t, settings{})
	topic, err := w.store.CreateTopic(t.Context(), meta.TopicSpec{Name: "t", Assignment: [][]int32{{2}}})
	if err != nil {
		t.Fatal(err)
	}
	w.until("the image has the topic", func() bool { return w.store.Image().Topics["t"] != nil })
	c := w.dial()
	for v := int16(3); v <= 13; v++ {
		resp := c.do(produceReq(v, -1, topic, 0, batch(t, record.BatchOptions{}, now()))).(*kmsg.ProduceResponse)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Fatalf("produce v%d: code %d", v, p.ErrorCode)
		}
		if hinted := p.CurrentLeader.LeaderID == 2 && p.CurrentLeader.LeaderEpoch == 0 && len(resp.Brokers) == 1 && resp.Brokers[0].NodeID == 1; hinted != (v >= 10) {
			t.Fatalf("produce v%d: leader %+v, brokers %+v", v, p.CurrentLeader, resp.Brokers)
		}
	}
	for v := int16(4); v <= 18; v++ {
		resp := c.do(fetchReq(v, topic, 0, 0)).(*kmsg.FetchResponse)
		p := resp.Topics[0].Partitions[0]
		if hinted := p.CurrentLeader.LeaderID == 2 && len(resp.Brokers) == 1; p.ErrorCode != kerr.NotLeaderForPartition.Code || hinted != (v >= 16) {
			t.Fatalf("fetch v%d: %+v", v, p)
		}
	}
	if got := c.metadata(metadataReq(13, false, "t")).Topics[0].Partitions[0]; got.ErrorCode != kerr.LeaderNotAvailable.Code || got.Leader != -1 || len(got.OfflineReplicas) != 1 {
		t.Fatalf("metadata of a partition whose leader is down: %+v", got)
	}
}

func TestAcksZeroAnswersNothingAndClosesOnError(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	c.send(produceReq(9, 0, topic, 0, batch(t, record.BatchOptions{}, now())))
	if p := c.produce(topic, 0, batch(t, record.BatchOptions{}, now())); p.BaseOffset != 1 {
		t.Fatalf("base offset %d, want 1", p.BaseOffset)
	}
	c.send(produceReq(9, 0, topic, 9, batch(t, record.BatchOptions{}, now())))
	c.closed()
}

func TestDuplicateBatchGetsTheOriginalOffsets(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	b := batch(t, record.BatchOptions{ProducerID: 5}, now(), now())
	for range 2 {
		if p := c.produce(topic, 0, bytes.Clone(b)); p.BaseOffset != 0 {
			t.Fatalf("base offset %d, want 0", p.BaseOffset)
		}
	}
	gap := batch(t, record.BatchOptions{ProducerID: 5, BaseSequence: 7}, now())
	resp := c.do(produceReq(13, -1, topic, 0, gap)).(*kmsg.ProduceResponse)
	if got := resp.Topics[0].Partitions[0].ErrorCode; got != kerr.OutOfOrderSequenceNumber.Code {
		t.Fatalf("sequence gap: code %d, want %d", got, kerr.OutOfOrderSequenceNumber.Code)
	}
	if leo := w.partition("t", 0).LEO(); leo != 2 {
		t.Fatalf("LEO = %d, want 2", leo)
	}
}

func TestLeaderEpochFieldOfTheProducerIsIgnored(t *testing.T) { // BUG-090
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	for i, epoch := range []int32{-1, 0, 99} {
		b := batch(t, record.BatchOptions{LeaderEpoch: epoch}, now())
		if p := c.produce(topic, 0, b); p.BaseOffset != int64(i) {
			t.Fatalf("epoch field %d: base offset %d", epoch, p.BaseOffset)
		}
	}
	want := w.partition("t", 0).LeaderEpoch()
	rest := c.do(fetchReq(18, topic, 0, 0)).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches
	for len(rest) > 0 {
		var b record.Batch
		var err error
		if b, rest, err = record.Next(rest); err != nil {
			t.Fatal(err)
		}
		if b.LeaderEpoch() != want || b.Check() != nil {
			t.Fatalf("stored epoch %d, want %d; check %v", b.LeaderEpoch(), want, b.Check())
		}
	}
}

func TestLogAppendTimeIsAnswered(t *testing.T) { // BUG-060, in part
	w := newWorld(t, settings{
		config: appendTimeConfig,
		broker: func(o *Options) {
			o.Rules = func(*meta.Topic) record.ValidateOptions {
				r := defaultRules
				r.LogAppendTime = true
				return r
			}
		},
	})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	before := now()
	p := c.produce(topic, 0, batch(t, record.BatchOptions{}, 1, 50_000, 100_000))
	if p.LogAppendTime < before || p.LogAppendTime > now() {
		t.Fatalf("log append time %d, produced at %d", p.LogAppendTime, before)
	}
	for _, tc := range []struct{ ts, want int64 }{{p.LogAppendTime, 0}, {p.LogAppendTime - 1, 0}, {p.LogAppendTime + 1, -1}, {-3, 0}} {
		if got := listOffset(c, "t", 11, tc.ts); got.ErrorCode != 0 || got.Offset != tc.want {
			t.Errorf("ListOffsets(%d): code %d offset %d, want %d", tc.ts-p.LogAppendTime, got.ErrorCode, got.Offset, tc.want)
		}
	}
}
