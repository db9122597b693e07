package replica

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// Stub door: replaced by the real files; signatures are the contract.

// Options of a Manager. Zero values are defaults.
type Options struct {
	NodeID         int32
	Dir            string                                                  // log.dirs
	TopicConfig    func(t *meta.Topic) (localseg.Config, tier.TopicConfig) // merged topic configs
	RetentionCheck time.Duration                                           // log.retention.check.interval.ms
	LocalMaxBytes  int64                                                   // archive.local.max.bytes, 0: no limit
	OpenFiles      int
	Logger         *slog.Logger
	Registerer     prometheus.Registerer
}

// Manager owns every partition that this broker hosts.
type Manager struct{}

// NewManager: archive may be nil (no tiering).
func NewManager(fs vfs.FS, store *meta.Store, archive *tier.Archive, o Options) (*Manager, error) {
	panic("stub")
}

// Start elects this broker for what it must lead and recovers the logs; it returns when partitions can be served.
func (m *Manager) Start(ctx context.Context) error { panic("stub") }

// Run follows the metadata (new, changed, deleted topics), applies retention, checkpoints; until ctx ends.
func (m *Manager) Run(ctx context.Context) error { panic("stub") }

// Close drains: flushes logs, archives tails within ctx, writes the clean-shutdown marker.
func (m *Manager) Close(ctx context.Context) error { panic("stub") }

// Leader returns the partition if this broker leads it. It waits briefly for one that was just created.
func (m *Manager) Leader(tp TopicPartition) (*Partition, error) { panic("stub") }

// All lists the hosted partitions.
func (m *Manager) All() []*Partition { panic("stub") }

// Partition is one hosted partition. All methods may be called concurrently.
type Partition struct{}

func (p *Partition) Topic() string            { panic("stub") }
func (p *Partition) ID() manifest.PartitionID { panic("stub") }
func (p *Partition) LeaderEpoch() int32       { panic("stub") }
func (p *Partition) Log() *localseg.Log       { panic("stub") }
func (p *Partition) Archive() *tier.Partition { panic("stub") } // nil: not tiered

// CheckEpoch compares a client's current leader epoch (-1: none) with ours: ErrFencedEpoch, ErrUnknownEpoch.
func (p *Partition) CheckEpoch(current int32) error { panic("stub") }

// Append writes batches that record.Validate has passed. It returns when they are in the leader's log; Committed tells when acks=all holds.
func (p *Partition) Append(batches []record.Batch, from localseg.Origin, acksAll bool) (localseg.Appended, error) {
	panic("stub")
}

// WaitCommitted blocks until the high watermark is above offset (acks=all) or ctx ends. With one replica it returns at once.
func (p *Partition) WaitCommitted(ctx context.Context, offset int64) error { panic("stub") }

func (p *Partition) HighWatermark() int64 { panic("stub") }
func (p *Partition) LastStable() int64    { panic("stub") }
func (p *Partition) LogStart() int64      { panic("stub") }
func (p *Partition) LEO() int64           { panic("stub") }

// ReadHot reads from the local log without blocking; localseg.ErrBelowLocal says: use ReadCold. An empty Slice at the end.
func (p *Partition) ReadHot(off int64, max int, iso Isolation) (Slice, error) { panic("stub") }

// ReadCold reads from the archive; it may wait for the object store until ctx ends.
func (p *Partition) ReadCold(ctx context.Context, off int64, max int, iso Isolation) (Slice, error) {
	panic("stub")
}

// Waiter is woken when something to read may have appeared on any partition it was added to, or a partition goes away.
type Waiter struct{ C chan struct{} } // buffered 1

func NewWaiter() *Waiter { return &Waiter{C: make(chan struct{}, 1)} }

// AddWaiter and RemoveWaiter: Add first, then read again, so that no append is missed.
func (p *Partition) AddWaiter(w *Waiter)    { panic("stub") }
func (p *Partition) RemoveWaiter(w *Waiter) { panic("stub") }

// OffsetFor answers ListOffsets for a timestamp >= 0 and the special ones -1 (latest), -2 (earliest), -3 (max timestamp), -4 (earliest local),
// -5 (latest tiered), over archive and local log (KIP-79, 405, 734, 1005). Offset -1 and timestamp -1 for none.
func (p *Partition) OffsetFor(ctx context.Context, ts int64, iso Isolation) (localseg.TimestampOffset, error) {
	panic("stub")
}

// DeleteRecords raises the log start to off (-1: high watermark) and returns it.
func (p *Partition) DeleteRecords(off int64) (int64, error) { panic("stub") }

// EndOffsetForEpoch answers OffsetForLeaderEpoch over the whole history.
func (p *Partition) EndOffsetForEpoch(epoch int32) (int32, int64) { panic("stub") }
