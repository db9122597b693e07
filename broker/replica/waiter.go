package replica

import "slices"

// Waiter is woken when something to read may have appeared on any partition it was added to, or a partition goes away.
type Waiter struct{ C chan struct{} } // buffered 1

// NewWaiter makes a waiter; it may be used again and again.
func NewWaiter() *Waiter { return &Waiter{C: make(chan struct{}, 1)} }

func (w *Waiter) wake() {
	select {
	case w.C <- struct{}{}:
	default: // it has been woken already
	}
}

// AddWaiter and RemoveWaiter: Add first, then read again, so that no append is missed.
func (p *Partition) AddWaiter(w *Waiter) {
	p.mu.Lock()
	p.waiters = append(p.waiters, w)
	p.waiting.Store(int32(len(p.waiters)))
	p.mu.Unlock()
}

// RemoveWaiter undoes one AddWaiter. A wake-up that was under way may still arrive.
func (p *Partition) RemoveWaiter(w *Waiter) {
	p.mu.Lock()
	if i := slices.Index(p.waiters, w); i >= 0 {
		last := len(p.waiters) - 1
		p.waiters[i], p.waiters[last] = p.waiters[last], nil
		p.waiters = p.waiters[:last]
	}
	p.waiting.Store(int32(len(p.waiters)))
	p.mu.Unlock()
}

// wakeAll wakes who waits. Never called with the append lock held: readers would only queue up behind it.
//
// No append is missed: a reader adds itself, then reads; the appender moves the high watermark, then looks for waiters. Whatever the
// order, either the reader sees the new watermark or the appender sees the reader.
func (p *Partition) wakeAll() {
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.waiters {
		w.wake()
	}
}
