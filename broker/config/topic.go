package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Topic is a topic's configuration in force, merged from topic, dynamic broker and static broker values.
type Topic struct {
	CleanupPolicy         []string
	CompressionType       string
	GzipLevel             int
	Lz4Level              int
	ZstdLevel             int
	FileDeleteDelayMs     int64
	FlushMessages         int64
	FlushMs               int64
	IndexIntervalBytes    int64
	LocalRetentionBytes   int64
	LocalRetentionMs      int64
	MaxMessageBytes       int64
	TimestampAfterMaxMs   int64
	TimestampBeforeMaxMs  int64
	LogAppendTime         bool
	MinInsyncReplicas     int32
	CopyDisabled          bool
	RemoteStorageEnable   bool
	RetentionBytes        int64
	RetentionMs           int64
	SegmentBytes          int64
	SegmentIndexBytes     int64
	SegmentJitterMs       int64
	SegmentMs             int64
	UncleanLeaderElection bool
	ArchiveMaxLagMs       int64
	RestoreWindowMs       int64
	ProducerExpiryMs      int64
	// LeaderThrottled and FollowerThrottled are {leader,follower}.replication.throttled.replicas: "partition:broker", or "*".
	LeaderThrottled, FollowerThrottled []string
}

// Compact tells whether cleanup.policy has compact; Tiered whether segments go to the archive and leave the broker. The
// archive has no compacted form, so a compacted topic is not tiered away.
func (t *Topic) Compact() bool { return slices.Contains(t.CleanupPolicy, "compact") }

func (t *Topic) Delete() bool { return slices.Contains(t.CleanupPolicy, "delete") }

// Dynamic is what the metadata store holds of broker configuration: for this broker, and for all.
type Dynamic struct {
	Broker, Cluster map[string]string
}

// broker returns the broker key's value in force under d, and where it is from.
func (b *Broker) effective(d Dynamic, name string) (string, Source, bool) {
	if v, ok := d.Broker[name]; ok {
		return v, SourceDynamicBroker, true
	}
	if v, ok := d.Cluster[name]; ok {
		return v, SourceDynamicDefaultBroker, true
	}
	if v, ok := b.set[name]; ok {
		return v, SourceStaticBroker, true
	}
	k := brokerKeys[name]
	return k.Default, SourceDefault, !k.Null
}

// older are the older, coarser names of broker keys, and the factor to the newer one's unit.
var older = map[string][]struct {
	name   string
	factor int64
}{
	"log.retention.ms":   {{"log.retention.minutes", 60_000}, {"log.retention.hours", 3_600_000}},
	"log.roll.ms":        {{"log.roll.hours", 3_600_000}},
	"log.roll.jitter.ms": {{"log.roll.jitter.hours", 3_600_000}},
}

// synonym returns the value that a topic key takes from the broker, in the topic key's unit.
func (b *Broker) synonym(d Dynamic, k *Key) (string, Source) {
	if k.Synonym == "" {
		return k.Default, SourceDefault
	}
	if v, src, ok := b.effective(d, k.Synonym); ok && src != SourceDefault {
		return v, src
	}
	for _, o := range older[k.Synonym] {
		if v, ok := b.set[o.name]; ok {
			if n := number(v); n >= 0 {
				return strconv.FormatInt(n*o.factor, 10), SourceStaticBroker
			}
			return v, SourceStaticBroker
		}
	}
	return k.Default, SourceDefault
}

