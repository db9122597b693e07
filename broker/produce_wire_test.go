package broker

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
)

// FuzzParseProduce holds the hand-made parser to kmsg: what that reads without a byte left over is read alike.
func FuzzParseProduce(f *testing.F) {
	topic := &meta.Topic{Name: "topic", ID: [16]byte{1, 2, 3}}
	for v := int16(3); v <= 13; v++ {
		req := produceReq(v, -1, topic, 3, batch(f, record.BatchOptions{}, 1, 2))
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, kmsg.NewProduceRequestTopicPartition())
		f.Add(v, req.AppendTo(nil))
		id := "txn"
		req.TransactionID = &id
		f.Add(v, req.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		if version < 3 || version > 13 {
			return
		}
		var sc produceScratch
		got, err := sc.parse(header{version: version}, body)
		want := kmsg.NewPtrProduceRequest()
		want.Version = version
		if decode(want, body) != nil {
			return
		}
		if err != nil {
			t.Fatalf("v%d: %v, but kmsg reads %+v", version, err, want)
		}
		if got.acks != want.Acks || got.transactional != (want.TransactionID != nil) || len(sc.topics) != len(want.Topics) {
			t.Fatalf("v%d: %+v, %d topics, want %+v", version, got, len(sc.topics), want)
		}
		for i, wt := range want.Topics {
			gt := sc.topics[i]
			if gt.name != wt.Topic || gt.id != wt.TopicID || gt.to-gt.from != len(wt.Partitions) {
				t.Fatalf("v%d topic %d: %+v, want %+v", version, i, gt, wt)
			}
			for j, wp := range wt.Partitions {
				if gp := sc.parts[gt.from+j]; gp.partition != wp.Partition || !bytes.Equal(gp.records, wp.Records) {
					t.Fatalf("v%d partition %d: %+v, want %+v", version, j, gp, wp)
				}
			}
		}
	})
}

func TestClientsAreToldAddressesOfTheirListener(t *testing.T) {
	listeners := []meta.Listener{{Name: "INSIDE", Host: "in", Port: 1}, {Name: "OUTSIDE", Host: "out", Port: 2}}
	w := newWorld(t, settings{broker: func(o *Options) { o.NodeID, o.Advertised, o.Rack = 7, listeners, "r" }})
	for _, tc := range []struct{ listener, host string }{{"INSIDE", "in"}, {"OUTSIDE", "out"}, {"OTHER", "in"}} {
		c := newConn(w.server, nil, tc.listener)
		nodes := c.nodes()
		if len(nodes) != 2 || nodes[0].id != 1 || nodes[1].id != 7 || nodes[1].host != tc.host || str(nodes[1].rack) != "r" {
			t.Errorf("%s: %+v", tc.listener, nodes)
		}
	}
}
