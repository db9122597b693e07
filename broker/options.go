package broker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/internal/wallclock"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
)

// Options of a Server. Zero values are the defaults named; fill completes them once.
type Options struct {
	NodeID     int32
	Rack       string
	Advertised []meta.Listener // advertised.listeners; at least one

	// MinISR is min.insync.replicas of a topic, as it is in force; default: 1.
	MinISR func(t *meta.Topic) int32
	// Rules is what a topic's configuration demands of produced batches. NowMs, ClientWrite and AllowZstd are filled per request.
	// It is called again when the topic's record has changed. Default: Kafka's defaults.
	Rules func(t *meta.Topic) record.ValidateOptions

	Wall wallclock.Clock // nil: the system's

	// Config is the static configuration that DescribeConfigs and the checks of topic configs speak of. Default: Kafka's defaults.
	Config *config.Broker

	// Restore, where there is an archive, resolves the plan of a topic that is restored into this cluster under a new name:
	// it pins or leases the source and writes the new topic's first manifests. With validateOnly it only checks.
	Restore func(ctx context.Context, topic, plan string, validateOnly bool) (Restored, error)

	RackAware bool // replica.selector.class is Kafka's RackAwareReplicaSelector: consumers are sent to replicas of their rack (KIP-392)

	AutoCreateTopics   bool  // auto.create.topics.enable
	DefaultPartitions  int32 // num.partitions, default 1
	DefaultReplication int16 // default.replication.factor, default 1

	MaxRequestBytes   int32         // socket.request.max.bytes, default 100 MiB
	MaxQueuedBytes    int64         // queued.max.request.bytes: request bytes in memory at once, default 256 MiB
	MaxConnections    int           // max.connections, default no limit
	MaxIdle           time.Duration // connections.max.idle.ms, default 10 min
	MaxInFlight       int           // requests of a connection that wait for their acknowledgement, default 100
	MaxFetchBytes     int32         // fetch.max.bytes, default 55 MiB
	SendBufferBytes   int           // socket.send.buffer.bytes, 0 or -1: the system's
	RecvBufferBytes   int           // socket.receive.buffer.bytes, 0 or -1: the system's
	FetchSessionSlots int           // max.incremental.fetch.session.cache.slots, default 1000

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *Options) fill() error {
	if len(o.Advertised) == 0 {
		return errors.New("broker options: no advertised listener")
	}
	if o.Config == nil {
		o.Config, _, _ = config.New(nil)
	}
	if o.Rules == nil {
		o.Rules = func(*meta.Topic) record.ValidateOptions { return defaultRules }
	}
	setDefault(&o.DefaultPartitions, 1)
	setDefault(&o.DefaultReplication, 1)
	setDefault(&o.MaxRequestBytes, 100<<20)
	setDefault(&o.MaxQueuedBytes, 256<<20)
	setDefault(&o.MaxIdle, 10*time.Minute)
	setDefault(&o.MaxInFlight, 100)
	setDefault(&o.MaxFetchBytes, 55<<20)
	setDefault(&o.FetchSessionSlots, 1000)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	return nil
}

// Restored is a topic as an archive has it, ready to be created: a pointer and a first leader epoch for each partition.
type Restored struct {
	ID          manifest.TopicID // of the new topic
	Replication int16            // if the request does not say how many replicas; 0: default.replication.factor
	Configs     map[string]string
	Pointers    []meta.Pointer
	FirstEpochs []int32
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// defaultRules are those of a topic with no configuration of its own.
var defaultRules = record.ValidateOptions{
	FromProducer:      true,
	TimestampBeforeMs: 1<<63 - 1,
	TimestampAfterMs:  3_600_000,
	MaxBytes:          1048588,
	MaxDecompressed:   64 << 20,
}
