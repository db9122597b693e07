package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/tier"
)

// Pointers lets the archive engine commit to the metadata store: one partition record holds leader epoch, pointer and pins, so that
// one guard covers all (PROTOCOLS 1.2, 3.3).
type Pointers struct{ Store *meta.Store }

var _ tier.Pointers = Pointers{}

// Load reads the record linearizably.
func (s Pointers) Load(ctx context.Context, id manifest.PartitionID) (tier.Pointer, error) {
	p, err := s.Store.GetPartition(ctx, id)
	if err != nil {
		return tier.Pointer{}, fmt.Errorf("partition record %s-%d: %w", id.Topic, id.Partition, err)
	}
	return s.pointer(p), nil
}

func (s Pointers) pointer(p *meta.Partition) tier.Pointer {
	out := tier.Pointer{
		Manifest: p.Pointer.Manifest, N: p.Pointer.N, Through: p.Pointer.Through, ThroughTime: p.Pointer.ThroughTime,
		LeaderEpoch: p.LeaderEpoch, Incarnation: s.Store.Image().Incarnation, Guard: p.ModRev, Undeleted: p.Undeleted,
	}
	for _, pin := range p.Pointer.Pins {
		out.Pins = append(out.Pins, tier.Pin{ID: pin.ID, Reason: pin.Reason})
	}
	return out
}

// Commit moves the pointer if nothing in the record has changed since old was read.
func (s Pointers) Commit(ctx context.Context, id manifest.PartitionID, old, next tier.Pointer) (tier.Pointer, error) {
	return s.commit(ctx, id, old, next, func(ctx context.Context, p *meta.Partition) (*meta.Partition, error) {
		p.Undeleted = false  // the manifest is newer than what a collection has left
		p.Recovering = false // who leads the archive has compared it with the log
		return s.Store.UpdatePartition(ctx, p)
	})
}

// CommitDeleted is Commit if the topic is deleted. Whoever commits then is not the leader of before, which leads again if the topic is brought
// back: what it has to compare it still has to.
func (s Pointers) CommitDeleted(ctx context.Context, id manifest.PartitionID, old, next tier.Pointer) (tier.Pointer, error) {
	return s.commit(ctx, id, old, next, s.Store.UpdateDeletedPartition)
}

// ElectDeleted gives a partition of a deleted topic the next leader epoch.
func (s Pointers) ElectDeleted(ctx context.Context, id manifest.PartitionID, old tier.Pointer) (tier.Pointer, error) {
	p, err := s.Store.GetPartition(ctx, id)
	if err != nil {
		return tier.Pointer{}, fmt.Errorf("partition record %s-%d: %w", id.Topic, id.Partition, err)
	}
	if p.ModRev != old.Guard {
		return tier.Pointer{}, tier.ErrConflict
	}
	p.LeaderEpoch++
	p.PartitionEpoch++
	stored, err := s.Store.ElectDeletedPartition(ctx, p)
	if errors.Is(err, meta.ErrConflict) {
		return tier.Pointer{}, fmt.Errorf("%w: %w", tier.ErrConflict, err)
	}
	if err != nil {
		return tier.Pointer{}, fmt.Errorf("raise the epoch of %s-%d: %w", id.Topic, id.Partition, err)
	}
	return s.pointer(stored), nil
}

type update func(context.Context, *meta.Partition) (*meta.Partition, error)

func (s Pointers) commit(ctx context.Context, id manifest.PartitionID, old, next tier.Pointer, write update) (tier.Pointer, error) {
	p := s.known(id, old.Guard)
	if p == nil {
		var err error
		if p, err = s.Store.GetPartition(ctx, id); err != nil {
			return tier.Pointer{}, fmt.Errorf("partition record %s-%d: %w", id.Topic, id.Partition, err)
		}
		if p.ModRev != old.Guard {
			return tier.Pointer{}, tier.ErrConflict
		}
	}
	changed := *p
	changed.Pointer = meta.Pointer{Manifest: next.Manifest, N: next.N, Through: next.Through, ThroughTime: next.ThroughTime, Pins: p.Pointer.Pins}
	stored, err := write(ctx, &changed)
	if errors.Is(err, meta.ErrConflict) {
		return tier.Pointer{}, fmt.Errorf("%w: %w", tier.ErrConflict, err)
	}
	if err != nil {
		return tier.Pointer{}, fmt.Errorf("move pointer of %s-%d: %w", id.Topic, id.Partition, err)
	}
	return s.pointer(stored), nil
}

// pointer is what the image says of p's archive.
func (m *Manager) pointer(p *Partition) tier.Pointer {
	if rec := m.record(p); rec != nil {
		return Pointers{m.store}.pointer(rec)
	}
	return tier.Pointer{}
}

// known is the record of that revision if the image has it, which spares a read: the guard of the write decides.
func (s Pointers) known(id manifest.PartitionID, rev int64) *meta.Partition {
	t := s.Store.Image().TopicsByID[id.Topic]
	if t == nil || int(id.Partition) >= len(t.Partitions) || t.Partitions[id.Partition].ModRev != rev {
		return nil
	}
	return t.Partitions[id.Partition]
}
