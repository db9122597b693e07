package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/record"
)

// errSeeding: the log is going to be started from the archive.
var errSeeding = errors.New("log starts from the archive")

// take applies what the leader says of a partition. Whatever it is, nothing happens if p is not followed in that epoch any more.
func (pl *pull) take(m *Manager, a *FetchedPart) error {
	switch {
	case errors.Is(a.Err, ErrInArchive):
		return pl.fromArchive(m, "the leader has only later records")
	case errors.Is(a.Err, localseg.ErrOffsetOutOfRange):
		return pl.outOfRange(m, a)
	case a.Err != nil:
		return a.Err
	case a.Diverging:
		return pl.diverged(m, a)
	case pl.p.log.LEO() == 0 && pl.archived(m) > 0 && pl.p.tiered.Load():
		return pl.fromArchive(m, "new replica") // it does not copy what the archive has
	}
	return pl.append(m, a)
}

// held runs f with the append lock, if p is still followed in this epoch.
func (pl *pull) held(f func(p *Partition) error) error {
	p := pl.p
	p.appendMu.Lock()
	defer p.appendMu.Unlock()
	if !p.following.Load() || p.epoch.Load() != pl.epoch || p.restarting.Load() {
		return nil
	}
	return f(p)
}

// append takes records, then the leader's high watermark (PROTOCOLS 7.4), then its log start.
func (pl *pull) append(m *Manager, a *FetchedPart) error {
	var moved bool
	err := pl.held(func(p *Partition) error {
		if err := pl.beginAt(m, a.Records); err != nil {
			return err
		}
		batches, err := pl.check(a.Records)
		if err != nil {
			return err
		}
		if len(batches) > 0 {
			if _, err := p.log.AppendReplica(batches, pl.epoch, a.Appended); err != nil {
				return fmt.Errorf("append at %d: %w", p.log.LEO(), err)
			}
			p.step(Event{Kind: Appended, LEO: p.log.LEO()})
			m.metrics.fetched.Add(float64(len(a.Records)))
			if pl.throttled(m) {
				m.throttles.follower.charge(len(a.Records))
			}
		}
		pl.caughtUp = a.HW <= p.log.LEO()
		moved = p.step(Event{Kind: Told, HW: a.HW}).HWMoved
		if start := min(a.LogStart, p.hw.Load()); start > p.log.LogStart() {
			if err := p.log.SetLogStart(start); err != nil {
				return fmt.Errorf("log start %d: %w", start, err)
			}
		}
		return nil
	})
	if moved {
		pl.p.wakeAll()
	}
	return err
}

// beginAt moves the beginning of an empty log back to that of the first batch: DeleteRecords may have put the leader's log start, where
// this log was told to begin, inside a batch, and batches come whole. The log start follows once the batch is there. With the append lock.
func (pl *pull) beginAt(m *Manager, records []byte) error {
	log := pl.p.log
	leo := log.LEO()
	if log.SizeBytes() > 0 || len(records) == 0 {
		return nil
	}
	b, _, err := record.Next(records)
	if err != nil || b.Check() != nil || b.BaseOffset() >= leo || b.LastOffset() < leo {
		return nil // check says what is wrong
	}
	m.o.Logger.Info("log starts anew", "topic", pl.p.name, "partition", pl.p.id.Partition, "epoch", pl.epoch, "offset", b.BaseOffset(), "was", leo)
	if err := log.TruncateFully(b.BaseOffset()); err != nil {
		return fmt.Errorf("start anew at %d: %w", b.BaseOffset(), err)
	}
	pl.p.step(Event{Kind: Restarted, LEO: log.LEO()})
	return nil
}

// check splits records into batches and checks each as a leader checks what clients send it: a flipped bit must not spread. A batch cut
// off at the end is left out, one of a later epoch than the leader's ends the answer.
func (pl *pull) check(records []byte) ([]record.Batch, error) {
	var batches []record.Batch
	for next := pl.p.log.LEO(); len(records) > 0; {
		b, rest, err := record.Next(records)
		if errors.Is(err, record.ErrShort) && len(batches) > 0 {
			break
		}
		if err == nil {
			err = b.Check()
		}
		if err != nil {
			return nil, fmt.Errorf("batch from the leader at %d: %w", next, err)
		}
		if b.LeaderEpoch() > pl.epoch {
			break
		}
		if b.BaseOffset() < next || b.LastOffset() < b.BaseOffset() {
			return nil, fmt.Errorf("batch from the leader is [%d, %d], log ends at %d: %w", b.BaseOffset(), b.LastOffset(), next, record.ErrCorrupt)
		}
		batches = append(batches, b)
		next, records = b.LastOffset()+1, rest
	}
	return batches, nil
}

// diverged cuts the log back; the next fetch asks with an older epoch, or from the common end. What the archive has is never cut batch by
// batch: there the archive wins, and the log starts from it (PROTOCOLS 1.6).
func (pl *pull) diverged(m *Manager, a *FetchedPart) error {
	log := pl.p.log
	to := truncateTo(log.Epochs(), log.LEO(), a.DivergingEpoch, a.DivergingEnd)
	if to < pl.archived(m) && pl.p.tiered.Load() {
		return pl.fromArchive(m, fmt.Sprintf("it diverges from the leader's at %d, which is archived", to))
	}
	return pl.truncate(m, to, fmt.Sprintf("the leader's epoch %d ends at %d", a.DivergingEpoch, a.DivergingEnd))
}

