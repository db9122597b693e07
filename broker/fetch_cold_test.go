package broker

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// coldWorld has topic t with four partitions, all records of which but those of the last are in the archive alone.
func coldWorld(t *testing.T) (*world, *fault.Bucket, *meta.Topic, [3][]byte) {
	t.Helper()
	bucket := fault.New(mem.New(mem.Options{}), fault.Options{})
	w := newWorld(t, settings{
		bucket: bucket,
		retain: 20 * time.Millisecond,
		config: func(t *meta.Topic) (localseg.Config, tier.TopicConfig) {
			return localseg.Config{Delete: true, Tiered: true, SegmentBytes: 8192, RetentionMs: -1, LocalRetentionBytes: 1},
				tier.TopicConfig{Name: t.Name, RetentionMs: -1, RetentionBytes: -1}
		},
	})
	topic := w.topic("t", 4, nil)
	c := w.dial()
	var want [3][]byte
	for p := range int32(3) {
		for i := range int64(4) {
			b := bigBatch(t, 6000)
			want[p] = append(want[p], b...)
			stamped := record.Batch(want[p][len(want[p])-len(b):]) // as the broker will
			stamped.SetOffset(i)
			stamped.SetLeaderEpoch(w.partition("t", p).LeaderEpoch())
			c.produce(topic, p, b)
		}
	}
	for p := range int32(3) {
		part := w.partition("t", p)
		w.until("archived and evicted", func() bool {
			return part.Archive() != nil && part.Archive().Through() == 4 && part.Log().LocalStart() >= 3
		})
	}
	return w, bucket, topic, want
}

func TestFetchReadsArchivedAndLocalPartitionsTogether(t *testing.T) {
	w, _, topic, want := coldWorld(t)
	c := w.dial()
	c.produce(topic, 3, bigBatch(t, 100))
	for v := int16(4); v <= 18; v++ {
		req := fetchReq(v, topic, 0, 0, 1, 2, 3)
		req.MaxWaitMillis = 10_000
		var got [4][]byte
		for round := range 6 { // a read ends with its segment
			for i, p := range c.fetch(req).Topics[0].Partitions {
				if p.ErrorCode != 0 {
					t.Fatalf("v%d round %d partition %d: code %d", v, round, i, p.ErrorCode)
				}
				offs := offsets(t, p.RecordBatches)
				got[i] = append(got[i], p.RecordBatches...)
				req.Topics[0].Partitions[i].FetchOffset += int64(len(offs))
			}
			if req.Topics[0].Partitions[0].FetchOffset+req.Topics[0].Partitions[1].FetchOffset+req.Topics[0].Partitions[2].FetchOffset == 12 {
				break
			}
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("v%d partition %d: %d bytes differ from the %d produced", v, i, len(got[i]), len(want[i]))
			}
		}
		if len(got[3]) == 0 {
			t.Fatalf("v%d: nothing of the local partition", v)
		}
	}
}

func TestFetchLimitsHoldForArchivedPartitions(t *testing.T) {
	w, _, topic, _ := coldWorld(t)
	c := w.dial()
	req := fetchReq(18, topic, 0, 0, 1, 2)
	req.MaxWaitMillis, req.MaxBytes = 10_000, 1
	got := c.fetch(req).Topics[0].Partitions
	if len(got[0].RecordBatches) < 6000 || len(got[1].RecordBatches) != 0 || len(got[2].RecordBatches) != 0 {
		t.Fatalf("%d, %d, %d bytes", len(got[0].RecordBatches), len(got[1].RecordBatches), len(got[2].RecordBatches))
	}
	if got[1].HighWatermark != 4 || got[1].ErrorCode != 0 {
		t.Fatalf("partition without data: %+v", got[1])
	}
}

func TestFetchReturnsWhatIsReadyAtMaxWait(t *testing.T) {
	w, bucket, topic, _ := coldWorld(t)
	c := w.dial()
	c.produce(topic, 3, bigBatch(t, 100))
	bucket.SetRules(fault.Rule{Op: fault.Get, Effect: fault.Slow, Latency: 300 * time.Millisecond})
	req := fetchReq(18, topic, 0, 3, 0)
	req.MaxWaitMillis = 50
	began := time.Now()
	got := c.fetch(req).Topics[0].Partitions
	if d := time.Since(began); d < 50*time.Millisecond || d > 280*time.Millisecond {
		t.Fatalf("answered after %v", d)
	}
	if len(got[0].RecordBatches) == 0 || got[1].ErrorCode != 0 || len(got[1].RecordBatches) != 0 {
		t.Fatalf("local %d bytes, archived code %d, %d bytes", len(got[0].RecordBatches), got[1].ErrorCode, len(got[1].RecordBatches))
	}
	// What came too late has filled the cache meanwhile.
	req = fetchReq(18, topic, 0, 0)
	req.MaxWaitMillis = 100
	w.until("the archived records come", func() bool {
		p := c.fetch(req).Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			t.Fatalf("code %d", p.ErrorCode)
		}
		return len(p.RecordBatches) > 0
	})
}

func TestFetchAnswersARetriableErrorWhileTheArchiveFails(t *testing.T) {
	w, bucket, topic, _ := coldWorld(t)
	c := w.dial()
	bucket.SetRules(fault.Rule{Op: fault.Get, Effect: fault.Fail, Err: objstore.ErrUnavailable})
	req := fetchReq(18, topic, 0, 0)
	req.MaxWaitMillis = 5000
	if got := c.fetch(req).Topics[0].Partitions[0]; got.ErrorCode != kerr.KafkaStorageError.Code || !kerr.IsRetriable(kerr.ErrorForCode(got.ErrorCode)) {
		t.Fatalf("code %d", got.ErrorCode)
	}
	bucket.SetRules()
	w.until("the records come", func() bool { return len(c.fetch(req).Topics[0].Partitions[0].RecordBatches) > 0 })
}

func TestReaderThatWaitsForTheArchiveTooLongIsTold(t *testing.T) {
	w, bucket, topic, _ := coldWorld(t)
	bucket.SetRules(fault.Rule{Op: fault.Get, Effect: fault.Slow, Latency: time.Hour})
	c, _ := pipe(t, w.server)
	sc := &c.fetch
	fetch := func() *fetchPart {
		req := fetchReq(18, topic, 0, 0)
		req.MaxWaitMillis = 20
		sc.parts = requestParts(req, nil)
		lim := c.fetchLimits(req)
		c.resolve(req)
		c.readUntil(&lim)
		return &sc.parts[0]
	}
	if f := fetch(); f.err != nil || f.slice.Size != 0 || f.slice.HighWatermark != 4 {
		t.Fatalf("at first: %+v", f)
	}
	r := sc.cold[w.partition("t", 0)]
	if r == nil || fetch().err != nil || sc.cold[w.partition("t", 0)] != r {
		t.Fatal("the second Fetch did not go on with the read of the first")
	}
	r.cancel() // as its time-out does
	<-r.done
	r.err = fmt.Errorf("no answer: %w", replica.ErrArchive)
	if got := code(fetch().err); got != kerr.KafkaStorageError.Code {
		t.Fatalf("code %d, want %d", got, kerr.KafkaStorageError.Code)
	}
	if len(sc.cold) != 0 {
		t.Fatal("the read that failed is still kept")
	}
	fetch()
	sc.drop()
	if len(sc.cold) != 0 {
		t.Fatal("reads are kept after the connection")
	}
}
