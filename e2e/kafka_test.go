package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/e2e/digest"

	"github.com/varvelog/varve/e2e/proc"
)

// client is a franz-go client of one test, and its admin side.
type client struct {
	*kgo.Client
	adm  *kadm.Client
	t    *testing.T
	addr string
	ctx  context.Context // of the whole test
}

// connect returns a client that is closed at the test's end. A record goes to the partition that it names.
func connect(t *testing.T, addr string, opts ...kgo.Opt) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	base := []kgo.Opt{
		kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DialTimeout(2 * time.Second), kgo.FetchMaxWait(200 * time.Millisecond),
	}
	cl, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &client{cl, kadm.NewClient(cl), t, addr, ctx}
}

// create makes a topic with configuration key, value, key, value.
func (c *client) create(topic string, partitions int32, configs ...string) kadm.TopicID {
	c.t.Helper()
	set := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		set[configs[i]] = &configs[i+1]
	}
	r, err := c.adm.CreateTopic(c.ctx, partitions, 1, set, topic)
	if err != nil {
		c.t.Fatalf("create topic %s: %v: %s", topic, err, r.ErrMessage)
	}
	return r.ID
}

// alter sets configuration of a topic: key, value, key, value.
func (c *client) alter(topic string, configs ...string) {
	c.t.Helper()
	if err := c.tryAlter(topic, configs...); err != nil {
		c.t.Fatalf("alter topic %s: %v", topic, err)
	}
}

func (c *client) tryAlter(topic string, configs ...string) error {
	var list []kadm.AlterConfig
	for i := 0; i < len(configs); i += 2 {
		list = append(list, kadm.AlterConfig{Op: kadm.SetConfig, Name: configs[i], Value: &configs[i+1]})
	}
	rs, err := c.adm.AlterTopicConfigs(c.ctx, list, topic)
	if err == nil {
		_, err = rs.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	return err
}

// write produces the records and waits for all; each gets its offset.
func (c *client) write(recs ...*kgo.Record) {
	c.t.Helper()
	if err := c.ProduceSync(c.ctx, recs...).FirstErr(); err != nil {
		c.t.Fatalf("produce: %v", err)
	}
}

// numbered is n records with the values from, from+1, ... for one partition.
func numbered(topic string, partition int32, from, n int) []*kgo.Record {
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "%d", from+i)})
	}
	return recs
}

// fill writes n records of about size bytes that do not compress, with keys and headers, spread over the partitions, and returns their
// digest.
func (c *client) fill(topic string, partitions int32, n, size int) *digest.Digest {
	c.t.Helper()
	rnd := rand.New(rand.NewPCG(uint64(n), uint64(size)))
	recs := make([]*kgo.Record, n)
	for i := range recs {
		value := make([]byte, size)
		for j := range value {
			value[j] = byte(rnd.Uint32())
		}
		recs[i] = &kgo.Record{Topic: topic, Partition: int32(i) % partitions, Key: fmt.Appendf(nil, "key-%d", i), Value: value,
			Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, i)}, {Key: "none"}}}
		if i%7 == 3 {
			recs[i].Key = nil
		}
	}
	c.write(recs...)
	d := digest.New()
	for _, r := range recs {
		d.Add(r)
	}
	return d
}

// offset is what ListOffsets says of a partition: kind is -1 latest, -2 earliest and so on, or a time in ms.
func (c *client) offset(topic string, partition int32, kind int64) (offset, ts int64) {
	c.t.Helper()
	proc.Until(c.t, 20*time.Second, "offsets are listed", func() (err error) {
		offset, ts, err = c.tryOffset(topic, partition, kind)
		if err != nil && !kerr.IsRetriable(err) {
			c.t.Fatal(err)
		}
		return err
	})
	return offset, ts
}

func (c *client) tryOffset(topic string, partition int32, kind int64) (offset, ts int64, err error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rt.Topic = partition, kind, topic
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	resp, err := c.Request(ctx, req)
	if err != nil {
		return 0, 0, fmt.Errorf("ListOffsets %d of %s:%d: %w", kind, topic, partition, err)
	}
	p := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return 0, 0, fmt.Errorf("ListOffsets %d of %s:%d: %w", kind, topic, partition, kerr.ErrorForCode(p.ErrorCode))
	}
	return p.Offset, p.Timestamp, nil
}

