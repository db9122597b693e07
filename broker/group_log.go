package broker

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/varvelog/varve/broker/group"
	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/record"
)

// groupLog is a partition of __consumer_offsets as the coordinator wants it: records, not batches.
type groupLog struct {
	p     *replica.Partition
	epoch int32
	buf   []byte // of Read, which one loader calls
}

const (
	groupReadBytes  = 1 << 20   // read at once while loading
	groupBatchBytes = 512 << 10 // a batch is ended when it has as much
	groupBatchMax   = 64 << 20  // records of one batch, decompressed: a bound for what others wrote
)

func (l *groupLog) Bounds() (start, end int64) { return l.p.LogStart(), l.p.LEO() }

// Read reads hot or, where the local log does not reach back, from the archive.
func (l *groupLog) Read(ctx context.Context, off int64, f func(group.Entry)) (int64, error) {
	s, err := l.p.ReadHot(off, groupReadBytes, replica.ReadUncommitted)
	if errors.Is(err, localseg.ErrBelowLocal) {
		s, err = l.p.ReadCold(ctx, off, groupReadBytes, replica.ReadUncommitted)
	}
	if err != nil {
		return 0, notCoordinator(err)
	}
	defer s.Release()
	if len(s.Cold) > 0 {
		for _, part := range s.Cold {
			if err := eachEntry(part, off, f); err != nil {
				return 0, err
			}
		}
		return s.Next, nil
	}
	if int64(cap(l.buf)) < s.Hot.Size {
		l.buf = make([]byte, s.Hot.Size)
	}
	b := l.buf[:s.Hot.Size]
	if n, err := s.Hot.ReadAt(b, 0); n < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, fmt.Errorf("read %d bytes at offset %d: %w", len(b), off, err)
	}
	return s.Next, eachEntry(b, off, f)
}

// eachEntry walks batches, leaving out what is below off.
func eachEntry(b []byte, off int64, f func(group.Entry)) error {
	for len(b) > 0 {
		batch, rest, err := record.Next(b)
		if err == nil {
			err = batch.Check()
		}
		if err == nil {
			err = entriesOf(batch, off, f)
		}
		if err != nil {
			return fmt.Errorf("batch of %s: %w", offsetsTopic, err)
		}
		b = rest
	}
	return nil
}

func entriesOf(b record.Batch, off int64, f func(group.Entry)) error {
	producer := int64(-1)
	if b.Transactional() {
		producer = b.ProducerID()
	}
	if b.Control() {
		m, err := record.ParseMarker(b)
		if err != nil {
			return err
		}
		e := group.Entry{Offset: b.BaseOffset(), Producer: b.ProducerID(), Marker: group.AbortMarker}
		if m.Commit {
			e.Marker = group.CommitMarker
		}
		f(e)
		return nil
	}
	it := b.Records(groupBatchMax)
	defer it.Close()
	for it.Next() {
		if r := it.Record(); r.Offset >= off {
			f(group.Entry{Offset: r.Offset, Producer: producer, Record: group.Record{Key: r.Key, Value: r.Value}})
		}
	}
	return it.Err()
}

// Append writes the records in as few batches as fit.
func (l *groupLog) Append(nowMs int64, records []group.Record) (int64, error) {
	batches, err := groupBatches(nowMs, records)
	if err != nil {
		return 0, err
	}
	done, err := l.p.AppendIn(l.epoch, batches, localseg.OriginInternal)
	if err != nil {
		return 0, notCoordinator(err)
	}
	return done.First, nil
}

func groupBatches(nowMs int64, records []group.Record) ([]record.Batch, error) {
	var batches []record.Batch
	var recs []record.Record
	size := 0
	flush := func() error {
		if len(recs) == 0 {
			return nil
		}
		b, err := record.Build(nil, record.BatchOptions{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, recs)
		if err != nil {
			return fmt.Errorf("build batch of %s: %w", offsetsTopic, err)
		}
		batches, recs, size = append(batches, b), recs[:0], 0
		return nil
	}
	for _, r := range records {
		n := len(r.Key) + len(r.Value)
		if size > 0 && size+n > groupBatchBytes {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		recs = append(recs, record.Record{Offset: int64(len(recs)), Timestamp: nowMs, Key: r.Key, Value: r.Value})
		size += n
	}
	return batches, flush()
}

func (l *groupLog) WaitCommitted(ctx context.Context, off int64) error {
	if err := l.p.WaitCommitted(ctx, off, l.epoch); err != nil {
		return notCoordinator(err)
	}
	return nil
}

// notCoordinator turns errors that the coordinator must tell apart into its own.
func notCoordinator(err error) error {
	for _, lost := range []error{replica.ErrNotLeader, replica.ErrUnknownPartition, replica.ErrUnknownTopicID, localseg.ErrClosed} {
		if errors.Is(err, lost) {
			return fmt.Errorf("%w: %w", group.ErrNotCoordinator, err)
		}
	}
	if errors.Is(err, replica.ErrNotEnough) {
		return fmt.Errorf("%w: %w", group.ErrNotAvailable, err)
	}
	if errors.Is(err, localseg.ErrTooLarge) {
		return fmt.Errorf("%w: %w", group.ErrRecordTooLarge, err)
	}
	return err
}
