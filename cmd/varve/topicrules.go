package main

import (
	"time"

	"github.com/varvelog/varve/broker"
	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// inForce merges a topic's configuration.
func (n *node) inForce(t *meta.Topic) config.Topic {
	return n.c.Topic(n.dynamic(), t.Configs)
}

// minISR is min.insync.replicas of a topic.
func (n *node) minISR(t *meta.Topic) int32 { return n.inForce(t).MinInsyncReplicas }

// dynamic is the configuration of brokers that was altered while they ran.
func (n *node) dynamic() config.Dynamic {
	img := n.store.Image()
	return config.Dynamic{Broker: img.Configs[meta.BrokerResource(n.id)], Cluster: img.Configs[meta.ClusterResource]}
}

// throttle is the limit of replication of throttled replicas, bytes a second.
func (n *node) throttle() (leader, follower int64) {
	d := n.dynamic()
	return n.c.Long(d, "leader.replication.throttled.rate"), n.c.Long(d, "follower.replication.throttled.rate")
}

func (n *node) throttled(t *meta.Topic) (leader, follower []string) {
	c := n.inForce(t)
	return c.LeaderThrottled, c.FollowerThrottled
}

// topicConfig is what log and archive are told of it. A compacted topic is archived like any other and never leaves the broker: the
// archive has what was written, the log what compaction leaves.
func (n *node) topicConfig(t *meta.Topic) (localseg.Config, tier.TopicConfig) {
	c := n.inForce(t)
	log := localseg.Config{
		SegmentBytes: c.SegmentBytes, SegmentMs: c.SegmentMs, SegmentJitterMs: c.SegmentJitterMs, IndexIntervalBytes: atLeast1(c.IndexIntervalBytes),
		SegmentIndexBytes: c.SegmentIndexBytes, RetentionMs: atLeast1(c.RetentionMs), RetentionBytes: atLeast1(c.RetentionBytes),
		LocalRetentionMs: atLeast1(c.LocalRetentionMs), LocalRetentionBytes: atLeast1(c.LocalRetentionBytes), FlushMessages: c.FlushMessages, FlushMs: atLeast1(c.FlushMs),
		FileDeleteDelayMs: atLeast1(c.FileDeleteDelayMs), MaxMessageBytes: c.MaxMessageBytes, Compact: c.Compact(), Delete: c.Delete(),
		Tiered: n.archive != nil && c.RemoteStorageEnable, CopyDisabled: c.CopyDisabled, LogAppendTime: c.LogAppendTime, ProducerExpiryMs: c.ProducerExpiryMs,
	}
	if c.Compact() {
		log.LocalRetentionMs, log.LocalRetentionBytes = -1, -1
	}
	arch := tier.TopicConfig{
		Name: t.Name, RetentionMs: atLeast1(c.RetentionMs), RetentionBytes: atLeast1(c.RetentionBytes), CopyDisabled: c.CopyDisabled,
		RestoreWindowMs: atLeast1(c.RestoreWindowMs), MaxLagMs: c.ArchiveMaxLagMs,
	}
	if !c.Delete() {
		arch.RetentionMs, arch.RetentionBytes = -1, -1
	}
	return log, arch
}

// atLeast1 turns 0, which means "at once" to Kafka and "the default" to the log, into the least that means the former.
func atLeast1(v int64) int64 {
	if v == 0 {
		return 1
	}
	return v
}

// rules is what the topic demands of produced batches.
func (n *node) rules(t *meta.Topic) record.ValidateOptions {
	c := n.inForce(t)
	codecs := map[string]record.Codec{"uncompressed": record.None, "gzip": record.Gzip, "snappy": record.Snappy, "lz4": record.LZ4, "zstd": record.Zstd}
	levels := map[string]int{"gzip": c.GzipLevel, "lz4": c.Lz4Level, "zstd": c.ZstdLevel}
	return record.ValidateOptions{
		Codec: codecs[c.CompressionType], FromProducer: c.CompressionType == "producer", Level: levels[c.CompressionType],
		CompactedTopic: c.Compact(), LogAppendTime: c.LogAppendTime, TimestampBeforeMs: c.TimestampBeforeMaxMs, TimestampAfterMs: c.TimestampAfterMaxMs,
		MaxBytes: c.MaxMessageBytes, MaxDecompressed: n.c.Int("max.decompressed.message.bytes"),
	}
}

func (n *node) brokerOptions(advertised []meta.Listener) broker.Options {
	c := n.c
	o := broker.Options{
		NodeID: n.id, Rack: c.String("broker.rack"), Advertised: advertised, Rules: n.rules, MinISR: n.minISR, Config: c, Restore: n.restore,
		RackAware:        c.String("replica.selector.class") == config.RackAwareSelector,
		AutoCreateTopics: c.Bool("auto.create.topics.enable"), DefaultPartitions: int32(c.Int("num.partitions")), DefaultReplication: int16(c.Int("default.replication.factor")),
		MaxRequestBytes: int32(c.Int("socket.request.max.bytes")), MaxQueuedBytes: max(c.Int("queued.max.request.bytes"), 0), MaxConnections: int(c.Int("max.connections")),
		MaxIdle: time.Duration(c.Int("connections.max.idle.ms")) * time.Millisecond, MaxFetchBytes: int32(c.Int("fetch.max.bytes")),
		SendBufferBytes: int(c.Int("socket.send.buffer.bytes")), RecvBufferBytes: int(c.Int("socket.receive.buffer.bytes")),
		FetchSessionSlots: int(c.Int("max.incremental.fetch.session.cache.slots")), Logger: n.log, Registerer: n.reg,
	}
	return o
}
