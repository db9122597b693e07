package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

func saramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.ClientID = "e2e"
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Retry.Max = 50
	c.Producer.Retry.Backoff = 100 * time.Millisecond
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.Group.Rebalance.Timeout = 10 * time.Second
	return c
}

// saramaWrite writes n numbered records with a producer of its own.
func saramaWrite(t *testing.T, addr, topic string, from, n int, c *sarama.Config) {
	t.Helper()
	p, err := sarama.NewSyncProducer([]string{addr}, c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var msgs []*sarama.ProducerMessage
	for i := range n {
		msgs = append(msgs, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(fmt.Sprint("k", from+i)), Value: sarama.StringEncoder(fmt.Sprint(from + i)),
			Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte(topic)}}})
	}
	if err := p.SendMessages(msgs); err != nil {
		t.Fatalf("topic %s: %v", topic, err)
	}
}

func TestSaramaReadsWhatItWroteWithEveryCodec(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD}
	for _, codec := range codecs {
		for _, idempotent := range []bool{true, false} {
			topic := fmt.Sprintf("%s-%v", codec, idempotent)
			c.create(topic, 1)
			conf := saramaConfig()
			conf.Producer.Compression = codec
			if idempotent {
				conf.Producer.Idempotent, conf.Net.MaxOpenRequests = true, 1
			}
			saramaWrite(t, n.Listen, topic, 0, 100, conf)
			saramaRead(t, n.Listen, topic, 100)
			dense(t, c.read(topic)[0], 0, 100)
		}
	}
}

// saramaRead wants the n numbered records.
func saramaRead(t *testing.T, addr, topic string, n int) {
	t.Helper()
	cons, err := sarama.NewConsumer([]string{addr}, saramaConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer cons.Close()
	pc, err := cons.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	for i := range n {
		select {
		case m := <-pc.Messages():
			if m.Offset != int64(i) || string(m.Value) != fmt.Sprint(i) || string(m.Key) != fmt.Sprint("k", i) || len(m.Headers) != 1 || string(m.Headers[0].Value) != topic {
				t.Fatalf("topic %s: record %d is offset %d %q=%q %v", topic, i, m.Offset, m.Key, m.Value, m.Headers)
			}
		case err := <-pc.Errors():
			t.Fatal(err)
		case <-time.After(30 * time.Second):
			t.Fatalf("topic %s: %d of %d records in 30 s", topic, i, n)
		}
	}
}

// stopAfter is a group handler that marks n records, commits them and ends the session.
type stopAfter struct {
	n       int
	offsets []int64
	done    context.CancelFunc
}

func (*stopAfter) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*stopAfter) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h *stopAfter) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m := <-claim.Messages():
			if m == nil {
				return nil
			}
			if len(h.offsets) < h.n {
				h.offsets = append(h.offsets, m.Offset)
				s.MarkMessage(m, "")
			}
			if len(h.offsets) == h.n {
				s.Commit()
				h.done()
				return nil
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func saramaGroupRead(t *testing.T, addr, topic, group string, n int) []int64 {
	t.Helper()
	g, err := sarama.NewConsumerGroup([]string{addr}, group, saramaConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	h := &stopAfter{n: n, done: cancel}
	defer cancel()
	for ctx.Err() == nil {
		if err := g.Consume(ctx, []string{topic}, h); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
	}
	if len(h.offsets) != n {
		t.Fatalf("group %s read %d records, want %d", group, len(h.offsets), n)
	}
	return h.offsets
}

func TestSaramaGroupGoesOnWhereItCommitted(t *testing.T) {
	t.Parallel()
	n := start(t)
	connect(t, n.Listen).create("jobs", 1)
	saramaWrite(t, n.Listen, "jobs", 0, 50, saramaConfig())
	got := append(saramaGroupRead(t, n.Listen, "jobs", "g", 20), saramaGroupRead(t, n.Listen, "jobs", "g", 30)...)
	for i, o := range got {
		if o != int64(i) {
			t.Fatalf("record %d of the group has offset %d", i, o)
		}
	}
}

func TestSaramaAdminAndOffsetsByTime(t *testing.T) {
	t.Parallel()
	n := start(t)
	cl, err := sarama.NewClient([]string{n.Listen}, saramaConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm, err := sarama.NewClusterAdminFromClient(cl)
	if err != nil {
		t.Fatal(err)
	}
	ms := "1000000"
	if err := adm.CreateTopic("a", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &ms}}, false); err != nil {
		t.Fatal(err)
	}
	if err := adm.CreateTopic("a", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		t.Errorf("create twice: %v", err)
	}
	config := func() string {
		t.Helper()
		rs, err := adm.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: "a", ConfigNames: []string{"retention.ms"}}}, sarama.DescribeConfigsOptions{})
		if err != nil || len(rs) != 1 || len(rs[0].Configs) != 1 {
			t.Fatalf("%v, %v", rs, err)
		}
		return rs[0].Configs[0].Value
	}
	if got := config(); got != "1000000" {
		t.Errorf("retention.ms is %s", got)
	}
	ms = "2000000"
	if err := adm.IncrementalAlterConfig(sarama.TopicResource, "a", map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &ms}}, false); err != nil {
		t.Fatal(err)
	}
	if got := config(); got != "2000000" {
		t.Errorf("retention.ms is %s after the incremental call", got)
	}
	ms = "3000000"
	if err := adm.AlterConfig(sarama.TopicResource, "a", map[string]*string{"retention.ms": &ms}, false); err != nil {
		t.Fatal(err)
	}
	if got := config(); got != "3000000" {
		t.Errorf("retention.ms is %s after the older call", got)
	}
	at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	p, err := sarama.NewSyncProducerFromClient(cl)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: "a", Value: sarama.StringEncoder("x"), Timestamp: at.Add(time.Duration(i) * time.Second)}); err != nil {
			t.Fatal(err)
		}
	}
	for kind, want := range map[int64]int64{sarama.OffsetOldest: 0, sarama.OffsetNewest: 10, at.UnixMilli() + 3500: 4, at.UnixMilli() + 60_000: -1} {
		if o, err := cl.GetOffset("a", 0, kind); err != nil || o != want {
			t.Errorf("offset of %d: %d, %v, want %d", kind, o, err, want)
		}
	}
	if err := adm.DeleteTopic("a"); err != nil {
		t.Fatal(err)
	}
	if topics, err := adm.ListTopics(); err != nil || len(topics) != 0 {
		t.Errorf("topics after the deletion: %v, %v", topics, err)
	}
}