// Topic merges a topic's dynamic configs over the broker's.
func (b *Broker) Topic(d Dynamic, set map[string]string) Topic {
	text := func(name string) string {
		if v, ok := set[name]; ok {
			return strings.TrimSpace(v)
		}
		v, _ := b.synonym(d, topicKeys[name])
		return v
	}
	num := func(name string) int64 { return number(text(name)) }
	yes := func(name string) bool { return strings.EqualFold(text(name), "true") }
	expiry, _, _ := b.effective(d, "producer.id.expiration.ms")
	return Topic{
		CleanupPolicy: SplitList(text("cleanup.policy")), CompressionType: text("compression.type"),
		GzipLevel: int(num("compression.gzip.level")), Lz4Level: int(num("compression.lz4.level")), ZstdLevel: int(num("compression.zstd.level")),
		FileDeleteDelayMs: num("file.delete.delay.ms"), FlushMessages: num("flush.messages"), FlushMs: num("flush.ms"),
		IndexIntervalBytes: num("index.interval.bytes"), LocalRetentionBytes: num("local.retention.bytes"), LocalRetentionMs: num("local.retention.ms"),
		MaxMessageBytes: num("max.message.bytes"), TimestampAfterMaxMs: num("message.timestamp.after.max.ms"), TimestampBeforeMaxMs: num("message.timestamp.before.max.ms"),
		LogAppendTime: text("message.timestamp.type") == "LogAppendTime", MinInsyncReplicas: int32(num("min.insync.replicas")),
		CopyDisabled: yes("remote.log.copy.disable"), RemoteStorageEnable: yes("remote.storage.enable"),
		RetentionBytes: num("retention.bytes"), RetentionMs: num("retention.ms"), SegmentBytes: num("segment.bytes"), SegmentIndexBytes: num("segment.index.bytes"),
		SegmentJitterMs: num("segment.jitter.ms"), SegmentMs: num("segment.ms"), UncleanLeaderElection: yes("unclean.leader.election.enable"),
		ArchiveMaxLagMs: num("archive.max.lag.ms"), RestoreWindowMs: num("archive.restore.window.ms"), ProducerExpiryMs: number(expiry),
		LeaderThrottled: SplitList(text(leaderThrottled)), FollowerThrottled: SplitList(text(followerThrottled)),
	}
}

// CheckTopic validates a topic's dynamic configs, keys and values, and together with what the broker gives.
func (b *Broker) CheckTopic(d Dynamic, set map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		k := topicKeys[name]
		if k == nil {
			return unknown("topic", name, topicKeys)
		}
		if err := k.Check(set[name]); err != nil {
			return err
		}
	}
	if v, ok := set["cleanup.policy"]; ok && len(SplitList(v)) == 0 {
		return &InvalidError{Key: "cleanup.policy", Value: v, Reason: "must be a list of compact, delete, not empty"}
	}
	for _, name := range []string{leaderThrottled, followerThrottled} {
		if v, ok := set[name]; ok && !throttledReplicas(v) {
			return &InvalidError{Key: name, Value: v, Reason: "must be a list of partition:broker, or *"}
		}
	}
	t := b.Topic(d, set)
	above := func(local, total int64) bool { return total >= 0 && (local > total || local == -1) }
	if above(t.LocalRetentionBytes, t.RetentionBytes) {
		return &InvalidError{Key: "local.retention.bytes", Value: strconv.FormatInt(t.LocalRetentionBytes, 10), Reason: "must not be above retention.bytes=" + strconv.FormatInt(t.RetentionBytes, 10)}
	}
	if above(t.LocalRetentionMs, t.RetentionMs) {
		return &InvalidError{Key: "local.retention.ms", Value: strconv.FormatInt(t.LocalRetentionMs, 10), Reason: "must not be above retention.ms=" + strconv.FormatInt(t.RetentionMs, 10)}
	}
	return nil
}

const (
	leaderThrottled   = "leader.replication.throttled.replicas"
	followerThrottled = "follower.replication.throttled.replicas"
)

// throttledReplicas says whether a list is empty, "*", or of elements "partition:broker".
func throttledReplicas(list string) bool {
	elements := SplitList(list)
	if len(elements) == 1 && elements[0] == "*" {
		return true
	}
	for _, e := range elements {
		partition, broker, ok := strings.Cut(e, ":")
		for _, n := range []string{partition, broker} {
			if _, err := strconv.ParseUint(n, 10, 31); err != nil {
				ok = false
			}
		}
		if !ok {
			return false
		}
	}
	return true
}

// Long is a broker key of type Long in force under d.
func (b *Broker) Long(d Dynamic, name string) int64 {
	v, _, _ := b.effective(d, name)
	return number(v)
}

// CheckBroker validates dynamic broker configs: known, dynamic, in range. resource is for the error.
func CheckBroker(set map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		k := brokerKeys[name]
		if k == nil {
			return unknown("broker", name, brokerKeys)
		}
		if !k.Dynamic {
			return &InvalidError{Key: name, Reason: "cannot be altered while the broker runs; set it in its file and restart"}
		}
		if err := k.Check(set[name]); err != nil {
			return err
		}
	}
	return nil
}
