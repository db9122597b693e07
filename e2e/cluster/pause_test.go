package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/record"
)

// A leader that sleeps longer than its session wakes up believing that it leads: what waits in its sockets, and what clients that know
// no better send it, it may append, and must not acknowledge.
func TestPausedLeaderAcknowledgesNothingThatOthersLack(t *testing.T) {
	w := together(t)
	l := w.loaded("paused")
	d := w.direct(l, "paused", 0, 1)
	w.sleep(1)
	d.send(20) // into its sockets
	w.notLedBy("paused", 0, 1)
	l.more(200)
	w.wake()
	d.send(20)
	d.wait()
	w.inSync("paused")
	l.more(200)
	l.stop()
	t.Logf("directly to the paused leader: %d acknowledged, %d refused", d.acked, d.refused)
	if d.acked < 5 || d.refused == 0 {
		t.Errorf("%d acknowledged, %d refused: the pause met no request", d.acked, d.refused)
	}
	w.sameReplicas("paused", 3)
}

// direct writes to one broker, whoever leads, with acks=all and without trying again; what it did is in the load's history.
type direct struct {
	w         *world
	l         *load
	topic     string
	partition int32
	to        *kgo.Broker
	over      sync.WaitGroup
	next      int

	mu             sync.Mutex
	acked, refused int // guarded by mu
}

// direct begins with a few records that are acknowledged.
func (w *world) direct(l *load, topic string, partition, broker int32) *direct {
	w.t.Helper()
	// Its only address is that of the broker, and it does not ask who leads.
	cl := w.client(kgo.SeedBrokers(w.boot[broker-1]), kgo.MetadataMinAge(time.Minute), kgo.MetadataMaxAge(time.Hour), kgo.RequestTimeoutOverhead(20*time.Second))
	d := &direct{w: w, l: l, topic: topic, partition: partition, to: cl.SeedBrokers()[0]}
	d.send(5)
	d.wait()
	w.inSync(topic)
	return d
}

// send sends n records, each in a request of its own, and waits for no answer.
func (d *direct) send(n int) {
	d.w.t.Helper()
	for range n {
		value := fmt.Sprintf("direct-%d", d.next)
		d.next++
		req := d.w.one(d.topic, d.partition, value, 8*time.Second)
		call := clock()
		d.over.Go(func() {
			ctx, cancel := context.WithTimeout(d.w.ctx, 15*time.Second)
			defer cancel()
			resp, err := d.to.Request(ctx, version{req, 12})
			d.done(call, value, resp, err)
		})
	}
}

// one is a request with one record and acks=all; the leader may take so long.
func (w *world) one(topic string, partition int32, value string, timeout time.Duration) *kmsg.ProduceRequest {
	w.t.Helper()
	b, err := record.Build(nil, record.BatchOptions{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]record.Record{{Timestamp: time.Now().UnixMilli(), Value: []byte(value)}})
	if err != nil {
		w.t.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, int32(timeout.Milliseconds())
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, b
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (d *direct) done(call int64, value string, resp kmsg.Response, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.l.histories[d.partition]
	if err == nil {
		if p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode == 0 {
			h.wrote(call, value, p.BaseOffset)
			d.acked++
			return
		}
	}
	d.refused++
	h.maybe(call, value)
}

// wait returns when every request is answered or has been given up.
func (d *direct) wait() { d.over.Wait() }

// version is a request that is sent at no higher one: topics are named, not identified.
type version struct {
	kmsg.Request
	max int16
}

func (v version) MaxVersion() int16 { return v.max }