func (pl *pull) truncate(m *Manager, to int64, why string) error {
	return pl.held(func(p *Partition) error {
		leo, hw := p.log.LEO(), p.hw.Load()
		if to >= leo {
			return fmt.Errorf("%s, but our log ends at %d: %w", why, leo, record.ErrCorrupt)
		}
		level := m.o.Logger.Info
		if to < hw {
			level = m.o.Logger.Error // an unclean election, or a fault of ours
		}
		level("log truncated", "topic", p.name, "partition", p.id.Partition, "epoch", pl.epoch, "offset", to, "was", leo, "hw", hw, "why", why)
		m.metrics.truncations.Inc()
		if err := p.log.Truncate(max(to, 0)); err != nil {
			return fmt.Errorf("truncate to %d: %w", to, err)
		}
		p.step(Event{Kind: Truncated, LEO: p.log.LEO()})
		return nil
	})
}

// outOfRange: the leader's retention has passed our end, or its log ends before ours and it cannot tell by epochs.
func (pl *pull) outOfRange(m *Manager, a *FetchedPart) error {
	leo := pl.p.log.LEO()
	switch {
	case a.LogEnd >= 0 && a.LogEnd < leo:
		return pl.truncate(m, a.LogEnd, "the leader's log ends there")
	case a.LogStart <= leo:
		return a.Err
	case pl.p.tiered.Load() && pl.archived(m) > 0:
		return pl.fromArchive(m, "the leader's log starts after its end")
	}
	return pl.held(func(p *Partition) error {
		m.o.Logger.Info("log starts anew", "topic", p.name, "partition", p.id.Partition, "epoch", pl.epoch, "offset", a.LogStart, "was", leo)
		if err := p.log.TruncateFully(a.LogStart); err != nil {
			return fmt.Errorf("start anew at %d: %w", a.LogStart, err)
		}
		p.step(Event{Kind: Restarted, LEO: p.log.LEO()})
		return nil
	})
}

// archived is what the metadata says to be in the archive.
func (pl *pull) archived(m *Manager) int64 {
	if rec := m.record(pl.p); rec != nil {
		return rec.Pointer.Through
	}
	return 0
}

// fromArchive asks for the log to be replaced by one that begins where the archive ends. The lane stops fetching until that is done.
func (pl *pull) fromArchive(m *Manager, why string) error {
	if m.tiers == nil {
		return fmt.Errorf("%s, and archiving is off: %w", why, ErrArchive)
	}
	return pl.held(func(p *Partition) error {
		m.o.Logger.Info("log is to start from the archive", "topic", p.name, "partition", p.id.Partition, "epoch", pl.epoch, "why", why)
		p.outdated = &outdated{epoch: pl.epoch, leo: p.log.LEO()}
		return errSeeding
	})
}

// outdated is a log with which a leader can do nothing, as it was when the leader of that epoch said so.
type outdated struct {
	epoch int32
	leo   int64
}

// seeders is how many logs are started from the archive at once.
const seeders = 4

// reseed has p's log started from the archive. If that is under way already, that resumes p, which asks again if it must.
func (m *Manager) reseed(p *Partition) {
	if p.seeding.CompareAndSwap(false, true) {
		m.seeder.add(p)
	}
}

// seed starts logs from the archive until ctx ends.
func (m *Manager) seed(ctx context.Context) {
	for {
		p := m.seeder.next(ctx)
		if p == nil {
			return
		}
		if err := m.seedOne(ctx, p); err != nil && ctx.Err() == nil {
			m.o.Logger.Warn("start log from the archive", "topic", p.name, "partition", p.id.Partition, "err", err)
			if wait(ctx, m.o.FetchBackoff) != nil {
				return
			}
		}
		p.seeding.Store(false) // before it is resumed, and may ask again
		m.fetchers.resume(p)
	}
}

// seedOne may take as long as the object store does. It replaces no other log than the one that it was asked for: a follower that has
// caught up meanwhile is in sync, and what it has then may be nowhere else.
func (m *Manager) seedOne(ctx context.Context, p *Partition) error {
	p.appendMu.Lock()
	old := p.outdated
	p.outdated = nil
	p.appendMu.Unlock()
	if old == nil {
		return nil
	}
	st, err := m.tiers.StartState(ctx, p.id)
	if err != nil {
		return fmt.Errorf("read the end of the archive: %w", err)
	}
	p.appendMu.Lock()
	defer p.appendMu.Unlock()
	if !p.following.Load() || p.epoch.Load() != old.epoch || p.log.LEO() != old.leo || st.Through == 0 {
		return nil
	}
	if err := p.startAt(st); err != nil {
		return err
	}
	m.o.Logger.Info("log starts from the archive", "topic", p.name, "partition", p.id.Partition, "epoch", old.epoch, "offset", st.Through, "was", old.leo)
	return nil
}
