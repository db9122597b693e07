package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/varvelog/varve/e2e/proc"
)

// kafkagoTransport is one whose picture of the cluster is not older than a moment.
func kafkagoTransport(t *testing.T) *kafka.Transport {
	tr := &kafka.Transport{MetadataTTL: 20 * time.Millisecond}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func kafkagoWriter(t *testing.T, addr, topic string, codec kafka.Compression) *kafka.Writer {
	return &kafka.Writer{Transport: kafkagoTransport(t), Addr: kafka.TCP(addr), Topic: topic, Compression: codec, RequiredAcks: kafka.RequireAll, BatchTimeout: 5 * time.Millisecond}
}

func numberedMessages(from, n int) []kafka.Message {
	var msgs []kafka.Message
	for i := range n {
		msgs = append(msgs, kafka.Message{Key: fmt.Append(nil, "k", from+i), Value: fmt.Append(nil, from+i), Headers: []kafka.Header{{Key: "h", Value: []byte("v")}}})
	}
	return msgs
}

func minute(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestKafkaGoReadsWhatItWroteWithEveryCodec(t *testing.T) {
	t.Parallel()
	n := start(t)
	c, ctx := connect(t, n.Listen), minute(t)
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		topic := fmt.Sprintf("codec-%d", codec)
		c.create(topic, 1)
		w := kafkagoWriter(t, n.Listen, topic, codec)
		if err := w.WriteMessages(ctx, numberedMessages(0, 150)...); err != nil {
			t.Fatalf("topic %s: %v", topic, err)
		}
		w.Close()
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{n.Listen}, Topic: topic, MaxWait: time.Second})
		for i := range 150 {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				t.Fatalf("topic %s: record %d: %v", topic, i, err)
			}
			if m.Offset != int64(i) || string(m.Value) != fmt.Sprint(i) || string(m.Key) != fmt.Sprint("k", i) || len(m.Headers) != 1 {
				t.Fatalf("topic %s: record %d is offset %d %q=%q %v", topic, i, m.Offset, m.Key, m.Value, m.Headers)
			}
		}
		r.Close()
	}
}

func TestKafkaGoGroupGoesOnWhereItCommitted(t *testing.T) {
	t.Parallel()
	n := start(t)
	c, ctx := connect(t, n.Listen), minute(t)
	c.create("jobs", 1)
	w := kafkagoWriter(t, n.Listen, "jobs", 0)
	defer w.Close()
	if err := w.WriteMessages(ctx, numberedMessages(0, 50)...); err != nil {
		t.Fatal(err)
	}
	next := 0
	for _, part := range []int{20, 30} {
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{n.Listen}, GroupID: "g", Topic: "jobs", MaxWait: time.Second, StartOffset: kafka.FirstOffset, JoinGroupBackoff: 100 * time.Millisecond})
		for range part {
			m, err := r.FetchMessage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if m.Offset != int64(next) {
				t.Fatalf("the group reads offset %d, want %d", m.Offset, next)
			}
			next++
			if err := r.CommitMessages(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKafkaGoAdminAndOffsetsByTime(t *testing.T) {
	t.Parallel()
	n := start(t)
	ctx := minute(t)
	cl := &kafka.Client{Addr: kafka.TCP(n.Listen), Transport: kafkagoTransport(t)}
	topic := kafka.TopicConfig{Topic: "a", NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "1000000"}}}
	for _, want := range []error{nil, kafka.TopicAlreadyExists} {
		r, err := cl.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
		if err != nil || !errors.Is(r.Errors["a"], want) {
			t.Fatalf("create: %v %v, want %v", r, err, want)
		}
	}
	config := func() string {
		t.Helper()
		r, err := cl.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: "a", ConfigNames: []string{"retention.ms"}}}})
		if err != nil || len(r.Resources) != 1 || len(r.Resources[0].ConfigEntries) != 1 {
			t.Fatalf("%v, %v", r, err)
		}
		return r.Resources[0].ConfigEntries[0].ConfigValue
	}
	if got := config(); got != "1000000" {
		t.Errorf("retention.ms is %s", got)
	}
	alter := &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: "a",
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "2000000", ConfigOperation: kafka.ConfigOperationSet}}}}}
	if r, err := cl.IncrementalAlterConfigs(ctx, alter); err != nil || r.Resources[0].Error != nil {
		t.Fatalf("alter: %v %v", r, err)
	}
	if got := config(); got != "2000000" {
		t.Errorf("retention.ms is %s after it was altered", got)
	}
	at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	w := kafkagoWriter(t, n.Listen, "a", 0)
	defer w.Close()
	msgs := numberedMessages(0, 10)
	for i := range msgs {
		msgs[i].Time = at.Add(time.Duration(i) * time.Second)
	}
	if err := w.WriteMessages(ctx, msgs...); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		ask  kafka.OffsetRequest
		want int64
	}{{kafka.FirstOffsetOf(0), 0}, {kafka.LastOffsetOf(0), 10}, {kafka.TimeOffsetOf(0, at.Add(3500*time.Millisecond)), 4}} {
		r, err := cl.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{"a": {x.ask}}})
		if err != nil || r.Topics["a"][0].Error != nil {
			t.Fatalf("%v %v", r, err)
		}
		p := r.Topics["a"][0]
		got := max(p.FirstOffset, p.LastOffset)
		for o := range p.Offsets {
			got = max(got, o)
		}
		if got != x.want {
			t.Errorf("ListOffsets %+v: %+v, want %d", x.ask, p, x.want)
		}
	}
	if r, err := cl.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{"a"}}); err != nil || r.Errors["a"] != nil {
		t.Fatalf("delete: %v %v", r, err)
	}
	proc.Until(t, 10*time.Second, "the topic is gone", func() error { // the client keeps what it knew for a moment
		m, err := cl.Metadata(ctx, &kafka.MetadataRequest{})
		if err == nil && len(m.Topics) != 0 {
			err = fmt.Errorf("topics %v", m.Topics)
		}
		return err
	})
}
