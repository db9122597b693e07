package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/digest"
)

// client is a Kafka client with what the tour needs.
type client struct {
	addr string
	cl   *kgo.Client
	adm  *kadm.Client
}

func connect(addr string) (*client, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.MetadataMinAge(100*time.Millisecond), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &client{addr, cl, kadm.NewClient(cl)}, nil
}

func (c *client) close() { c.cl.Close() }

func (c *client) create(ctx context.Context, topic string, partitions int32, configs map[string]string) error {
	set := map[string]*string{}
	for k, v := range configs {
		set[k] = &v
	}
	_, err := c.adm.CreateTopic(ctx, partitions, 1, set, topic)
	return err
}

// produce writes about n bytes of records, the digest of which it returns; the records are digested in the order of their offsets.
func (c *client) produce(ctx context.Context, topic string, n int64, who string) (*digest.Digest, error) {
	var mu sync.Mutex
	var failed error
	d := digest.New()
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	for i, sent := 0, int64(0); sent < n && ctx.Err() == nil; i++ {
		value := make([]byte, 600+rnd.IntN(800))
		for j := range value {
			value[j] = "abcdefghijklmnopqrstuvwxyz0123456789"[rnd.IntN(36)]
		}
		r := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "order-%d", i), Value: value, Headers: []kgo.RecordHeader{{Key: "by", Value: []byte(who)}}}
		sent += int64(len(r.Key) + len(r.Value))
		c.cl.Produce(ctx, r, func(r *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil && failed == nil {
				failed = fmt.Errorf("produce: %w", err)
			}
			if err == nil {
				d.Add(r) // callbacks of a partition come in the order of its offsets
			}
		})
	}
	if err := c.cl.Flush(ctx); err != nil {
		return nil, err
	}
	mu.Lock()
	defer mu.Unlock()
	return d, failed
}

// consume reads the topic from its start to the end that it has now.
func (c *client) consume(ctx context.Context, topic string) (*digest.Digest, error) {
	ends, err := c.adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	var left int64
	end := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if end[o.Partition] = o.Offset; o.Offset > 0 {
			left++
		}
		if o.Err != nil {
			err = o.Err
		}
	})
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(4<<20))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	d := digest.New()
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("consume %s: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			d.Add(r)
			if r.Offset+1 == end[r.Partition] {
				left--
			}
		})
	}
	return d, nil
}

// untilEvicted waits until every partition's older segments are in the archive alone.
func (c *client) untilEvicted(ctx context.Context, topic string) error {
	return poll(ctx, "segments leave the broker", func() (bool, error) {
		starts, err := c.adm.ListStartOffsets(ctx, topic)
		if err != nil {
			return false, err
		}
		local, err := c.adm.ListLocalLogStartOffsets(ctx, topic)
		if err != nil {
			return false, err
		}
		evicted := true
		local.Each(func(l kadm.ListedOffset) {
			s, _ := starts.Lookup(topic, l.Partition)
			evicted = evicted && l.Err == nil && l.Offset > s.Offset
		})
		return evicted, nil
	})
}

func poll(ctx context.Context, what string, f func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		ok, err := f()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