const (
	latest        = -1
	earliest      = -2
	maxTimestamp  = -3
	earliestLocal = -4
	latestTiered  = -5
)

// ends is the end of each partition.
func (c *client) ends(topic string) map[int32]int64 {
	c.t.Helper()
	ends := map[int32]int64{}
	proc.Until(c.t, 20*time.Second, "ends are listed", func() error {
		list, err := c.adm.ListEndOffsets(c.ctx, topic)
		if err == nil {
			err = list.Error()
		}
		if err != nil && !kerr.IsRetriable(err) {
			c.t.Fatal(err)
		}
		if err == nil {
			list.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
		}
		return err
	})
	return ends
}

// read returns every record from the start of the topic to its present end, in the order of each partition.
func (c *client) read(topic string) map[int32][]*kgo.Record {
	c.t.Helper()
	return c.readFrom(topic, earliest)
}

// readFrom begins at an offset, the same in all partitions, or at the earliest.
func (c *client) readFrom(topic string, from int64) map[int32][]*kgo.Record {
	c.t.Helper()
	ends := c.ends(topic)
	out, left := map[int32][]*kgo.Record{}, map[int32]int64{}
	begin := map[int32]kgo.Offset{}
	for p, end := range ends {
		first := max(from, 0)
		if from == earliest {
			first, _ = c.offset(topic, p, earliest)
		}
		if first < end {
			left[p] = end
			begin[p] = kgo.NewOffset().At(first)
		}
	}
	if len(left) == 0 {
		return out
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: begin}), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			c.t.Fatalf("read %s: %v; left to read, by partition: %v", topic, err, left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, more := left[r.Partition]
			if !more || r.Offset >= end {
				return
			}
			if !r.Attrs.IsControl() {
				out[r.Partition] = append(out[r.Partition], r)
			}
			if r.Offset+1 == end {
				delete(left, r.Partition)
			}
		})
	}
	return out
}

// digest reads the whole topic.
func (c *client) digest(topic string) *digest.Digest {
	c.t.Helper()
	d := digest.New()
	for _, recs := range c.read(topic) {
		for _, r := range recs {
			d.Add(r)
		}
	}
	return d
}

// same fails the test if the topic is not what was written.
func (c *client) same(topic string, want *digest.Digest) {
	c.t.Helper()
	if err := want.Same(c.digest(topic)); err != nil {
		c.t.Fatalf("topic %s: %v", topic, err)
	}
}

// dense fails the test if the records of a partition have not the offsets from first on, one by one, up to end.
func dense(t *testing.T, recs []*kgo.Record, first, end int64) {
	t.Helper()
	for i, r := range recs {
		if r.Offset != first+int64(i) {
			t.Fatalf("record %d has offset %d, want %d", i, r.Offset, first+int64(i))
		}
	}
	if got := first + int64(len(recs)); got != end {
		t.Fatalf("records end before %d, want %d", got, end)
	}
}

// untilEvicted waits until the broker itself has nothing below the offset any more.
func (c *client) untilEvicted(topic string, partition int32, below int64) {
	c.t.Helper()
	proc.Until(c.t, 30*time.Second, fmt.Sprintf("%s:%d below %d is only in the archive", topic, partition, below), func() error {
		local, _, err := c.tryOffset(topic, partition, earliestLocal)
		if err == nil && local < below {
			err = fmt.Errorf("local log starts at %d", local)
		}
		return err
	})
}

// untilTiered waits until the archive has everything below the offset.
func (c *client) untilTiered(topic string, partition int32, below int64) {
	c.t.Helper()
	proc.Until(c.t, 30*time.Second, fmt.Sprintf("%s:%d is archived below %d", topic, partition, below), func() error {
		o, _, err := c.tryOffset(topic, partition, latestTiered)
		if err == nil && o < below-1 {
			err = fmt.Errorf("the last archived offset is %d", o)
		}
		return err
	})
}
