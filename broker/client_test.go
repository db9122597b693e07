package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestRealClientProducesAndConsumes(t *testing.T) {
	w := newWorld(t, settings{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		topic := fmt.Sprintf("codec-%d", i)
		producer, err := kgo.NewClient(kgo.SeedBrokers(w.addr), kgo.AllowAutoTopicCreation(), kgo.MetadataMinAge(50*time.Millisecond), kgo.ProducerBatchCompression(codec))
		if err != nil {
			t.Fatal(err)
		}
		const n = 2000
		for k := range n {
			producer.Produce(ctx, &kgo.Record{Topic: topic, Key: fmt.Append(nil, k), Value: fmt.Appendf(nil, "value %d", k)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
		if err := producer.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		producer.Close()
		consumer, err := kgo.NewClient(kgo.SeedBrokers(w.addr), kgo.ConsumeTopics(topic), kgo.MetadataMinAge(50*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for len(seen) < n {
			fetches := consumer.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatalf("after %d records: %v", len(seen), err)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				if want := "value " + string(r.Key); string(r.Value) != want || seen[want] {
					t.Errorf("key %s: value %q, seen %v", r.Key, r.Value, seen[want])
				}
				seen[string(r.Value)] = true
			})
		}
		consumer.Close()
	}
}
