package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// view is what a read is measured against, taken once so that an answer does not contradict itself.
type view struct {
	hw, lso, start int64
}

func (p *Partition) view() view {
	hw := p.hw.Load()
	return view{hw: hw, lso: min(hw, p.log.FirstUnstable()), start: p.log.LogStart()}
}

// end is the offset below which a reader of this isolation may read.
func (v view) end(iso Isolation) int64 {
	if iso == ReadCommitted {
		return v.lso
	}
	return v.hw
}

func (v view) slice(off int64) Slice {
	return Slice{Base: off, Next: off, HighWatermark: v.hw, LastStable: v.lso, LogStart: v.start}
}

// ReadHot reads from the local log without blocking; localseg.ErrBelowLocal says: use ReadCold. An empty Slice at the end.
func (p *Partition) ReadHot(off int64, max int, iso Isolation) (Slice, error) {
	if err := p.stopped(); err != nil {
		return Slice{}, err
	}
	return p.readHot(off, max, iso)
}

// ReadFollower is ReadHot where this broker may be a follower, too (KIP-392).
func (p *Partition) ReadFollower(off int64, max int, iso Isolation) (Slice, error) {
	if err := p.unreadable(); err != nil {
		return Slice{}, err
	}
	return p.readHot(off, max, iso)
}

// ReadReplica reads for a follower: up to the log's end, whatever is committed; nothing while the follower is throttled. ErrInArchive where
// only the archive has the offset. ErrFencedEpoch or ErrNotLeader where the leader epoch is not epoch (-1: whatever it is): a fetch that has
// waited may find another log, with which the follower's was not compared, and then it must not hear of that one's high watermark either
// (PROTOCOLS 7.4).
func (p *Partition) ReadReplica(follower, epoch int32, off int64, max int) (Slice, error) {
	s, err := p.readReplica(follower, off, max)
	if err != nil {
		return Slice{}, err
	}
	if err := p.begun(epoch); err != nil { // after the reading: epochs only rise
		s.Release()
		return Slice{}, err
	}
	return s, nil
}

func (p *Partition) readReplica(follower int32, off int64, max int) (Slice, error) {
	if err := p.stopped(); err != nil {
		return Slice{}, err
	}
	v := p.view()
	if err := p.inRange(off, v); err != nil {
		return Slice{}, err
	}
	s := v.slice(off)
	leo := p.log.LEO()
	if off >= leo || !p.serves(follower) {
		return s, nil
	}
	span, err := p.log.Read(off, leo, max)
	if errors.Is(err, localseg.ErrBelowLocal) {
		return Slice{}, fmt.Errorf("offset %d, local log from %d: %w", off, p.log.LocalStart(), ErrInArchive)
	}
	if err != nil {
		return Slice{}, p.closedMeans(err)
	}
	if span.Size == 0 {
		span.Release()
		return s, nil
	}
	if s.Appended, err = p.log.AppendTimes(span.Base, span.Next); err != nil {
		span.Release()
		return Slice{}, p.closedMeans(err)
	}
	s.Hot, s.Size, s.Base, s.Next = span, int(span.Size), span.Base, span.Next
	return s, nil
}

func (p *Partition) readHot(off int64, max int, iso Isolation) (Slice, error) {
	v := p.view()
	if err := p.inRange(off, v); err != nil {
		return Slice{}, err
	}
	s := v.slice(off)
	if iso == ReadCommitted {
		s.Aborted = noAborted
	}
	end := v.end(iso)
	if off >= end {
		return s, nil
	}
	span, err := p.log.Read(off, end, max)
	if err != nil {
		return Slice{}, p.closedMeans(err)
	}
	s.Hot, s.Size = span, int(span.Size)
	if span.Size == 0 {
		span.Release()
		s.Hot = localseg.Span{}
		return s, nil
	}
	s.Base, s.Next = span.Base, span.Next
	if iso == ReadCommitted {
		aborted, err := p.log.Aborted(off, span.Next)
		if err != nil {
			s.Release()
			return Slice{}, p.closedMeans(err)
		}
		if len(aborted) > 0 {
			s.Aborted = aborted
		}
	}
	return s, nil
}

// noAborted says: asked for, and there are none.
var noAborted = []record.AbortedTxn{}

