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
	remote  *tier.Follower // what a follower reads of the archive; nil: there is none

	// appendMu is held by the one that appends, retains, or makes the log begin elsewhere: a write into the page cache at most.
	appendMu sync.Mutex
	assigned int32     // guarded by appendMu; the newest epoch that the log knows
	outdated *outdated // guarded by appendMu; what is to be replaced from the archive; nil: nothing

	mu      sync.Mutex
	core    Core       // guarded by mu
	readers waiterList // of those that wait for the high watermark; guarded by mu
	tailers waiterList // of followers that wait for the log end; guarded by mu
	lows    waiterList // of those that wait for the followers' log starts; guarded by mu

	hw    atomic.Int64          // core's, for readers
	epoch atomic.Int32          // core's, for readers
	under atomic.Bool           // core's: fewer in-sync replicas than acks=all needs
	gone  atomic.Pointer[error] // why it is not led here

	throttledLeader, throttledFollower atomic.Bool // see quota.go

	following atomic.Bool // another broker leads; what is below the high watermark may be read here (KIP-392)

	former int32 // the epoch that a former process of this broker led in; -1: none
	// Owned by Manager.Start, then by Manager.Run's follow, or by the one that opens it.
	applied assignment // what the metadata said last

	ready    atomic.Bool           // the log is open: it can be served
	failed   atomic.Bool           // the log cannot be opened
	offline  atomic.Pointer[error] // why the log cannot be used, see offline.go
	leading  atomic.Bool           // a worker takes the archive over, see lead.go
	resuming atomic.Bool           // waits for the archive, see lead.go

	restarting atomic.Bool // the log is being replaced, see restart
	proven     atomic.Bool // the log is no older disk's, see unproven
	comparing  atomic.Bool // not served before the log is compared with the archive, see unproven

	hold     atomic.Pointer[hold] // appends wait, see handover.go; nil: they do not
	ledUntil atomic.Int64         // when it was last led here, by Manager.nowMs; 0: never

	queued       atomic.Bool // in Manager.leader
	proposing    atomic.Bool // in Manager.isr
	seeding      atomic.Bool // its log is to be started from the archive, or is being started
	seedQueued   atomic.Bool // in Manager.seeder
	flushing     atomic.Bool // in Manager.flusher
	reporting    atomic.Bool // in Manager.offliner
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

