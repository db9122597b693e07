package group

import (
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/internal/wallclock"
	"github.com/varvelog/varve/manifest"
)

// Options of a Coordinator. Zero values are the defaults named.
type Options struct {
	Config           // NewID: random UUIDs
	Partitions int32 // offsets.topic.num.partitions, default 50

	RetentionCheck time.Duration // offsets.retention.check.interval.ms, default 10 min
	CommitTimeout  time.Duration // offsets.commit.timeout.ms, default 5 s
	QueueBytes     int           // records of a partition that wait for being written; default 16 MiB, then requests are refused
	Loaders        int           // partitions that are loaded at a time, default 4

	// Deleted tells if a topic is known to have been deleted; offsets of such topics are not answered, and dropped when a partition
	// is loaded. It must not block. Default: none is.
	Deleted func(manifest.TopicID) bool

	Wall       wallclock.Clock // times of commits and of groups, and their retention, go by it; nil: the system's
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *Options) fill() {
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	def(&o.Partitions, 50)
	def(&o.RetentionCheck, 10*time.Minute)
	def(&o.CommitTimeout, 5*time.Second)
	def(&o.QueueBytes, 16<<20)
	def(&o.Loaders, 4)
	if o.Deleted == nil {
		o.Deleted = func(manifest.TopicID) bool { return false }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
}
