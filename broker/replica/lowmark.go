package replica

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/localseg"
)

// DeleteRecords raises the log start to off (-1: high watermark) and returns it. Followers take it over from the answers to their
// fetches: WaitDeleted.
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
		p.wakeTails()
	}
	return p.log.LogStart(), nil
}

// lowLook is how often one that waits looks whether a follower has died meanwhile.
const lowLook = 500 * time.Millisecond

// WaitDeleted waits until the log of each follower that lives or is in sync begins at off or later, too, so that the deletion survives
// any election, and returns the low watermark: the least log start. With ctx's error it is what has been reached; other errors say that
// it is not led here any more.
func (p *Partition) WaitDeleted(ctx context.Context, off int64) (int64, error) {
	w := NewWaiter()
	p.enlist(&p.lows, w)
	defer p.delist(&p.lows, w)
	look := time.NewTicker(lowLook)
	defer look.Stop()
	for {
		if err := p.stopped(); err != nil {
			return -1, err
		}
		low := p.low()
		if low >= off {
			return low, nil
		}
		select {
		case <-w.C:
		case <-look.C:
		case <-ctx.Done():
			return low, ctx.Err()
		}
	}
}

// low is the least log start among this broker, the followers in sync, which may be elected as soon as they are back, and the others that
// live; -1 while one has not told its own in this epoch.
func (p *Partition) low() int64 {
	img := p.m.store.Image()
	rec := p.m.record(p)
	low := p.log.LogStart()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.core.followers {
		f := &p.core.followers[i]
		// One in sync is waited for also if its log is offline: until it is out of the ISR it may be elected once it has started anew.
		if gone := !img.Alive(f.id) || rec != nil && slices.Contains(rec.Offline, f.id); gone && !f.inSync && !f.proposed {
			continue
		}
		low = min(low, f.logStart)
	}
	return low
}
