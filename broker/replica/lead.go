package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/tier"
)

// leaders is how many archives are taken over at once: readiness does not wait for them, the store must not be flooded.
const leaders = 8

// lead takes over the archives of partitions in the queue until ctx ends. What fails is tried again, later and later.
func (m *Manager) lead(ctx context.Context) {
	for {
		p := m.leader.next(ctx)
		if p == nil {
			return
		}
		if p.archive.Load() != nil || !p.Leading() {
			continue
		}
		if !p.leading.CompareAndSwap(false, true) {
			// Another worker is at it, and what was announced meanwhile may be a newer epoch. Two at once would make two leaders of one
			// epoch in the archive, of which one would go on unknown.
			time.AfterFunc(firstLeadPause, func() { m.leader.add(p) })
			continue
		}
		err := m.leadOne(ctx, p)
		p.leading.Store(false)
		if err == nil {
			p.leadFailures.Store(0)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		m.metrics.leadFailures.Inc()
		if errors.Is(err, tier.ErrFenced) {
			m.o.Logger.Error("archive has a newer leader", "topic", p.name, "partition", p.id.Partition, "epoch", p.LeaderEpoch(), "err", err)
			continue // for good; an election of ours starts anew
		}
		n := p.leadFailures.Add(1)
		pause := min(firstLeadPause<<min(n-1, 10), maxLeadPause)
		m.o.Logger.Warn("lead archive", "topic", p.name, "partition", p.id.Partition, "epoch", p.LeaderEpoch(), "retry", pause, "err", err)
		time.AfterFunc(pause, func() { m.leader.add(p) })
	}
}

const (
	firstLeadPause = 200 * time.Millisecond
	maxLeadPause   = 30 * time.Second
)

// leadOne reads the pointer and its manifest and starts archiving. Where the archive has what the log has not, the log starts from the
// archive (PROTOCOLS 1.6).
func (m *Manager) leadOne(ctx context.Context, p *Partition) error {
	epoch := p.LeaderEpoch()
	_, tcfg := m.o.TopicConfig(p.topic.Load())
	a, err := m.tiers.Lead(ctx, p.id, epoch, p, tcfg)
	if d, ok := errors.AsType[*tier.DivergedError](err); ok {
		if err := m.restart(ctx, p, restartWhy{epoch, d.Reason}); err != nil {
			return err
		}
		a, err = m.tiers.Lead(ctx, p.id, epoch, p, tcfg)
	}
	if err != nil {
		return err
	}
	p.archive.Store(a)
	if p.LeaderEpoch() != epoch || !p.Leading() || p.restarting.Load() { // after the store: who changes that takes what is there by then
		p.archive.CompareAndSwap(a, nil)
		a.Resign()
		return nil // a newer epoch is in the queue, or nothing is to be led
	}
	p.compared(epoch)
	if p.resuming.Load() {
		p.resuming.Store(false)
		p.ready.Store(true)
		m.announce()
	}
	p.wakeAll() // who waits for archived records
	a.Notify()
	return nil
}

// compared lets p be served by a leader that was elected uncleanly, if it still is in that epoch.
func (p *Partition) compared(epoch int32) {
	p.appendMu.Lock()
	now := p.LeaderEpoch() == epoch
	if now {
		p.proven.Store(true)
	}
	done := now && p.comparing.Swap(false)
	p.appendMu.Unlock()
	if done {
		p.m.announce()
	}
}

// restartWhy says in which epoch a log is to be replaced, and why.
type restartWhy struct {
	epoch  int32
	reason string
}

// restart makes the log begin where the archive ends, with the archive's epochs and producer states. Until it is done nothing is read
// or written. The order matters: a crash in between leaves a log that ends below the archive, so that the next start does it again; a
// log that began at its end without the log start would have the archive's retention take everything below for deleted.
//  1. nothing is served
//  2. empty the log down to its own log start: a DeleteRecords that the archive has not heard of yet was answered
//  3. start it at archived-through, log start and history included, in one step
func (m *Manager) restart(ctx context.Context, p *Partition, why restartWhy) error {
	st, err := m.tiers.StartState(ctx, p.id)
	if err != nil {
		return fmt.Errorf("read the end of the archive: %w", err)
	}
	p.appendMu.Lock()
	defer p.appendMu.Unlock()
	if !p.Leading() || p.LeaderEpoch() != why.epoch {
		return nil // not ours to replace any more
	}
	m.o.Logger.Warn("log starts from the archive", "topic", p.name, "partition", p.id.Partition, "epoch", p.LeaderEpoch(),
		"offset", st.Through, "was", p.log.LEO(), "reason", why.reason)
	return p.startAt(st)
}

// startAt does restart's steps. With appendMu held.
func (p *Partition) startAt(st tier.StartState) error {
	p.restarting.Store(true) // and it stays so if this fails half-way: what the log holds is not known then
	start := min(p.log.LogStart(), st.Through)
	if p.log.SizeBytes() > 0 || p.log.LEO() != start {
		if err := p.log.TruncateFully(start); err != nil {
			return fmt.Errorf("empty the log: %w", err)
		}
	}
	if err := p.log.StartAt(max(start, st.LogStart), st.Through, st.Epochs, st.Producers, st.LastAppend); err != nil {
		return fmt.Errorf("start the log at %d: %w", st.Through, err)
	}
	p.assigned = -1
	p.step(Event{Kind: Restarted, LEO: p.log.LEO()})
	p.restarting.Store(false)
	return nil
}
