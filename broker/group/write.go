package group

import (
	"context"
	"errors"
)

// writeBytes is about how much is written at once; a single append may be more.
const writeBytes = 1 << 20

// write writes what is queued until nothing is. The appends that gather while one waits for its commit go together into the next.
func (s *shard) write(ctx context.Context) {
	ctx, cancel, ok := s.begin(ctx)
	defer cancel()
	for ok {
		batch := s.nextWrite()
		if len(batch) == 0 {
			return
		}
		ok = s.writeOne(ctx, batch)
	}
}

// nextWrite takes the next appends; none ends the write.
func (s *shard) nextWrite() []Append {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < len(s.queue) && (n == 0 || size+s.queue[n].size() <= writeBytes) {
		size += s.queue[n].size()
		n++
	}
	batch := append([]Append(nil), s.queue[:n]...)
	s.queue = s.queue[n:]
	if len(s.queue) == 0 {
		s.queue = nil
	}
	if n == 0 {
		s.writing = false
	}
	return batch
}

// writeOne writes, waits for the commit and tells the core. Not ok if the shard is of no use any more: what its core believes may
// differ from what the log will have, since a record that was written but not seen committed may yet be committed.
func (s *shard) writeOne(ctx context.Context, batch []Append) (ok bool) {
	var records []Record
	for _, a := range batch {
		records = append(records, a.Records...)
	}
	base, err := s.log.Append(s.c.o.Wall.Ms(), records)
	if err == nil {
		err = s.log.WaitCommitted(ctx, base+int64(len(records))-1)
		if err != nil {
			s.abandon(ctx, err)
			return false
		}
	} else if errors.Is(err, ErrNotCoordinator) {
		s.abandon(ctx, err)
		return false
	}
	s.tell(batch, base, err)
	return true
}

func (s *shard) abandon(ctx context.Context, err error) {
	if errors.Is(err, ErrNotCoordinator) || ctx.Err() != nil {
		s.close(ErrNotCoordinator)
		return
	}
	s.c.o.Logger.Warn("outcome of a write of group state is unknown: loading again", "partition", s.partition, "epoch", s.epoch, "err", err)
	s.close(ErrNotCoordinator)
	s.c.reload(s)
}

// tell says to the core that the appends are committed, from offset base on, or that err kept all of them out.
func (s *shard) tell(batch []Append, base int64, err error) {
	if err != nil {
		s.c.o.Logger.Warn("write group state", "partition", s.partition, "epoch", s.epoch, "err", err)
		if !errors.Is(err, ErrRecordTooLarge) {
			err = ErrNotAvailable
		}
	}
	_ = s.step(func(core *Core, now int64, out []Effect) []Effect {
		for _, a := range batch {
			s.queued -= a.size()
			out = core.Appended(now, a.Ref, base, err, out)
			base += int64(len(a.Records))
		}
		return out
	}) // a closed shard has answered already
}