// inRange refuses offsets that are not in [log start, LEO]. Between high watermark and LEO there is just nothing to read yet.
func (p *Partition) inRange(off int64, v view) error {
	if leo := p.log.LEO(); off < v.start || off > leo {
		return fmt.Errorf("offset %d, log [%d, %d): %w", off, v.start, leo, localseg.ErrOffsetOutOfRange)
	}
	return nil
}

// coldSource is where archived records are read: the archive that this broker leads, or a reader of what another one commits.
type coldSource interface {
	Read(ctx context.Context, off int64, max int) (tier.Data, error)
	Aborted(ctx context.Context, from, to int64) ([]record.AbortedTxn, error)
}

func (p *Partition) coldSource() coldSource {
	if !p.Leading() {
		if p.remote != nil {
			return p.remote
		}
	} else if a := p.archive.Load(); a != nil {
		return a
	}
	return nil
}

// ReadCold reads from the archive; it may wait for the object store until ctx ends. A follower reads there, too, as far as its own high
// watermark (KIP-392, 405). An error of the archive is ErrArchive, one of ctx is ctx's.
func (p *Partition) ReadCold(ctx context.Context, off int64, max int, iso Isolation) (Slice, error) {
	if err := p.unreadable(); err != nil {
		return Slice{}, err
	}
	v := p.view()
	if err := p.inRange(off, v); err != nil {
		return Slice{}, err
	}
	a := p.coldSource()
	if a == nil {
		return Slice{}, fmt.Errorf("offset %d is in the archive, which is not reached yet: %w", off, ErrArchive)
	}
	data, err := a.Read(ctx, off, max)
	if err != nil {
		return Slice{}, p.coldError(ctx, off, err)
	}
	s := v.slice(off)
	s.release = data.Release
	s.Cold, s.Base, s.Next = data.Parts, data.Base, data.Next
	if end := v.end(iso); s.Next > end {
		if err := s.cutCold(off, end); err != nil {
			s.Release()
			return Slice{}, p.coldError(ctx, off, err)
		}
	}
	for _, part := range s.Cold {
		s.Size += len(part)
	}
	if iso == ReadCommitted {
		if s.Aborted, err = p.aborted(ctx, a, off, s.Next); err != nil {
			s.Release()
			return Slice{}, p.coldError(ctx, off, err)
		}
	}
	return s, nil
}

// cutCold leaves out the archived batches that reach beyond end: the archive has what the leader had committed, of which a follower may
// not have heard yet, and no reader may see more than the high watermark that it is told.
func (s *Slice) cutCold(off, end int64) error {
	parts := s.Cold
	s.Cold, s.Next = nil, off
	for _, part := range parts {
		n := 0
		for rest := part; len(rest) > 0; {
			b, after, err := record.Next(rest)
			if err != nil {
				return err
			}
			if b.NextOffset() > end {
				if n > 0 {
					s.Cold = append(s.Cold, part[:n])
				}
				return nil
			}
			n += len(b)
			s.Next, rest = b.NextOffset(), after
		}
		s.Cold = append(s.Cold, part)
	}
	return nil
}

// coldError says what a failed read of the archive means: that the offset is gone meanwhile (BUG-085), that time is up, or ErrArchive.
func (p *Partition) coldError(ctx context.Context, off int64, err error) error {
	if start := p.log.LogStart(); off < start {
		return fmt.Errorf("offset %d, log start %d: %w", off, start, localseg.ErrOffsetOutOfRange)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, ErrArchive) {
		return err
	}
	return fmt.Errorf("read offset %d of the archive: %w: %w", off, ErrArchive, err)
}

// aborted lists the aborted transactions that overlap [from, to) of the archive. The marker, and with it the entry, may be in a later
// segment than the data, archived or still local only: both are asked (BUG-002).
func (p *Partition) aborted(ctx context.Context, a coldSource, from, to int64) ([]record.AbortedTxn, error) {
	cold, err := a.Aborted(ctx, from, to)
	if err != nil {
		return nil, err
	}
	hot, err := p.log.Aborted(from, to)
	if err != nil {
		return nil, err
	}
	all := append(append(noAborted, cold...), hot...)
	slices.SortFunc(all, func(a, b record.AbortedTxn) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.ProducerID, b.ProducerID))
	})
	return slices.CompactFunc(all, func(a, b record.AbortedTxn) bool { return a.First == b.First && a.ProducerID == b.ProducerID }), nil
}
