package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/record"
)

func TestBrokerRunsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings{pipes: true, fs: vfs.NewMem(), dir: "/data"})
		topic := w.topic("t", 2, nil)
		producer, consumer := w.dial(), w.dial()
		req := fetchReq(18, topic, 0, 0, 1)
		req.MaxWaitMillis = 5_000
		began := time.Now()
		if got := consumer.do(req).(*kmsg.FetchResponse); len(got.Topics[0].Partitions[0].RecordBatches) != 0 {
			t.Fatalf("%+v", got)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Fatalf("long poll took %v of virtual time, max.wait is 5 s", d)
		}
		began = time.Now()
		id := consumer.send(req)
		time.Sleep(time.Second)
		producer.produce(topic, 1, batch(t, record.BatchOptions{}, now()))
		got := consumer.receive(req, id).(*kmsg.FetchResponse)
		if d := time.Since(began); d != time.Second || len(got.Topics[0].Partitions[1].RecordBatches) == 0 {
			t.Fatalf("after %v: %+v", d, got)
		}
		idle := w.dial()
		time.Sleep(11 * time.Minute)
		idle.closed() // connections.max.idle.ms
		w.stop()
	})
}
