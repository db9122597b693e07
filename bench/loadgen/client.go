package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func base() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(strings.Split(*fBrokers, ",")...), kgo.ClientID("loadgen")}
}

func codec() kgo.CompressionCodec {
	switch *fComp {
	case "none":
		return kgo.NoCompression()
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	die(fmt.Errorf("compression %q", *fComp))
	return kgo.NoCompression()
}

func producerOpts() []kgo.Opt {
	o := append(base(), kgo.ProducerLinger(*fLinger), kgo.ProducerBatchMaxBytes(int32(*fBatch)), kgo.ProducerBatchCompression(codec()),
		kgo.MaxBufferedBytes(*fBuffer), kgo.MaxBufferedRecords(1<<20), kgo.RecordDeliveryTimeout(*fRetry))
	if *fMetaAge > 0 {
		o = append(o, kgo.MetadataMinAge(*fMetaAge))
	}
	if !*fIdem || (*fAcks != "all" && *fAcks != "-1") { // franz-go fixes this itself (5) with idempotence on
		o = append(o, kgo.MaxProduceRequestsInflightPerBroker(*fInflight))
	}
	switch *fAcks {
	case "all", "-1":
		o = append(o, kgo.RequiredAcks(kgo.AllISRAcks()))
		if !*fIdem {
			o = append(o, kgo.DisableIdempotentWrite())
		}
	case "1":
		o = append(o, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		o = append(o, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		die(fmt.Errorf("acks %q", *fAcks))
	}
	return o
}

// payloads: a pool, so that filling bytes does not cost client CPU in the measured loop
func payloads() [][]byte {
	r := rand.New(rand.NewSource(42))
	n := 4096
	if n**fSize > 64<<20 {
		n = max(16, (64<<20) / *fSize)
	}
	pool := make([][]byte, n)
	words := []string{"order", "created", "user", "payment", "shipment", "eu-west", "us-east", "pending", "complete", "failed", "retry", "sku", "cart", "session", "mobile", "web"}
	for i := range pool {
		p := make([]byte, 0, *fSize+64)
		switch *fPayload {
		case "letters":
			for len(p) < *fSize {
				p = append(p, byte('A'+r.Intn(26)))
			}
		case "json":
			for len(p) < *fSize {
				p = fmt.Appendf(p, `{"id":%d,"ts":%d,"event":"%s.%s","region":"%s","amount":%d.%02d,"user":"u%06d","status":"%s"},`, r.Int63(), 1790000000000+r.Int63n(1e9),
					words[r.Intn(len(words))], words[r.Intn(len(words))], words[r.Intn(len(words))], r.Intn(1000), r.Intn(100), r.Intn(1000000), words[r.Intn(len(words))])
			}
		case "random":
			p = p[:*fSize]
			r.Read(p)
		default:
			p = p[:*fSize]
		}
		pool[i] = p[:*fSize]
	}
	return pool
}

func ensureTopic(ctx context.Context) {
	if *fParts <= 0 {
		return
	}
	cl, err := kgo.NewClient(base()...)
	die(err)
	defer cl.Close()
	cfg := map[string]*string{}
	for _, kv := range strings.Split(*fTopicCfg, ",") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			cfg[k] = &v
		}
	}
	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(60000)
	if *fAssign != "" {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = 60000
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = *fTopic, -1, -1
		for p := 0; p < *fParts; p++ {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition = int32(p)
			for _, s := range strings.Split(*fAssign, ",") {
				n, e := strconv.Atoi(s)
				die(e)
				a.Replicas = append(a.Replicas, int32(n))
			}
			t.ReplicaAssignment = append(t.ReplicaAssignment, a)
		}
		for k, v := range cfg {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = k, v
			t.Configs = append(t.Configs, c)
		}
		req.Topics = append(req.Topics, t)
		resp, e := req.RequestWith(ctx, cl)
		die(e)
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	} else {
		_, err = adm.CreateTopic(ctx, int32(*fParts), int16(*fRF), cfg, *fTopic)
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		die(err)
	}
	for i := 0; i < 600; i++ { // wait for leaders
		td, err := adm.ListTopics(ctx, *fTopic)
		if err == nil {
			ok := 0
			for _, p := range td[*fTopic].Partitions {
				if p.Leader >= 0 && p.Err == nil {
					ok++
				}
			}
			if ok >= *fParts {
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	die(errors.New("topic not ready"))
}

func common() map[string]any {
	return map[string]any{"mode": *fMode, "label": *fLabel, "topic": *fTopic, "record_size": *fSize, "acks": *fAcks, "compression": *fComp,
		"rate": *fRate, "producers": *fProd, "linger_ms": float64(*fLinger) / 1e6, "batch_bytes": *fBatch, "payload": *fPayload, "client": "franz-go", "time": time.Now().UTC().Format(time.RFC3339)}
}

func consumeOpts() []kgo.Opt {
	return append(base(), kgo.FetchMaxBytes(int32(*fFetchMax)), kgo.BrokerMaxReadBytes(int32(*fFetchMax)*2+(1<<20)), kgo.FetchMaxPartitionBytes(int32(*fPartMax)))
}
