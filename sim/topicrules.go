package sim

import (
	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// inForce merges a topic's configuration as a broker knows it.
func (s *stage) inForce(node int32, store *meta.Store, t *meta.Topic) config.Topic {
	img := store.Image()
	return s.config.Topic(config.Dynamic{Broker: img.Configs[meta.BrokerResource(node)], Cluster: img.Configs[meta.ClusterResource]}, t.Configs)
}

// topicConfig is cmd/varve's, but for the sizes that Kafka's rules do not let a topic set.
func (s *stage) topicConfig(t *meta.Topic, c config.Topic) (localseg.Config, tier.TopicConfig) {
	log := localseg.Config{
		SegmentBytes: s.plan.segmentBytes, SegmentMs: c.SegmentMs, IndexIntervalBytes: 256, SegmentIndexBytes: c.SegmentIndexBytes,
		RetentionMs: c.RetentionMs, RetentionBytes: c.RetentionBytes, LocalRetentionMs: c.LocalRetentionMs, LocalRetentionBytes: c.LocalRetentionBytes,
		FlushMessages: c.FlushMessages, FlushMs: c.FlushMs, FileDeleteDelayMs: s.plan.deleteDelayMs, MaxMessageBytes: c.MaxMessageBytes,
		Compact: c.Compact(), Delete: c.Delete(), Tiered: c.RemoteStorageEnable, LogAppendTime: c.LogAppendTime, ProducerExpiryMs: c.ProducerExpiryMs,
	}
	if c.Compact() {
		log.LocalRetentionMs, log.LocalRetentionBytes = -1, -1
	}
	arch := tier.TopicConfig{
		Name: t.Name, RetentionMs: c.RetentionMs, RetentionBytes: c.RetentionBytes, CopyDisabled: c.CopyDisabled,
		RestoreWindowMs: c.RestoreWindowMs, MaxLagMs: c.ArchiveMaxLagMs,
	}
	if !c.Delete() {
		arch.RetentionMs, arch.RetentionBytes = -1, -1
	}
	return log, arch
}

func (s *stage) rules(c config.Topic) record.ValidateOptions {
	return record.ValidateOptions{
		FromProducer: true, CompactedTopic: c.Compact(), LogAppendTime: c.LogAppendTime,
		TimestampBeforeMs: c.TimestampBeforeMaxMs, TimestampAfterMs: c.TimestampAfterMaxMs,
		MaxBytes: c.MaxMessageBytes, MaxDecompressed: s.config.Int("max.decompressed.message.bytes"),
	}
}
