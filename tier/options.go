package tier

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/internal/wallclock"
	"github.com/varvelog/varve/objstore"
)

// Options of an Archive. Zero values are the defaults.
type Options struct {
	Cluster       string
	Incarnation   uint32
	Broker        int32         // whose mark tells up to when everything is archived
	Uploads       int           // partitions worked on at once: uploads, commits, collection; default 4
	MaxLag        time.Duration // archive.max.lag.ms, default 10 s; a topic may override
	RestoreWindow time.Duration // archive.restore.window.ms, default 7 days; a topic may override
	// SupersededGrace is how long a superseded tail object stays listed: a live object has its records, so no restore needs it
	// for as long as the window; default 1 h, at most the window.
	SupersededGrace time.Duration
	SweepInterval   time.Duration // pause before and between looks for orphans of older leader epochs; default 1 h

	ReadAheadBytes int64 // per sequential reader; default 16 MiB, negative: none
	ChunkBytes     int64 // target size of a chunk in a segment object; default 4 MiB
	FooterBytes    int64 // footers and groups kept in memory; default 32 MiB

	RetryMin time.Duration // first pause after a failed step of a partition; doubles, with jitter; default 200 ms
	RetryMax time.Duration // largest such pause; default 30 s

	// Foreign opens the bucket of an attached archive. Nil: none is attached.
	Foreign func(archive string) (objstore.Bucket, error)
	// Lease is the lease under which that archive is read, nil where it needs none (a source that nobody collects).
	Lease func(archive string) *Lease

	Wall       wallclock.Clock // retention by time and the broker's mark go by it; nil: the system's
	Rand       func() uint64   // object key suffixes and jitter, called concurrently; default math/rand/v2
	Logger     *slog.Logger    // default: discards
	Registerer prometheus.Registerer
}

func (o *Options) fill() {
	o.Uploads = orInt(o.Uploads, 4)
	o.MaxLag = orDuration(o.MaxLag, 10*time.Second)
	o.RestoreWindow = orDuration(o.RestoreWindow, 7*24*time.Hour)
	o.SupersededGrace = orDuration(o.SupersededGrace, time.Hour)
	o.SweepInterval = orDuration(o.SweepInterval, time.Hour)
	o.RetryMin = orDuration(o.RetryMin, 200*time.Millisecond)
	o.RetryMax = max(orDuration(o.RetryMax, 30*time.Second), o.RetryMin)
	if o.ReadAheadBytes == 0 {
		o.ReadAheadBytes = 16 << 20
	}
	if o.ChunkBytes <= 0 {
		o.ChunkBytes = 4 << 20
	}
	if o.FooterBytes <= 0 {
		o.FooterBytes = 32 << 20
	}
	if o.Rand == nil {
		o.Rand = rand.Uint64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func orInt(v, def int) int {
	if v <= 0 {
		return def
	}
	return v
}

func orDuration(v, def time.Duration) time.Duration {
	if v <= 0 {
		return def
	}
	return v
}

// TopicConfig is what the archive needs of a topic's configuration. Zero values are documented per field; -1 is no limit.
type TopicConfig struct {
	Name            string
	RetentionMs     int64 // retention.ms over archive and local log; 0 or -1: no limit
	RetentionBytes  int64 // retention.bytes over archive and local log; 0 or -1: no limit
	CopyDisabled    bool  // remote.log.copy.disable: nothing new is uploaded, all else goes on
	RestoreWindowMs int64 // 0: Options.RestoreWindow
	MaxLagMs        int64 // 0: Options.MaxLag
}
