package config

import "math"

// brokerKeys are Kafka's broker keys that varve reads, and varve's own.
var brokerKeys = limits([]Key{
	// varve's own
	{Name: "admin.listen", Type: String, Default: "localhost:9644", Doc: "HOST:PORT of /livez, /readyz and /metrics; empty: none"},
	{Name: "archive.url", Type: String, Default: "", Doc: "s3://bucket/prefix?endpoint=..., file:///dir; empty: no archive"},
	{Name: "archive.s3.client", Type: String, Default: "aws", Valid: []string{"aws", "minio"}, Doc: "S3 client library, where the URL names none"},
	{Name: "archive.max.lag.ms", Type: Long, Default: "10000", Min: 100, Max: math.MaxInt64, Dynamic: true, Doc: "default of the topic key"},
	{Name: "archive.restore.window.ms", Type: Long, Default: "604800000", Min: 0, Max: math.MaxInt64, Dynamic: true, Doc: "default of the topic key"},
	{Name: "archive.local.max.bytes", Type: Long, Default: "-1", Min: -1, Max: math.MaxInt64, Doc: "local bytes not yet archived past which produce is refused with a retriable error; -1: no limit"},
	{Name: "archive.upload.threads", Type: Int, Default: "4", Min: 1, Max: 1024, Doc: "uploads at once"},
	{Name: "archive.sweep.interval.ms", Type: Long, Default: "60000", Min: 10, Max: math.MaxInt64, Doc: "time between rounds of archive retention and collection, ms"},
	{Name: "archive.cache.memory.bytes", Type: Long, Default: "67108864", Min: 8 << 20, Max: math.MaxInt64, Doc: "memory for archived chunks, bytes"},
	{Name: "archive.cache.disk.bytes", Type: Long, Default: "0", Min: 0, Max: math.MaxInt64, Doc: "disk for archived chunks, below log.dirs, bytes; 0: none"},
	{Name: "etcd.endpoints", Type: List, Default: "", Doc: "external etcd, host:port,..."},
	{Name: "etcd.embedded", Type: Bool, Default: "false", Doc: "run etcd in this process"},
	{Name: "etcd.initial.cluster", Type: List, Default: "", Doc: "embedded members: ID@HOST:PEERPORT:CLIENTPORT,..."},
	{Name: "shutdown.timeout.ms", Type: Long, Default: "30000", Min: 0, Max: math.MaxInt64, Doc: "bound on a graceful stop, ms"},
	{Name: "log.open.files.max", Type: Int, Default: "1024", Min: 16, Max: math.MaxInt32, Doc: "open segment files of all partitions"},

	// identity and sockets
	{Name: "node.id", Type: Int, Default: "1", Min: 0, Max: math.MaxInt32, Doc: "id of this broker"},
	{Name: "broker.id", Type: Int, Default: "-1", Min: -1, Max: math.MaxInt32, Doc: "older name of node.id"},
	{Name: "broker.rack", Type: String, Null: true, Doc: "rack of this broker"},
	{Name: "cluster.id", Type: String, Default: "", Doc: "id of the cluster; empty: the one in etcd, or a new one"},
	{Name: "listeners", Type: List, Default: "PLAINTEXT://:9092", Doc: "NAME://HOST:PORT,..."},
	{Name: "advertised.listeners", Type: List, Null: true, Doc: "what clients are told; default: listeners"},
	{Name: "inter.broker.listener.name", Type: String, Default: "PLAINTEXT", Doc: "listener that brokers use among themselves"},
	{Name: "listener.security.protocol.map", Type: String, Default: "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", Doc: "listener name to protocol; only PLAINTEXT is served"},
	{Name: "controller.listener.names", Type: List, Default: "", Doc: "listeners of a Kafka configuration that varve leaves closed: it has no controller quorum"},
	{Name: "socket.request.max.bytes", Type: Int, Default: "104857600", Min: 1, Max: math.MaxInt32, Doc: "largest request, bytes"},
	{Name: "socket.send.buffer.bytes", Type: Int, Default: "102400", Min: -1, Max: math.MaxInt32, Doc: "SO_SNDBUF; -1: the system's"},
	{Name: "socket.receive.buffer.bytes", Type: Int, Default: "102400", Min: -1, Max: math.MaxInt32, Doc: "SO_RCVBUF; -1: the system's"},
	{Name: "queued.max.request.bytes", Type: Long, Default: "-1", Min: -1, Max: math.MaxInt64, Doc: "bytes of requests in work at once; -1: 1/4 of a gigabyte"},
	{Name: "connections.max.idle.ms", Type: Long, Default: "600000", Min: -1, Max: math.MaxInt64, Doc: "idle connections are closed after, ms; -1: never"},
	{Name: "max.connections", Type: Int, Default: "2147483647", Min: 0, Max: math.MaxInt32, Dynamic: true, Doc: "connections at once"},
	{Name: "max.incremental.fetch.session.cache.slots", Type: Int, Default: "1000", Min: 0, Max: math.MaxInt32, Doc: "fetch sessions (KIP-227)"},
	{Name: "max.request.partition.size.limit", Type: Int, Default: "2000", Min: 1, Max: math.MaxInt32, Doc: "partitions in one DescribeTopicPartitions answer"},
	{Name: "fetch.max.bytes", Type: Int, Default: "57671680", Min: 1024, Max: math.MaxInt32, Doc: "most bytes in one fetch answer"},

	// log
	{Name: "log.dirs", Type: List, Null: true, Doc: "the data directory (one)"},
	{Name: "log.dir", Type: String, Default: "./varve-data", Doc: "the data directory where log.dirs is not set"},
	{Name: "num.partitions", Type: Int, Default: "1", Min: 1, Max: math.MaxInt32, Doc: "partitions of a topic where none are asked for"},
	{Name: "default.replication.factor", Type: Int, Default: "1", Min: 1, Max: math.MaxInt32, Doc: "replicas of a topic where none are asked for"},
	{Name: "auto.create.topics.enable", Type: Bool, Default: "true", Doc: "create topics on first use"},
	{Name: "delete.topic.enable", Type: Bool, Default: "true", Doc: "allow DeleteTopics"},
	{Name: "log.cleanup.policy", Type: List, Default: "delete", Valid: []string{"compact", "delete"}, Dynamic: true},
	{Name: "compression.type", Type: String, Default: "producer", Valid: []string{"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"}, Dynamic: true},
	{Name: "compression.gzip.level", Type: Int, Default: "-1", Min: -1, Max: 9, Dynamic: true},
	{Name: "compression.lz4.level", Type: Int, Default: "9", Min: 1, Max: 17, Dynamic: true},
	{Name: "compression.zstd.level", Type: Int, Default: "3", Min: -131072, Max: 22, Dynamic: true},
	{Name: "log.cleaner.delete.retention.ms", Type: Long, Default: "86400000", Min: 0, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.cleaner.max.compaction.lag.ms", Type: Long, Default: maxLong, Min: 1, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.cleaner.min.compaction.lag.ms", Type: Long, Default: "0", Min: 0, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.cleaner.min.cleanable.ratio", Type: Double, Default: "0.5", Min: 0, Max: 1, Dynamic: true},
	{Name: "log.segment.delete.delay.ms", Type: Long, Default: "60000", Min: 0, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.flush.interval.messages", Type: Long, Default: maxLong, Min: 1, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.flush.interval.ms", Type: Long, Null: true, Min: 0, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.index.interval.bytes", Type: Int, Default: "4096", Min: 0, Max: math.MaxInt32, Dynamic: true},
	{Name: "log.index.size.max.bytes", Type: Int, Default: "10485760", Min: 4, Max: math.MaxInt32, Dynamic: true},
	{Name: "log.local.retention.bytes", Type: Long, Default: "-2", Min: -2, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.local.retention.ms", Type: Long, Default: "-2", Min: -2, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.message.timestamp.after.max.ms", Type: Long, Default: "3600000", Min: 0, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.message.timestamp.before.max.ms", Type: Long, Default: maxLong, Min: 0, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.message.timestamp.type", Type: String, Default: "CreateTime", Valid: []string{"CreateTime", "LogAppendTime"}, Dynamic: true},
	{Name: "log.preallocate", Type: Bool, Default: "false", Dynamic: true, Inert: true},
	{Name: "log.retention.bytes", Type: Long, Default: "-1", Min: -1, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.retention.ms", Type: Long, Null: true, Min: -1, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.retention.minutes", Type: Int, Null: true, Min: none, Max: math.MaxInt32},
	{Name: "log.retention.hours", Type: Int, Default: "168", Min: none, Max: math.MaxInt32},
	{Name: "log.retention.check.interval.ms", Type: Long, Default: "300000", Min: 1, Max: math.MaxInt64, Doc: "time between rounds of retention, ms"},
	{Name: "log.roll.ms", Type: Long, Null: true, Min: 1, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.roll.hours", Type: Int, Default: "168", Min: 1, Max: math.MaxInt32},
	{Name: "log.roll.jitter.ms", Type: Long, Null: true, Min: 0, Max: math.MaxInt64, Dynamic: true},
	{Name: "log.roll.jitter.hours", Type: Int, Default: "0", Min: 0, Max: math.MaxInt32},
	{Name: "log.segment.bytes", Type: Int, Default: "1073741824", Min: 1 << 20, Max: math.MaxInt32, Dynamic: true},
	{Name: "message.max.bytes", Type: Int, Default: "1048588", Min: 0, Max: math.MaxInt32, Dynamic: true},
	{Name: "max.decompressed.message.bytes", Type: Int, Default: "2147483639", Min: 1, Max: math.MaxInt32, Doc: "most bytes that one batch may decompress to"},
	{Name: "min.insync.replicas", Type: Int, Default: "1", Min: 1, Max: math.MaxInt32, Dynamic: true},
	{Name: "unclean.leader.election.enable", Type: Bool, Default: "false", Dynamic: true},
	{Name: "producer.id.expiration.ms", Type: Int, Default: "86400000", Min: 1, Max: math.MaxInt32, Dynamic: true, Doc: "idle producers are forgotten after, ms"},

	// groups
	{Name: "group.initial.rebalance.delay.ms", Type: Int, Default: "3000", Min: 0, Max: math.MaxInt32},
	{Name: "group.min.session.timeout.ms", Type: Int, Default: "6000", Min: 0, Max: math.MaxInt32},
	{Name: "group.max.session.timeout.ms", Type: Int, Default: "1800000", Min: 0, Max: math.MaxInt32},
	{Name: "group.max.size", Type: Int, Default: "2147483647", Min: 1, Max: math.MaxInt32},
	{Name: "offset.metadata.max.bytes", Type: Int, Default: "4096", Min: 0, Max: math.MaxInt32},
	{Name: "offsets.commit.timeout.ms", Type: Int, Default: "5000", Min: 1, Max: math.MaxInt32},
	{Name: "offsets.retention.check.interval.ms", Type: Long, Default: "600000", Min: 1, Max: math.MaxInt64},
	{Name: "offsets.retention.minutes", Type: Int, Default: "10080", Min: 1, Max: math.MaxInt32},
	{Name: "offsets.topic.num.partitions", Type: Int, Default: "50", Min: 1, Max: math.MaxInt32},
	{Name: "offsets.topic.replication.factor", Type: Short, Default: "3", Min: 1, Max: math.MaxInt16, Doc: "capped to the living brokers"},
	{Name: "offsets.topic.segment.bytes", Type: Int, Default: "104857600", Min: 1 << 20, Max: math.MaxInt32},

	// replication
	{Name: "num.replica.fetchers", Type: Int, Default: "1", Min: 1, Max: 64, Doc: "connections to each other broker on which its partitions are followed"},
	{Name: "replica.fetch.backoff.ms", Type: Int, Default: "1000", Min: 0, Max: math.MaxInt32, Doc: "longest pause of a follower after an error, ms"},
	{Name: "replica.fetch.max.bytes", Type: Int, Default: "1048576", Min: 1, Max: math.MaxInt32, Doc: "most bytes of one partition in a follower's fetch"},
	{Name: "replica.fetch.min.bytes", Type: Int, Default: "1", Min: 1, Max: math.MaxInt32, Doc: "bytes that a follower's fetch waits for"},
	{Name: "replica.fetch.response.max.bytes", Type: Int, Default: "10485760", Min: 1, Max: math.MaxInt32, Doc: "most bytes in the answer to a follower"},
	{Name: "replica.fetch.wait.max.ms", Type: Int, Default: "500", Min: 1, Max: math.MaxInt32, Doc: "longest wait of a follower's fetch, ms"},
	{Name: "replica.high.watermark.checkpoint.interval.ms", Type: Long, Default: "5000", Min: 1, Max: math.MaxInt64, Doc: "time between checkpoints of high watermarks, ms"},
	{Name: "replica.lag.time.max.ms", Type: Long, Default: "30000", Min: 1, Max: math.MaxInt64, Doc: "a follower that has not caught up for so long leaves the ISR, ms"},
	{Name: "replica.selector.class", Type: String, Null: true, Valid: []string{RackAwareSelector}, Doc: "which replica a consumer is sent to (KIP-392); unset: the leader"},

	// cluster
	{Name: "broker.session.timeout.ms", Type: Int, Default: "9000", Min: 2000, Max: math.MaxInt32, Doc: "life of the registration's lease, ms"},
})

// inertKeys are Kafka's, accepted from a server.properties written for Kafka; they change nothing here, and starting says so.
var inertKeys = []string{
	"num.recovery.threads.per.data.dir", "remote.fetch.max.wait.ms", "request.timeout.ms", "max.connections.per.ip",
	"process.roles", "controller.quorum.bootstrap.servers", "controller.quorum.voters", "num.network.threads", "num.io.threads",
	"background.threads", "queued.max.requests", "num.replica.alter.log.dirs.threads", "zookeeper.connect", "zookeeper.connection.timeout.ms",
	"broker.heartbeat.interval.ms", "controlled.shutdown.enable", "group.coordinator.threads", "group.coordinator.append.linger.ms", "group.coordinator.background.threads",
	"group.coordinator.rebalance.protocols", "offsets.load.buffer.size", "offsets.topic.compression.codec", "remote.log.storage.system.enable", "log.cleaner.enable", "log.cleaner.threads",
	"log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size", "log.cleaner.io.buffer.size", "log.cleaner.io.buffer.load.factor", "log.cleaner.io.max.bytes.per.second",
	"log.flush.scheduler.interval.ms", "log.flush.offset.checkpoint.interval.ms", "log.flush.start.offset.checkpoint.interval.ms", "log.dir.failure.timeout.ms",
	"metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "auto.include.jmx.reporter", "socket.listen.backlog.size",
	"fetch.purgatory.purge.interval.requests", "producer.purgatory.purge.interval.requests", "delete.records.purgatory.purge.interval.requests",
	"transaction.state.log.replication.factor", "transaction.state.log.min.isr", "transaction.state.log.num.partitions", "transaction.state.log.segment.bytes",
	"share.coordinator.state.topic.replication.factor", "share.coordinator.state.topic.min.isr", "auto.leader.rebalance.enable", "leader.imbalance.check.interval.seconds",
	"leader.imbalance.per.broker.percentage",
	"replica.socket.timeout.ms", "replica.socket.receive.buffer.bytes",
	"initial.broker.registration.timeout.ms", "connection.failed.authentication.delay.ms", "max.connection.creation.rate", "remote.log.reader.threads",
	"remote.log.manager.thread.pool.size", "remote.log.manager.task.interval.ms", "remote.log.metadata.manager.listener.name", "remote.log.storage.manager.class.name",
	"remote.log.storage.manager.class.path", "remote.log.metadata.manager.class.name",
}

// RackAwareSelector is the one value of replica.selector.class: a replica in the consumer's rack.
const RackAwareSelector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

// BrokerKey returns the broker key, nil if there is none.
func BrokerKey(name string) *Key { return brokerKeys[name] }