// CheckEpoch compares a client's current leader epoch (-1: none) with ours: ErrNotLeader, ErrFencedEpoch, ErrUnknownEpoch.
func (p *Partition) CheckEpoch(current int32) error {
	if current == -1 {
		return p.stopped()
	}
	if err := p.stopped(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.CheckEpoch(current, false)
}

// CheckReplicaEpoch is CheckEpoch for what a follower may answer, too.
func (p *Partition) CheckReplicaEpoch(current int32) error {
	if err := p.unreadable(); err != nil || current == -1 {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.CheckEpoch(current, true)
}

// Leading says whether it is led here.
func (p *Partition) Leading() bool { return p.gone.Load() == nil }

// unreadable is why not even what is below the high watermark may be read here, or nil.
func (p *Partition) unreadable() error {
	if err := p.Offline(); err != nil {
		return err
	}
	if p.following.Load() && !p.restarting.Load() {
		return nil
	}
	return p.stopped()
}

// stopped is why the partition is not led here, or cannot be used, or nil.
func (p *Partition) stopped() error {
	if err := p.gone.Load(); err != nil {
		return *err
	}
	if err := p.Offline(); err != nil {
		return err
	}
	if p.restarting.Load() || p.comparing.Load() {
		return ErrNotAvailable
	}
	return nil
}

// Append writes batches that record.Validate has passed. It returns when they are in the leader's log; WaitCommitted tells when
// acks=all holds. With acksAll it is ErrNotEnough where that could not hold now. It waits a moment where another broker is about to lead.
func (p *Partition) Append(batches []record.Batch, from localseg.Origin, acksAll bool) (localseg.Appended, error) {
	return p.appendIn(anyEpoch, batches, from, acksAll)
}

// AppendIn is Append with acksAll, of what rests on this leader epoch: in another one nothing is written, and it is ErrNotLeader. Who looks
// at the epoch first and appends then may find, when an append has waited, that the next one has begun meanwhile.
func (p *Partition) AppendIn(epoch int32, batches []record.Batch, from localseg.Origin) (localseg.Appended, error) {
	return p.appendIn(epoch, batches, from, true)
}

const anyEpoch = -1

func (p *Partition) appendIn(epoch int32, batches []record.Batch, from localseg.Origin, acksAll bool) (localseg.Appended, error) {
	if h := p.hold.Load(); h != nil {
		h.wait()
	}
	if err := p.m.room(p); err != nil {
		return localseg.Appended{}, err
	}
	if acksAll && p.under.Load() {
		if err := p.stopped(); err != nil {
			return localseg.Appended{}, err
		}
		return localseg.Appended{}, ErrNotEnough
	}
	p.appendMu.Lock()
	done, moved, err := p.append(epoch, batches, from)
	p.appendMu.Unlock()
	if moved {
		p.wakeAll()
	}
	if err != nil || done.Duplicate {
		return done, err
	}
	p.wakeTails()
	p.grown(batches)
	return done, nil
}

// append is appendIn with appendMu held.
func (p *Partition) append(in int32, batches []record.Batch, from localseg.Origin) (localseg.Appended, bool, error) {
	if err := p.stopped(); err != nil {
		return localseg.Appended{}, false, err
	}
	epoch := p.epoch.Load()
	if in != anyEpoch && in != epoch {
		return localseg.Appended{}, false, fmt.Errorf("append in epoch %d, now %d: %w", in, epoch, ErrNotLeader)
	}
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
	leo := p.log.LEO()
	p.mu.Lock()
	moved := p.core.appended(leo)
	p.hw.Store(p.core.hw)
	p.mu.Unlock()
	return done, moved, nil
}

// step applies an event to the core and publishes what readers look at.
func (p *Partition) step(e Event) Effect {
	p.mu.Lock()
	eff := p.core.Step(e)
	p.hw.Store(p.core.hw)
	p.epoch.Store(p.core.epoch)
	p.under.Store(p.core.role == leading && p.core.under())
	p.mu.Unlock()
	return eff
}

// do is step, and what follows from it. Not with appendMu held.
func (p *Partition) do(e Event) Effect {
	eff := p.step(e)
	p.follows(eff)
	return eff
}

// follows does what an effect asks for. Not with appendMu held.
func (p *Partition) follows(eff Effect) {
	if eff.HWMoved || eff.Stopped || eff.Under {
		p.wakeAll()
	}
	if eff.Stopped {
		p.wakeTails()
	}
	if eff.HWMoved {
		if a := p.archive.Load(); a != nil {
			a.Notify()
		}
	}
	if eff.Propose != nil {
		p.m.isr.add(p)
	}
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

// CommittedIn says whether what was appended at offset in this leader epoch is replicated as acks=all demands. An error says that it
// will not be here: ErrNotLeader, ErrNotEnoughAfter, ErrUnknownPartition, localseg.ErrOffline. The epoch counts because a broker that lost the leadership
// and has it again may have another record at that offset.
func (p *Partition) CommittedIn(offset int64, epoch int32) (bool, error) {
	hw := p.hw.Load() // before the epoch, which only rises: it is of that epoch then
	under := p.under.Load()
	switch {
	case p.epoch.Load() != epoch:
		return false, ErrNotLeader
	case under:
		return false, ErrNotEnoughAfter
	case hw > offset:
		return true, nil
	}
	if gone := p.gone.Load(); gone != nil {
		return false, ErrNotLeader
	}
	return false, p.Offline()
}

// WaitCommitted blocks until what was appended at offset in this leader epoch is committed (acks=all) or ctx ends. With one replica it
// returns at once.
func (p *Partition) WaitCommitted(ctx context.Context, offset int64, epoch int32) error {
	if ok, err := p.CommittedIn(offset, epoch); ok || err != nil {
		return err
	}
	w := NewWaiter()
	p.AddWaiter(w)
	defer p.RemoveWaiter(w)
	for {
		if ok, err := p.CommittedIn(offset, epoch); ok || err != nil {
			return err
		}
		select {
		case <-w.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
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

// EndOffsetForEpoch answers OffsetForLeaderEpoch over the whole history; (-1, -1) for an epoch that is not known. The current epoch
// counts from the election on, also before its first append, when the log has not been told of it.
func (p *Partition) EndOffsetForEpoch(epoch int32) (int32, int64) {
	p.mu.Lock()
	leads, current, start := p.core.role == leading, p.core.epoch, p.core.epochStart
	p.mu.Unlock()
	if epoch >= 0 && epoch == current {
		return epoch, p.log.LEO()
	}
	found, end := p.log.EndOffset(epoch)
	if found >= 0 || epoch < 0 || epoch > current || !leads {
		return found, end
	}
	// An epoch between the last one with records and ours.
	return epochEnd(append(p.log.Epochs(), record.Epoch{Epoch: current, Start: start}), p.log.LEO(), epoch)
}

// leave ends serving: parked requests are woken and get err.
func (p *Partition) leave(err error) {
	p.gone.Store(&err)
	p.following.Store(false)
	p.step(Event{Kind: Resigned})
	p.letGo()
	p.wakeAll()
	p.wakeTails()
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
