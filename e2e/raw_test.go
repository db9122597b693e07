package e2e

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/record"
)

// raw produces batches built by hand to one partition, under one producer id.
type raw struct {
	c         *client
	topic     string
	partition int32
	id        int64
	epoch     int16
}

func newRaw(c *client, topic string, partition int32) *raw {
	c.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	resp, err := req.RequestWith(c.ctx, c.Client)
	if err != nil || resp.ErrorCode != 0 {
		c.t.Fatalf("InitProducerID: %v, %v", resp, err)
	}
	return &raw{c, topic, partition, resp.ProducerID, resp.ProducerEpoch}
}

// send writes n records from sequence seq on, and returns the offset of the first.
func (p *raw) send(seq int32, n int) int64 {
	p.c.t.Helper()
	return p.batch(p.build(seq, n))
}

func (p *raw) build(seq int32, n int) []byte {
	p.c.t.Helper()
	recs := make([]record.Record, n)
	for i := range recs {
		recs[i] = record.Record{Offset: int64(i), Timestamp: time.Now().UnixMilli(), Value: fmt.Append(nil, int(seq)+i)}
	}
	b, err := record.Build(nil, record.BatchOptions{ProducerID: p.id, ProducerEpoch: p.epoch, BaseSequence: seq}, recs)
	if err != nil {
		p.c.t.Fatal(err)
	}
	return b
}

// batch writes a batch as it is.
func (p *raw) batch(b []byte) int64 {
	p.c.t.Helper()
	offset, code := p.try(b)
	if code != 0 {
		p.c.t.Fatalf("Produce: error %d", code)
	}
	return offset
}

func (p *raw) try(b []byte) (offset int64, code int16) {
	p.c.t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Version = 9 // by name
	req.Acks, req.TimeoutMillis = -1, 5000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rt.Topic, rp.Partition, rp.Records = p.topic, p.partition, b
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := p.c.Broker(1).RetriableRequest(p.c.ctx, versioned{req, 9})
	if err != nil {
		p.c.t.Fatalf("Produce: %v", err)
	}
	r := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return r.BaseOffset, r.ErrorCode
}

// versioned pins a request to a version: those without topic ids are shorter to write.
type versioned struct {
	kmsg.Request
	max int16
}

func (v versioned) MaxVersion() int16 { return v.max }

// fetch is a raw Fetch at an offset: the batches as they came, and the partition's answer.
func (c *client) fetch(topic string, partition int32, offset int64) (*kmsg.FetchResponseTopicPartition, error) {
	c.t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 500, 1, 50<<20, -1
	ft, fp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	ft.Topic, fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = topic, partition, offset, 1<<20
	ft.Partitions = append(ft.Partitions, fp)
	req.Topics = append(req.Topics, ft)
	resp, err := c.Broker(1).RetriableRequest(c.ctx, versioned{req, 12})
	if err != nil {
		return nil, err
	}
	r := resp.(*kmsg.FetchResponse)
	if r.ErrorCode != 0 || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("Fetch: %+v", r)
	}
	return &r.Topics[0].Partitions[0], nil
}

// batches splits what a Fetch returned; a cut batch at the end is left out, a damaged one fails the test.
func (c *client) batches(b []byte) (list []record.Batch) {
	c.t.Helper()
	for len(b) > 0 {
		first, rest, err := record.Next(b)
		if err != nil {
			break
		}
		if err := first.Check(); err != nil {
			c.t.Fatal(err)
		}
		list, b = append(list, first), rest
	}
	return list
}
