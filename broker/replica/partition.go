package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// Partition is one hosted partition. All methods may be called concurrently. It is handed out once its log is open.
type Partition struct {
	m    *Manager
	id   manifest.PartitionID
	name string

	topic   atomic.Pointer[meta.Topic]
	log     *localseg.Log                  // set before the partition is handed out
	archive atomic.Pointer[tier.Partition] // nil: not tiered, or not led there yet
	tiered  atomic.Bool

	// appendMu is held by the one that appends, retains, or makes the log begin elsewhere: a write into the page cache at most.
	appendMu sync.Mutex
	assigned int32 // guarded by appendMu; the newest epoch that the log knows

	mu      sync.Mutex
	core    Core      // guarded by mu
	waiters []*Waiter // guarded by mu
	waiting atomic.Int32

	hw    atomic.Int64          // core's, for readers
	epoch atomic.Int32          // core's, for readers
	gone  atomic.Pointer[error] // why it is served here no more

	ready    atomic.Bool // the log is open: it can be served
	failed   atomic.Bool // the log cannot be opened
	leading  atomic.Bool // a worker takes the archive over, see lead.go
	resuming atomic.Bool // waits for the archive, see lead.go

	restarting atomic.Bool // the log is being replaced, see restart

	queued       atomic.Bool // in Manager.leader
	flushing     atomic.Bool // in Manager.flusher
	leadFailures atomic.Int32
	dirty        atomic.Bool  // appended to since the backlog was counted
	backlog      atomic.Int64 // bytes not archived yet, as counted last
}

func (p *Partition) Topic() string            { return p.name }
func (p *Partition) ID() manifest.PartitionID { return p.id }
func (p *Partition) LeaderEpoch() int32       { return p.epoch.Load() }
func (p *Partition) Log() *localseg.Log       { return p.log }

// Metadata is the topic's record. It is another pointer when something in it, or in the configuration it inherits, has changed.
func (p *Partition) Metadata() *meta.Topic { return p.topic.Load() }

// Archive is the partition's archive; nil: not tiered, or not reached yet since the start.
func (p *Partition) Archive() *tier.Partition { return p.archive.Load() }

// Tiered says that the topic is configured to be archived.
func (p *Partition) Tiered() bool { return p.tiered.Load() }

