package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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

// digest is a partition-wise hash over offset, timestamp, key, value and headers of every record in order: the same digest means
// the same topic.
type digest struct {
	records, bytes int64
	parts          map[int32]hash.Hash
}

func newDigest() *digest { return &digest{parts: map[int32]hash.Hash{}} }

func (d *digest) add(r *kgo.Record) {
	h := d.parts[r.Partition]
	if h == nil {
		h = sha256.New()
		d.parts[r.Partition] = h
	}
	var n [8]byte
	num := func(v int64) {
		binary.BigEndian.PutUint64(n[:], uint64(v))
		h.Write(n[:])
	}
	num(r.Offset)
	num(r.Timestamp.UnixMilli())
	num(int64(len(r.Key)))
	h.Write(r.Key)
	num(int64(len(r.Value)))
	h.Write(r.Value)
	for _, hd := range r.Headers {
		h.Write([]byte(hd.Key))
		h.Write(hd.Value)
	}
	d.records++
	d.bytes += int64(len(r.Key) + len(r.Value))
}

func (d *digest) digest() string {
	all := sha256.New()
	for p := int32(0); p < int32(len(d.parts)); p++ {
		if h := d.parts[p]; h != nil {
			all.Write(h.Sum(nil))
		}
	}
	return hex.EncodeToString(all.Sum(nil))[:16]
}

func same(what string, want, got *digest) error {
	if want.records != got.records || want.digest() != got.digest() {
		return fmt.Errorf("%s: %d records with digest %s, want %d with %s", what, got.records, got.digest(), want.records, want.digest())
	}
	return nil
}

// produce writes about n bytes of records, the digest of which it returns; the records are digested in the order of their offsets.
func (c *client) produce(ctx context.Context, topic string, n int64, who string) (*digest, error) {
	var mu sync.Mutex
	var failed error
	d := newDigest()
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
				d.add(r) // callbacks of a partition come in the order of its offsets
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
func (c *client) consume(ctx context.Context, topic string) (*digest, error) {
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
	d := newDigest()
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("consume %s: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			d.add(r)
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
