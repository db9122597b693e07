package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varvelog/varve/broker/replica"
)

// coldReads are the archive reads of a connection, one a partition. They outlive the Fetch that began them: what comes after max.wait
// is handed to the next Fetch at the same offset, so that a store slower than max.wait is slow, not stuck. Owned by the reader.
type coldReads map[*replica.Partition]*coldRead

const (
	// maxColdReads bounds the archive reads that a connection has under way.
	maxColdReads = 32
	// coldPatience is how long the archive is waited for, over however many Fetches; then the client is told.
	coldPatience = 30 * time.Second
)

// coldRead is one read of the archive.
type coldRead struct {
	offset int64
	iso    replica.Isolation
	cancel context.CancelFunc
	done   chan struct{} // closed when slice and err are there

	mu        sync.Mutex
	abandoned bool // guarded by mu; nobody will take the slice
	slice     replica.Slice
	err       error
}

// start begins to read, or finds the read that is under way already; nil if too many are.
func (rs *coldReads) start(f *fetchPart, iso replica.Isolation) *coldRead {
	if r := (*rs)[f.p]; r != nil {
		if r.offset == f.offset && r.iso == iso {
			return r
		}
		rs.forget(f.p)
	}
	if len(*rs) >= maxColdReads {
		return nil
	}
	if *rs == nil {
		*rs = coldReads{}
	}
	r := &coldRead{offset: f.offset, iso: iso, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), coldPatience)
	r.cancel = cancel
	(*rs)[f.p] = r
	p, limit := f.p, f.coldMax
	go func() {
		defer cancel()
		s, err := p.ReadCold(ctx, r.offset, limit, iso)
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer for %s: %w", coldPatience, replica.ErrArchive)
		}
		r.mu.Lock()
		if r.abandoned {
			s.Release()
		} else {
			r.slice, r.err = s, err
		}
		r.mu.Unlock()
		close(r.done)
	}()
	return r
}

// forget gives up the read of a partition; if it is finished its bytes go back at once, else when it ends.
func (rs coldReads) forget(p *replica.Partition) {
	r := rs[p]
	delete(rs, p)
	r.cancel()
	r.mu.Lock()
	r.abandoned = true
	r.slice.Release()
	r.mu.Unlock()
}

// drop gives up all of them.
func (rs coldReads) drop() {
	for p := range rs {
		rs.forget(p)
	}
}

// readCold reads from the archive what readHot has marked, all partitions at once, and takes what is there at the deadline.
func (c *conn) readCold(lim *fetchLimits) (size int) {
	parts := c.fetch.parts
	for i := range parts {
		if f := &parts[i]; f.coldMax > 0 {
			f.cold = c.fetch.cold.start(f, lim.iso)
		}
	}
	timer := time.NewTimer(time.Until(lim.deadline))
	defer timer.Stop()
	late := false
	first := true
	for i := range parts {
		f := &parts[i]
		if f.cold == nil {
			continue
		}
		if !late {
			select {
			case <-f.cold.done:
			case <-timer.C:
				late = true
			case <-c.ctx.Done():
				late = true
			}
		}
		select {
		case <-f.cold.done:
		default:
			continue // it goes on
		}
		f.takeCold(first)
		delete(c.fetch.cold, f.p)
		size += f.slice.Size
		first = first && f.slice.Size == 0
	}
	return size
}

// takeCold takes over a finished read. Only the first batch of all may be larger than the limits.
func (f *fetchPart) takeCold(first bool) {
	r := f.cold
	f.cold = nil
	switch {
	case r.err != nil:
		f.err = r.err
	case !first && r.slice.Size > f.coldMax:
		r.slice.Release()
		f.dropped = true
	default:
		f.slice, f.coldDone = r.slice, true
		// The read may have begun many Fetches ago: what the answer says of the log is what is so now, or the high watermark that
		// this client was told since would go back.
		f.slice.HighWatermark, f.slice.LastStable, f.slice.LogStart = f.p.HighWatermark(), f.p.LastStable(), f.p.LogStart()
	}
	r.slice = replica.Slice{}
}