// CheckEpoch compares a client's current leader epoch (-1: none) with ours: ErrFencedEpoch, ErrUnknownEpoch.
func (p *Partition) CheckEpoch(current int32) error {
	if current == -1 {
		return p.stopped()
	}
	if err := p.stopped(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.CheckEpoch(current)
}

// stopped is why the partition is served here no more, or nil.
func (p *Partition) stopped() error {
	if err := p.gone.Load(); err != nil {
		return *err
	}
	if p.restarting.Load() {
		return ErrNotAvailable
	}
	return nil
}

// Append writes batches that record.Validate has passed. It returns when they are in the leader's log; WaitCommitted tells when
// acks=all holds.
func (p *Partition) Append(batches []record.Batch, from localseg.Origin, acksAll bool) (localseg.Appended, error) {
	if err := p.m.room(p); err != nil {
		return localseg.Appended{}, err
	}
	p.appendMu.Lock()
	done, moved, err := p.append(batches, from)
	p.appendMu.Unlock()
	if moved {
		p.wakeAll()
	}
	if err != nil || done.Duplicate {
		return done, err
	}
	p.grown(batches)
	return done, nil
}

// append is Append with appendMu held.
func (p *Partition) append(batches []record.Batch, from localseg.Origin) (localseg.Appended, bool, error) {
	if err := p.stopped(); err != nil {
		return localseg.Appended{}, false, err
	}
	epoch := p.epoch.Load()
	if p.assigned != epoch {
		if err := p.log.AssignEpoch(epoch); err != nil {
			return localseg.Appended{}, false, fmt.Errorf("assign epoch %d: %w", epoch, err)
		}
		p.assigned = epoch
	}
	done, err := p.log.Append(batches, epoch, from)
	if err != nil {
		return done, false, err
	}
	return done, p.step(Event{Kind: Appended, LEO: p.log.LEO()}).HWMoved, nil
}

// step applies an event to the core and publishes what readers look at.
func (p *Partition) step(e Event) Effect {
	p.mu.Lock()
	eff := p.core.Step(e)
	p.hw.Store(p.core.hw)
	p.epoch.Store(p.core.epoch)
	p.mu.Unlock()
	return eff
}

// grown tells the others that the log has grown. Off the append lock; cheap.
func (p *Partition) grown(batches []record.Batch) {
	if !p.dirty.Load() {
		p.dirty.Store(true)
	}
	if !p.tiered.Load() {
		return
	}
	size := 0
	for _, b := range batches {
		size += len(b)
	}
	p.m.backlog.Add(int64(size))
	if a := p.archive.Load(); a != nil {
		a.Notify()
	} else {
		p.m.leader.add(p)
	}
}

// WaitCommitted blocks until the high watermark is above offset (acks=all) or ctx ends. With one replica it returns at once.
func (p *Partition) WaitCommitted(ctx context.Context, offset int64) error {
	if p.hw.Load() > offset {
		return nil
	}
	w := NewWaiter()
	p.AddWaiter(w)
	defer p.RemoveWaiter(w)
	for p.hw.Load() <= offset {
		if p.gone.Load() != nil {
			return ErrNotLeader
		}
		select {
		case <-w.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (p *Partition) HighWatermark() int64 { return p.hw.Load() }

// LastStable is the offset below which every transaction is decided: readers of committed records get no further.
func (p *Partition) LastStable() int64 { return min(p.hw.Load(), p.log.FirstUnstable()) }
func (p *Partition) LogStart() int64   { return p.log.LogStart() }
func (p *Partition) LEO() int64        { return p.log.LEO() }

// Committed implements tier.Source.
func (p *Partition) Committed() int64 { return p.LastStable() }

// SetLogStart raises the log start offset after the archive's retention; implements tier.Source.
func (p *Partition) SetLogStart(off int64) error {
	if off <= p.log.LogStart() {
		return nil
	}
	return p.log.SetLogStart(off)
}

// DeleteRecords raises the log start to off (-1: high watermark) and returns it.
func (p *Partition) DeleteRecords(off int64) (int64, error) {
	if err := p.stopped(); err != nil {
		return -1, err
	}
	hw := p.HighWatermark()
	if off == -1 {
		off = hw
	}
	if off < 0 || off > hw {
		return -1, fmt.Errorf("delete records before %d, high watermark %d: %w", off, hw, localseg.ErrOffsetOutOfRange)
	}
	if off > p.log.LogStart() {
		if err := p.log.SetLogStart(off); err != nil {
			return -1, fmt.Errorf("delete records before %d: %w", off, err)
		}
		if a := p.archive.Load(); a != nil {
			a.DeleteBefore(off)
		}
	}
	return p.log.LogStart(), nil
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch over the whole history; (-1, -1) for an epoch that is not known.
func (p *Partition) EndOffsetForEpoch(epoch int32) (int32, int64) {
	if epoch >= 0 && epoch == p.epoch.Load() {
		// Also before its first append, when the log has not been told of it.
		return epoch, p.log.LEO()
	}
	return p.log.EndOffset(epoch)
}

// leave ends serving: parked requests are woken and get err.
func (p *Partition) leave(err error) {
	p.gone.CompareAndSwap(nil, &err)
	p.step(Event{Kind: Resigned})
	p.wakeAll()
}

// stop ends serving and archiving.
func (p *Partition) stop(err error) {
	p.leave(err)
	if a := p.archive.Load(); a != nil {
		a.Resign()
	}
}

// closedMeans turns an error of a log that was closed under a reader into what the partition says of itself.
func (p *Partition) closedMeans(err error) error {
	if errors.Is(err, localseg.ErrClosed) {
		if gone := p.stopped(); gone != nil {
			return gone
		}
	}
	return err
}
