package replica

import (
	"context"
	"sync"
	"sync/atomic"
)

// workQueue hands partitions to workers; each is in it at most once, so that it is bounded by their number.
type workQueue struct {
	queued func(*Partition) *atomic.Bool
	signal chan struct{} // buffered 1

	mu    sync.Mutex
	items []*Partition // guarded by mu
}

func (q *workQueue) init(queued func(*Partition) *atomic.Bool) {
	q.queued = queued
	q.signal = make(chan struct{}, 1)
}

// add appends p if it is not in the queue. Cheap, never blocks.
func (q *workQueue) add(p *Partition) { q.put(p, false) }

// addFirst puts p before the others.
func (q *workQueue) addFirst(p *Partition) { q.put(p, true) }

func (q *workQueue) put(p *Partition, first bool) {
	flag := q.queued(p)
	if flag.Load() || !flag.CompareAndSwap(false, true) {
		return
	}
	q.mu.Lock()
	if first {
		q.items = append([]*Partition{p}, q.items...)
	} else {
		q.items = append(q.items, p)
	}
	q.mu.Unlock()
	q.wake()
}

func (q *workQueue) wake() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// next waits for a partition; nil when ctx has ended. From then on it can be added again.
func (q *workQueue) next(ctx context.Context) *Partition {
	for {
		q.mu.Lock()
		if len(q.items) > 0 {
			p := q.items[0]
			q.items[0] = nil
			q.items = q.items[1:]
			more := len(q.items) > 0
			q.mu.Unlock()
			if more {
				q.wake() // one signal may stand for several additions
			}
			q.queued(p).Store(false)
			return p
		}
		q.mu.Unlock()
		select {
		case <-q.signal:
		case <-ctx.Done():
			return nil
		}
	}
}
