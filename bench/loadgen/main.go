// Loadgen is a Kafka-protocol load generator (franz-go) that prints one JSON line a run: produce, consume, drain (take the bytes of
// one partition, nothing else), e2e (produce and consume with times in the records), ready (poll until a broker serves), create, delete.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

var (
	fBrokers  = flag.String("brokers", "127.0.0.1:19092", "bootstrap brokers, comma separated")
	fTopic    = flag.String("topic", "bench", "topic")
	fParts    = flag.Int("partitions", 0, "create the topic with this many partitions if it is absent (0: do not create)")
	fRF       = flag.Int("rf", 1, "replication factor for -partitions")
	fTopicCfg = flag.String("topic-config", "", "k=v,k=v for a created topic")
	fSize     = flag.Int("record-size", 1024, "value bytes per record (at least 16 in e2e mode)")
	fAcks     = flag.String("acks", "all", "all | 1 | 0")
	fComp     = flag.String("compression", "none", "none|gzip|snappy|lz4|zstd")
	fRate     = flag.Float64("rate", 0, "records/s over all producers; 0 = no cap")
	fDur      = flag.Duration("duration", 15*time.Second, "measured time (after -warmup)")
	fWarm     = flag.Duration("warmup", 0, "unmeasured time first")
	fRecords  = flag.Int64("records", 0, "stop after this many records (produce, consume); 0 = by -duration only")
	fProd     = flag.Int("producers", 1, "producer clients (produce, e2e)")
	fCons     = flag.Int("consumers", 1, "consumer clients (consume); partitions are shared out unless -group")
	fGroup    = flag.String("group", "", "consume with this group; empty = direct partitions from the start")
	fMode     = flag.String("mode", "produce", "produce|consume|drain|e2e|ready|create|delete")
	fLinger   = flag.Duration("linger", 5*time.Millisecond, "producer linger")
	fBatch    = flag.Int("batch-bytes", 1000012, "max batch bytes (uncompressed)")
	fBuffer   = flag.Int("buffer-bytes", 32<<20, "max buffered bytes per producer (Java's buffer.memory is 32 MiB)")
	fInflight = flag.Int("inflight", 5, "max in-flight produce requests per broker")
	fIdem     = flag.Bool("idempotent", true, "idempotent producer (acks=all only)")
	fPayload  = flag.String("payload", "letters", "letters (random A-Z, as kafka-producer-perf-test)|json|random|zero")
	fPids     = flag.String("broker-pids", "", "comma separated broker pids, for CPU and RSS out of /proc")
	fSince    = flag.Int64("since-ns", 0, "ready: unix ns to count from (0 = now)")
	fExpect   = flag.Int("expect-partitions", 0, "ready: also wait for this many partitions of -topic with a leader")
	fNodes    = flag.Int("expect-brokers", 1, "ready: wait for this many brokers in Metadata")
	fTimeout  = flag.Duration("timeout", 120*time.Second, "ready/consume: give up after")
	fFetchMax = flag.Int("fetch-max-bytes", 50<<20, "consumer fetch.max.bytes")
	fPartMax  = flag.Int("fetch-max-partition-bytes", 1<<20, "consumer max.partition.fetch.bytes")
	fLabel    = flag.String("label", "", "copied to the output")
	fRetry    = flag.Duration("delivery-timeout", 120*time.Second, "record delivery timeout")
	fMetaAge  = flag.Duration("metadata-min-age", 0, "override franz-go MetadataMinAge (its own default is 5s where this is 0)")
	fAssign   = flag.String("assign", "", "create: replica ids of every partition, e.g. 1,2,3 (instead of -rf)")
	fGapLog   = flag.Bool("gap-log", false, "produce: list every global ack gap over 200 ms in the output")
)

func die(err error) {
	if err != nil {
		b, _ := json.Marshal(map[string]any{"mode": *fMode, "label": *fLabel, "error": err.Error()})
		fmt.Println(string(b))
		os.Exit(1)
	}
}

func emit(m map[string]any) {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(b))
}

func main() {
	flag.Parse()
	ctx := context.Background()
	switch *fMode {
	case "produce":
		modeProduce(ctx)
	case "consume":
		modeConsume(ctx)
	case "drain":
		modeDrain(ctx)
	case "e2e":
		modeE2E(ctx)
	case "ready":
		modeReady()
	case "create":
		modeCreate(ctx)
	case "delete":
		modeDelete(ctx)
	default:
		die(fmt.Errorf("mode %q", *fMode))
	}
}
