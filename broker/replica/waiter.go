package replica

import (
	"slices"
	"sync/atomic"
)

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

// waiterList is guarded by its partition's mu, but for n, which is its length.
type waiterList struct {
	list []*Waiter
	n    atomic.Int32
}

func (l *waiterList) add(w *Waiter) {
	l.list = append(l.list, w)
	l.n.Store(int32(len(l.list)))
}

func (l *waiterList) remove(w *Waiter) {
	if i := slices.Index(l.list, w); i >= 0 {
		last := len(l.list) - 1
		l.list[i], l.list[last] = l.list[last], nil
		l.list = l.list[:last]
	}
	l.n.Store(int32(len(l.list)))
}

func (p *Partition) enlist(l *waiterList, w *Waiter) {
	p.mu.Lock()
	l.add(w)
	p.mu.Unlock()
}

func (p *Partition) delist(l *waiterList, w *Waiter) {
	p.mu.Lock()
	l.remove(w)
	p.mu.Unlock()
}

// AddWaiter and RemoveWaiter: Add first, then read again, so that no move of the high watermark is missed.
func (p *Partition) AddWaiter(w *Waiter) { p.enlist(&p.readers, w) }

// RemoveWaiter undoes one AddWaiter. A wake-up that was under way may still arrive.
func (p *Partition) RemoveWaiter(w *Waiter) { p.delist(&p.readers, w) }

// AddTailWaiter and RemoveTailWaiter are the same for followers, which wait for the end of the log.
func (p *Partition) AddTailWaiter(w *Waiter) { p.enlist(&p.tailers, w) }

// RemoveTailWaiter undoes one AddTailWaiter.
func (p *Partition) RemoveTailWaiter(w *Waiter) { p.delist(&p.tailers, w) }

// wakeAll wakes who waits for the high watermark. Never called with the append lock held: readers would only queue up behind it.
//
// No append is missed: a reader adds itself, then reads; the appender moves the high watermark, then looks for waiters. Whatever the
// order, either the reader sees the new watermark or the appender sees the reader.
func (p *Partition) wakeAll() {
	p.wake(&p.readers)
	p.wake(&p.lows)
}

// wakeTails wakes the followers that wait for the log to grow.
func (p *Partition) wakeTails() { p.wake(&p.tailers) }

func (p *Partition) wake(l *waiterList) {
	if l.n.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range l.list {
		w.wake()
	}
}
