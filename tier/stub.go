package tier

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// Stub door: replaced by the real files; signatures are the contract.

// Options: zero values are defaults.
type Options struct {
	Cluster        string
	Incarnation    uint32
	Uploads        int           // concurrent uploads, default 4
	MaxLag         time.Duration // archive.max.lag.ms, default 10 s
	RestoreWindow  time.Duration // archive.restore.window.ms, default 7 days; a topic may override
	SweepInterval  time.Duration
	ReadAheadBytes int64                                         // per sequential reader; default 16 MiB
	Foreign        func(archive string) (objstore.Bucket, error) // buckets of attached archives
	Logger         *slog.Logger
	Registerer     prometheus.Registerer
}

// OpenArchive checks that the bucket is an archive of this cluster (format version, id), or makes it one if it is empty,
// with incarnation 1 claimed and sealed. Errors say what was found and what to do.
func OpenArchive(ctx context.Context, b objstore.Bucket, cluster string) (manifest.ArchiveInfo, uint32, error) {
	panic("stub")
}

type Archive struct{}

func New(b objstore.Bucket, id manifest.ArchiveInfo, p Pointers, c *cache.Cache, o Options) *Archive {
	panic("stub")
}

// Run uploads, retains and collects until ctx ends.
func (a *Archive) Run(ctx context.Context) error { panic("stub") }

// TopicConfig is what the archive needs of a topic's configuration.
type TopicConfig struct {
	Name            string
	RetentionMs     int64
	RetentionBytes  int64
	CopyDisabled    bool // remote.log.copy.disable
	RestoreWindowMs int64
	MaxLagMs        int64
}

// Lead starts archiving a partition that this broker leads in leaderEpoch. It reads the pointer and its manifest.
func (a *Archive) Lead(ctx context.Context, id manifest.PartitionID, leaderEpoch int32, src Source, c TopicConfig) (*Partition, error) {
	panic("stub")
}

// Partition is one led partition's archive. All methods may be called concurrently.
type Partition struct{}

// Notify: the log grew, rolled or its committed offset moved. Cheap, never blocks.
func (p *Partition) Notify()                 {}
func (p *Partition) SetConfig(c TopicConfig) {}
func (p *Partition) Resign()                 {} // no longer leader: stop for good

func (p *Partition) Through() int64               { panic("stub") } // committed archived-through, exclusive
func (p *Partition) ThroughTime() int64           { panic("stub") }
func (p *Partition) Start() (int64, bool)         { panic("stub") } // first live archived offset
func (p *Partition) SizeBytes() int64             { panic("stub") } // live bytes in the archive
func (p *Partition) Manifest() *manifest.Manifest { panic("stub") } // committed one, read only

// DeleteBefore marks entries below the log start dead (DeleteRecords); asynchronous.
func (p *Partition) DeleteBefore(off int64) { panic("stub") }

// Read returns whole batches from the one that holds off, or the next after it, of at most max bytes but at least one batch.
// Release each chunk-backed part with Data.Release.
func (p *Partition) Read(ctx context.Context, off int64, max int) (Data, error) { panic("stub") }

// Data is archived batches as parts to be written in order.
type Data struct {
	Parts [][]byte
	Base  int64
	Next  int64 // offset after the last record
}

func (d Data) Release() { panic("stub") }

// Look-ups over the archived range.
func (p *Partition) OffsetForTime(ctx context.Context, ts int64) (localseg.TimestampOffset, error) {
	panic("stub")
}
func (p *Partition) MaxTimestamp(ctx context.Context) (localseg.TimestampOffset, error) {
	panic("stub")
}
func (p *Partition) Aborted(ctx context.Context, from, to int64) ([]localseg.AbortedTxn, error) {
	panic("stub")
}

// Flush uploads everything committed now and commits it; for a drain, bounded by ctx.
func (p *Partition) Flush(ctx context.Context) error { panic("stub") }

// DropTopic writes the tombstone and marks all of a deleted topic's partitions dead; Collect removes what the window has released.
func (a *Archive) PutTopic(ctx context.Context, r manifest.TopicRecord) error { panic("stub") }

// CollectDeleted dooms and deletes a deleted topic once its window has passed; done says nothing is left.
func (a *Archive) CollectDeleted(ctx context.Context, id manifest.TopicID, partitions int32, deletedMs int64, windowMs int64) (done bool, err error) {
	panic("stub")
}
