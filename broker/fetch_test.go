package broker

import (
	"bytes"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/record"
)

func (c *client) fetch(req *kmsg.FetchRequest) *kmsg.FetchResponse {
	c.t.Helper()
	return c.do(req).(*kmsg.FetchResponse)
}

// bigBatch holds one record of n bytes.
func bigBatch(t testing.TB, n int) []byte {
	t.Helper()
	b, err := record.Build(nil, record.BatchOptions{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]record.Record{{Timestamp: now(), Value: bytes.Repeat([]byte("x"), n)}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFirstBatchIsReturnedWhateverTheLimits(t *testing.T) { // BUG-017
	w := newWorld(t, settings{})
	topic := w.topic("t", 2, nil)
	c := w.dial()
	for p := range int32(2) {
		c.produce(topic, p, bigBatch(t, 126_000))
	}
	req := fetchReq(12, topic, 0, 0, 1)
	req.MaxBytes = 1
	for i := range req.Topics[0].Partitions {
		req.Topics[0].Partitions[i].PartitionMaxBytes = 1
	}
	got := c.fetch(req).Topics[0].Partitions
	if len(got[0].RecordBatches) < 126_000 || got[0].ErrorCode != 0 || got[1].ErrorCode != 0 || len(got[1].RecordBatches) != 0 {
		t.Fatalf("first answer: %d bytes code %d, %d bytes code %d", len(got[0].RecordBatches), got[0].ErrorCode, len(got[1].RecordBatches), got[1].ErrorCode)
	}
	if got[1].HighWatermark != 1 {
		t.Fatalf("high watermark of the partition without data: %d, want 1", got[1].HighWatermark)
	}
	req.Topics[0].Partitions[0].FetchOffset = 1
	got = c.fetch(req).Topics[0].Partitions
	if len(got[0].RecordBatches) != 0 || len(got[1].RecordBatches) < 126_000 {
		t.Fatalf("second answer: %d and %d bytes", len(got[0].RecordBatches), len(got[1].RecordBatches))
	}
}

func TestLargeRangesAreSentWhole(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 3, nil)
	c := w.dial()
	var want [3][]byte
	for p := range int32(3) {
		for range 8 { // several sizes around the sendfile threshold
			c.produce(topic, p, bigBatch(t, 20_000+int(p)*30_000))
		}
		want[p] = stored(t, w, "t", p)
	}
	for _, version := range []int16{4, 11, 12, 18} {
		req := fetchReq(version, topic, 0, 0, 1, 2)
		for i, p := range c.fetch(req).Topics[0].Partitions {
			if !bytes.Equal(p.RecordBatches, want[i]) {
				t.Fatalf("v%d partition %d: %d bytes differ from the %d stored", version, i, len(p.RecordBatches), len(want[i]))
			}
		}
	}
}

// stored reads all of a partition from its log.
func stored(t testing.TB, w *world, topic string, partition int32) []byte {
	t.Helper()
	p := w.partition(topic, partition)
	span, err := p.Log().Read(0, p.LEO(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	defer span.Release()
	b := make([]byte, span.Size)
	if _, err := span.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFetchErrors(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	c.produce(topic, 0, batch(t, record.BatchOptions{}, 1, 2, 3))
	unknown := *topic
	unknown.Name, unknown.ID = "nope", [16]byte{9}
	for _, tc := range []struct {
		name string
		req  *kmsg.FetchRequest
		want int16
	}{
		{"below", fetchReq(18, topic, -1, 0), kerr.OffsetOutOfRange.Code},
		{"above", fetchReq(18, topic, 4, 0), kerr.OffsetOutOfRange.Code},
		{"at the end", fetchReq(18, topic, 3, 0), 0},
		{"unknown topic", fetchReq(12, &unknown, 0, 0), kerr.UnknownTopicOrPartition.Code},
		{"unknown topic id", fetchReq(13, &unknown, 0, 0), kerr.UnknownTopicID.Code},
		{"unknown partition", fetchReq(13, topic, 0, 7), kerr.UnknownTopicOrPartition.Code},
	} {
		tc.req.MaxWaitMillis = 10_000 // errors do not wait
		if tc.want == 0 {
			tc.req.MaxWaitMillis = 0
		}
		if got := c.fetch(tc.req).Topics[0].Partitions[0]; got.ErrorCode != tc.want || len(got.RecordBatches) != 0 {
			t.Errorf("%s: code %d, %d bytes, want code %d", tc.name, got.ErrorCode, len(got.RecordBatches), tc.want)
		}
	}
	epoch := fetchReq(18, topic, 0, 0)
	current := w.partition("t", 0).LeaderEpoch()
	for e, want := range map[int32]int16{current: 0, current + 1: kerr.UnknownLeaderEpoch.Code} {
		epoch.Topics[0].Partitions[0].CurrentLeaderEpoch = e
		if got := c.fetch(epoch).Topics[0].Partitions[0].ErrorCode; got != want {
			t.Errorf("current epoch %d: code %d, want %d", e, got, want)
		}
	}
	follower := fetchReq(18, topic, 0, 0)
	follower.ReplicaState.ID = 2
	if got := c.fetch(follower).Topics[0].Partitions[0].ErrorCode; got != kerr.ReplicaNotAvailable.Code {
		t.Errorf("replica fetch: code %d", got)
	}
}

func TestEpochThatEndedEarlierDiverges(t *testing.T) { // KIP-320
	kvDir := t.TempDir()
	w := newWorld(t, settings{dir: kvDir})
	topic := w.topic("t", 1, nil)
	w.dial().produce(topic, 0, batch(t, record.BatchOptions{}, 1, 2, 3))
	old := w.partition("t", 0).LeaderEpoch()
	w.stop()
	w = newWorld(t, settings{dir: kvDir, kv: w.kv})
	c := w.dial()
	c.produce(topic, 0, batch(t, record.BatchOptions{}, 4, 5))
	if now := w.partition("t", 0).LeaderEpoch(); now <= old {
		t.Fatalf("epoch %d after a restart, was %d", now, old)
	}
	req := fetchReq(18, topic, 4, 0)
	req.Topics[0].Partitions[0].LastFetchedEpoch = old
	got := c.fetch(req).Topics[0].Partitions[0]
	if got.ErrorCode != 0 || got.DivergingEpoch.Epoch != old || got.DivergingEpoch.EndOffset != 3 || len(got.RecordBatches) != 0 {
		t.Fatalf("diverging: %+v", got)
	}
	stale := fetchReq(18, topic, 0, 0)
	stale.Topics[0].Partitions[0].CurrentLeaderEpoch = old
	resp := c.fetch(stale)
	if got := resp.Topics[0].Partitions[0]; got.ErrorCode != kerr.FencedLeaderEpoch.Code || got.CurrentLeader.LeaderID != 1 || len(resp.Brokers) != 1 {
		t.Fatalf("fenced: %+v, brokers %+v", got, resp.Brokers)
	}

	ends := kmsg.NewPtrOffsetForLeaderEpochRequest() // BUG-021
	for v := int16(2); v <= 4; v++ {
		for _, tc := range []struct {
			epoch, found int32
			end          int64
		}{{old, old, 3}, {old + 1, old + 1, 5}, {old + 6, -1, -1}, {-1, -1, -1}} {
			ends.Version = v
			et := kmsg.NewOffsetForLeaderEpochRequestTopic()
			et.Topic = "t"
			ep := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			ep.LeaderEpoch = tc.epoch
			et.Partitions = append(et.Partitions, ep)
			ends.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{et}
			got := c.do(ends).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
			if got.ErrorCode != 0 || got.LeaderEpoch != tc.found || got.EndOffset != tc.end {
				t.Errorf("v%d epoch %d: %+v, want (%d, %d)", v, tc.epoch, got, tc.found, tc.end)
			}
		}
	}
}

func TestLongPollWakesOnAppendAndReturnsAtMaxWait(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 2, nil)
	c, producer := w.dial(), w.dial()
	req := fetchReq(18, topic, 0, 0, 1)
	req.MaxWaitMillis = 50
	began := time.Now()
	if got := c.fetch(req); len(got.Topics[0].Partitions) != 2 || len(got.Topics[0].Partitions[0].RecordBatches) != 0 {
		t.Fatalf("empty partitions: %+v", got)
	}
	if d := time.Since(began); d < 50*time.Millisecond {
		t.Fatalf("answered after %v, max.wait is 50 ms", d)
	}
	req.MaxWaitMillis = 20_000
	began = time.Now()
	id := c.send(req)
	producer.produce(topic, 1, batch(t, record.BatchOptions{}, 1))
	got := c.receive(req, id).(*kmsg.FetchResponse)
	if len(got.Topics[0].Partitions[1].RecordBatches) == 0 || time.Since(began) > 10*time.Second {
		t.Fatalf("after %v: %+v", time.Since(began), got)
	}
	req = fetchReq(18, topic, 1, 1)
	req.MaxWaitMillis, req.MinBytes = 20_000, 150
	id = c.send(req)
	for range 5 {
		producer.produce(topic, 1, batch(t, record.BatchOptions{}, 1))
	}
	if n := len(c.receive(req, id).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches); n < 150 {
		t.Fatalf("%d bytes, min.bytes is 150", n)
	}
}

func TestLongPollEndsWhenTheTopicIsDeleted(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	req := fetchReq(18, topic, 0, 0)
	req.MaxWaitMillis = 20_000
	id := c.send(req)
	if err := w.store.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	got := c.receive(req, id).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if got.ErrorCode == 0 || time.Since(began) > 10*time.Second {
		t.Fatalf("code %d after %v", got.ErrorCode, time.Since(began))
	}
}

func TestAbortedTransactionsAreListedForCommittedReadersOnly(t *testing.T) { // BUG-062, BUG-008
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	p := w.partition("t", 0)
	put := func(b record.Batch, from localseg.Origin) {
		t.Helper()
		if _, err := p.Append([]record.Batch{b}, from, false); err != nil {
			t.Fatal(err)
		}
	}
	txn := func(seq int32) record.Batch {
		return batch(t, record.BatchOptions{ProducerID: 7, BaseSequence: seq, Transactional: true}, now())
	}
	marker := func(commit bool) record.Batch {
		return record.BuildMarker(nil, 7, 0, now(), record.Marker{Commit: commit})
	}
	put(txn(0), localseg.OriginClient)         // 0
	put(marker(true), localseg.OriginInternal) // 1
	put(txn(1), localseg.OriginClient)         // 2
	c := w.dial()
	open := fetchReq(18, topic, 2, 0)
	open.IsolationLevel = 1
	if got := c.fetch(open).Topics[0].Partitions[0]; got.LastStableOffset != 2 || got.HighWatermark != 3 || len(got.RecordBatches) != 0 {
		t.Fatalf("open transaction: %+v", got)
	}
	put(marker(false), localseg.OriginInternal) // 3
	put(txn(2), localseg.OriginClient)          // 4
	put(marker(true), localseg.OriginInternal)  // 5
	for v := int16(4); v <= 18; v++ {
		for _, tc := range []struct {
			from int64
			want int
		}{{0, 1}, {2, 1}, {3, 1}, {4, 0}} {
			req := fetchReq(v, topic, tc.from, 0)
			if got := c.fetch(req).Topics[0].Partitions[0]; len(got.AbortedTransactions) != 0 || len(got.RecordBatches) == 0 {
				t.Fatalf("v%d uncommitted from %d: %+v", v, tc.from, got)
			}
			req.IsolationLevel = 1
			got := c.fetch(req).Topics[0].Partitions[0]
			if len(got.AbortedTransactions) > 1 || tc.from != 3 && len(got.AbortedTransactions) != tc.want {
				t.Fatalf("v%d committed from %d: %+v", v, tc.from, got.AbortedTransactions)
			}
			for _, a := range got.AbortedTransactions {
				if a.ProducerID != 7 || a.FirstOffset != 2 {
					t.Fatalf("v%d from %d: aborted %+v", v, tc.from, a)
				}
			}
			if got.HighWatermark != 6 || got.LastStableOffset != 6 {
				t.Fatalf("v%d: high watermark %d, last stable %d", v, got.HighWatermark, got.LastStableOffset)
			}
		}
	}
}
