package config

import "math"

const (
	maxLong = "9223372036854775807"
	none    = -1
)

// topicKeys are Kafka's topic keys with their defaults, and varve's own two. Where Kafka's default is another, the
// comment says so.
var topicKeys = limits([]Key{
	{Name: "cleanup.policy", Type: List, Default: "delete", Valid: []string{"compact", "delete"}, Synonym: "log.cleanup.policy", Doc: "delete old segments, compact by key, or both"},
	{Name: "compression.type", Type: String, Default: "producer", Valid: []string{"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"}, Synonym: "compression.type", Doc: "codec of stored batches; producer keeps the producer's"},
	{Name: "compression.gzip.level", Type: Int, Default: "-1", Min: -1, Max: 9, Synonym: "compression.gzip.level", Doc: "gzip level where compression.type is gzip"},
	{Name: "compression.lz4.level", Type: Int, Default: "9", Min: 1, Max: 17, Synonym: "compression.lz4.level", Doc: "lz4 level where compression.type is lz4"},
	{Name: "compression.zstd.level", Type: Int, Default: "3", Min: -131072, Max: 22, Synonym: "compression.zstd.level", Doc: "zstd level where compression.type is zstd"},
	{Name: "delete.retention.ms", Type: Long, Default: "86400000", Min: 0, Max: math.MaxInt64, Synonym: "log.cleaner.delete.retention.ms", Doc: "how long tombstones of compacted topics stay, ms"},
	{Name: "file.delete.delay.ms", Type: Long, Default: "60000", Min: 0, Max: math.MaxInt64, Synonym: "log.segment.delete.delay.ms", Doc: "wait before a deleted segment's files go, ms"},
	{Name: "flush.messages", Type: Long, Default: maxLong, Min: 1, Max: math.MaxInt64, Synonym: "log.flush.interval.messages", Doc: "records between forced fsyncs"},
	{Name: "flush.ms", Type: Long, Default: maxLong, Min: 0, Max: math.MaxInt64, Synonym: "log.flush.interval.ms", Doc: "time between forced fsyncs, ms"},
	{Name: "follower.replication.throttled.replicas", Type: List, Default: "", Doc: "replicas whose fetching is throttled: partition:broker, or *"},
	{Name: "index.interval.bytes", Type: Int, Default: "4096", Min: 0, Max: math.MaxInt32, Synonym: "log.index.interval.bytes", Doc: "bytes between entries of the offset index"},
	{Name: "leader.replication.throttled.replicas", Type: List, Default: "", Doc: "leaders whose serving is throttled: partition:broker, or *"},
	{Name: "local.retention.bytes", Type: Long, Default: "-2", Min: -2, Max: math.MaxInt64, Synonym: "log.local.retention.bytes", Doc: "bytes kept on the broker once archived; -2: as retention.bytes"},
	{Name: "local.retention.ms", Type: Long, Default: "-2", Min: -2, Max: math.MaxInt64, Synonym: "log.local.retention.ms", Doc: "time kept on the broker once archived, ms; -2: as retention.ms"},
	{Name: "max.compaction.lag.ms", Type: Long, Default: maxLong, Min: 1, Max: math.MaxInt64, Synonym: "log.cleaner.max.compaction.lag.ms", Doc: "longest time a record stays uncompacted, ms"},
	{Name: "max.message.bytes", Type: Int, Default: "1048588", Min: 0, Max: math.MaxInt32, Synonym: "message.max.bytes", Doc: "largest batch, bytes"},
	{Name: "message.timestamp.after.max.ms", Type: Long, Default: "3600000", Min: 0, Max: math.MaxInt64, Synonym: "log.message.timestamp.after.max.ms", Doc: "how far a timestamp may be after the broker's clock, ms"},
	{Name: "message.timestamp.before.max.ms", Type: Long, Default: maxLong, Min: 0, Max: math.MaxInt64, Synonym: "log.message.timestamp.before.max.ms", Doc: "how far a timestamp may be before the broker's clock, ms"},
	{Name: "message.timestamp.type", Type: String, Default: "CreateTime", Valid: []string{"CreateTime", "LogAppendTime"}, Synonym: "log.message.timestamp.type", Doc: "whose timestamp counts"},
	{Name: "min.cleanable.dirty.ratio", Type: Double, Default: "0.5", Min: 0, Max: 1, Synonym: "log.cleaner.min.cleanable.ratio", Doc: "dirty share from which a log is compacted"},
	{Name: "min.compaction.lag.ms", Type: Long, Default: "0", Min: 0, Max: math.MaxInt64, Synonym: "log.cleaner.min.compaction.lag.ms", Doc: "shortest time a record stays uncompacted, ms"},
	{Name: "min.insync.replicas", Type: Int, Default: "1", Min: 1, Max: math.MaxInt32, Synonym: "min.insync.replicas", Doc: "in-sync replicas that acks=all needs"},
	{Name: "preallocate", Type: Bool, Default: "false", Synonym: "log.preallocate", Doc: "preallocate segment files", Inert: true},
	{Name: "remote.log.copy.disable", Type: Bool, Default: "false", Doc: "stop copying to the archive; what is there stays readable (KIP-950)"},
	{Name: "remote.log.delete.on.disable", Type: Bool, Default: "false", Doc: "delete archived data when the archive is switched off (KIP-950)", Inert: true},
	{Name: "remote.storage.enable", Type: Bool, Default: "true", Doc: "archive the topic; Kafka's default is false"},
	{Name: "retention.bytes", Type: Long, Default: "-1", Min: -1, Max: math.MaxInt64, Synonym: "log.retention.bytes", Doc: "bytes kept per partition, archive included; -1: no limit"},
	{Name: "retention.ms", Type: Long, Default: "604800000", Min: -1, Max: math.MaxInt64, Synonym: "log.retention.ms", Doc: "time kept, archive included, ms; -1: no limit"},
	{Name: "segment.bytes", Type: Int, Default: "1073741824", Min: 1 << 20, Max: math.MaxInt32, Synonym: "log.segment.bytes", Doc: "size at which a segment rolls, bytes"},
	{Name: "segment.index.bytes", Type: Int, Default: "10485760", Min: 4, Max: math.MaxInt32, Synonym: "log.index.size.max.bytes", Doc: "size at which a full index rolls the segment, bytes"},
	{Name: "segment.jitter.ms", Type: Long, Default: "0", Min: 0, Max: math.MaxInt64, Synonym: "log.roll.jitter.ms", Doc: "random time taken off segment.ms, ms"},
	{Name: "segment.ms", Type: Long, Default: "604800000", Min: 1, Max: math.MaxInt64, Synonym: "log.roll.ms", Doc: "age at which a segment rolls, ms"},
	{Name: "unclean.leader.election.enable", Type: Bool, Default: "false", Synonym: "unclean.leader.election.enable", Doc: "elect a replica outside the ISR if no other is left"},
	{Name: "archive.max.lag.ms", Type: Long, Default: "10000", Min: 100, Max: math.MaxInt64, Synonym: "archive.max.lag.ms", Doc: "longest time committed data waits before it is archived, ms"},
	{Name: "archive.restore.window.ms", Type: Long, Default: "604800000", Min: 0, Max: math.MaxInt64, Synonym: "archive.restore.window.ms", Doc: "how far back a restore can go: dead objects stay this long, ms"},
})

// TopicKey returns the topic key, nil if there is none.
func TopicKey(name string) *Key { return topicKeys[name] }
