package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/record"
)

// session makes req a request of a session.
func inSession(req *kmsg.FetchRequest, id, epoch int32) *kmsg.FetchRequest {
	req.SessionID, req.SessionEpoch = id, epoch
	return req
}

// told lists the partitions that an answer includes.
func told(r *kmsg.FetchResponse) (out []int32) {
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			out = append(out, p.Partition)
		}
	}
	return out
}

func TestIncrementalAnswersIncludeWhatIsNew(t *testing.T) { // BUG-056, KIP-227
	w := newWorld(t, settings{})
	topic := w.topic("t", 3, nil)
	for _, version := range []int16{7, 12, 13, 18} {
		c := w.dial()
		start := w.partition("t", 0).LEO()
		full := inSession(fetchReq(version, topic, start, 0, 1, 2), 0, 0)
		for i := range full.Topics[0].Partitions {
			full.Topics[0].Partitions[i].FetchOffset = w.partition("t", int32(i)).LEO()
		}
		first := c.fetch(full)
		id := first.SessionID
		if id == 0 || len(told(first)) != 3 {
			t.Fatalf("v%d first: session %d, partitions %v", version, id, told(first))
		}
		empty := func(epoch int32) *kmsg.FetchRequest {
			r := inSession(fetchReq(version, topic, 0), id, epoch)
			r.Topics = nil
			return r
		}
		if got := c.fetch(empty(1)); got.ErrorCode != 0 || len(told(got)) != 0 {
			t.Fatalf("v%d nothing new: %+v", version, got)
		}
		c.produce(topic, 1, batch(t, record.BatchOptions{}, now()))
		if got := c.fetch(empty(2)); len(told(got)) != 1 || told(got)[0] != 1 {
			t.Fatalf("v%d one appended: %v", version, told(got))
		}
		// Not consumed: it has records, so it is told again.
		if got := c.fetch(empty(3)); len(told(got)) != 1 {
			t.Fatalf("v%d not consumed: %v", version, told(got))
		}
		// Consumed, the log start moves: told without records.
		next := inSession(fetchReq(version, topic, w.partition("t", 1).LEO(), 1), id, 4)
		if got := c.fetch(next); len(told(got)) != 0 {
			t.Fatalf("v%d consumed: %v", version, told(got))
		}
		if _, err := w.partition("t", 1).DeleteRecords(-1); err != nil {
			t.Fatal(err)
		}
		if got := c.fetch(empty(5)); len(told(got)) != 1 || got.Topics[0].Partitions[0].LogStartOffset != w.partition("t", 1).LEO() {
			t.Fatalf("v%d log start moved: %+v", version, got)
		}
		// An error is told each time.
		bad := inSession(fetchReq(version, topic, 1<<40, 2), id, 6)
		if got := c.fetch(bad); len(told(got)) != 1 || got.Topics[0].Partitions[0].ErrorCode != kerr.OffsetOutOfRange.Code {
			t.Fatalf("v%d error: %+v", version, got)
		}
		if got := c.fetch(empty(7)); len(told(got)) != 1 {
			t.Fatalf("v%d error again: %v", version, told(got))
		}
		// Forgotten, it is told no more.
		forget := empty(8)
		ft := kmsg.NewFetchRequestForgottenTopic()
		ft.Topic, ft.TopicID, ft.Partitions = topic.Name, topic.ID, []int32{2}
		forget.ForgottenTopics = append(forget.ForgottenTopics, ft)
		if got := c.fetch(forget); len(told(got)) != 0 {
			t.Fatalf("v%d forgotten: %v", version, told(got))
		}
		if got := c.fetch(empty(20)); got.ErrorCode != kerr.InvalidFetchSessionEpoch.Code {
			t.Fatalf("v%d wrong epoch: code %d", version, got.ErrorCode)
		}
		// Closing the session, then a full fetch at an old offset has the data at once.
		final := inSession(fetchReq(version, topic, w.partition("t", 0).LogStart(), 0), id, -1)
		c.fetch(final)
		if got := c.fetch(empty(9)); got.ErrorCode != kerr.FetchSessionIDNotFound.Code {
			t.Fatalf("v%d closed: code %d", version, got.ErrorCode)
		}
		c.produce(topic, 0, batch(t, record.BatchOptions{}, now(), now()))
		again := inSession(fetchReq(version, topic, w.partition("t", 0).LEO()-1, 0), 0, 0)
		if got := c.fetch(again); len(told(got)) != 1 || len(got.Topics[0].Partitions[0].RecordBatches) == 0 {
			t.Fatalf("v%d new full fetch: %+v", version, got)
		}
	}
}

func TestSessionByNameIsNotContinuedByID(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	id := c.fetch(inSession(fetchReq(12, topic, 0, 0), 0, 0)).SessionID
	r := inSession(fetchReq(13, topic, 0), id, 1)
	r.Topics = nil
	if got := c.fetch(r); got.ErrorCode != kerr.FetchSessionTopicIDError.Code {
		t.Fatalf("code %d, want %d", got.ErrorCode, kerr.FetchSessionTopicIDError.Code)
	}
}

func TestPartitionsWithDataTakeTurns(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 3, nil)
	c := w.dial()
	for p := range int32(3) {
		c.produce(topic, p, bigBatch(t, 1000))
	}
	full := inSession(fetchReq(13, topic, 0, 0, 1, 2), 0, 0)
	full.MaxBytes = 1
	r := c.fetch(full)
	id := r.SessionID
	seen := map[int32]bool{}
	for epoch := int32(1); epoch <= 3; epoch++ {
		for _, p := range r.Topics[0].Partitions {
			if len(p.RecordBatches) > 0 {
				seen[p.Partition] = true
			}
		}
		more := inSession(fetchReq(13, topic, 0), id, epoch)
		more.Topics, more.MaxBytes = nil, 1
		r = c.fetch(more)
	}
	if len(seen) != 3 {
		t.Fatalf("partitions that got their turn in three answers: %v", seen)
	}
}

func TestFullCacheEvictsOnlySessionsLongUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ss := newSessions(2, prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"}))
		make1 := func() *session {
			req := kmsg.NewPtrFetchRequest()
			req.Version = 13
			req.Topics = []kmsg.FetchRequestTopic{{TopicID: [16]byte{1}, Partitions: make([]kmsg.FetchRequestTopicPartition, 1)}}
			return ss.create(req)
		}
		a, b := make1(), make1()
		if a == nil || b == nil || make1() != nil {
			t.Fatal("the cache holds two sessions, no third")
		}
		time.Sleep(evictAfter)
		ss.find(b.id)
		if make1() == nil || ss.find(a.id) != nil || ss.find(b.id) == nil {
			t.Fatal("the one that is longest unused goes")
		}
	})
}
