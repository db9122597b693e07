package group

import "container/heap"

// alarm is one deadline. It is moved later without touching the heap: most are session timeouts that each heartbeat puts off.
type alarm struct {
	due   int64 // ms; when it rings
	at    int64 // ms; its place in the heap, at most due
	index int   // in the heap; meaningful while set
	isSet bool
	ring  ring
	group *group
	id    string // member id, for member and pending alarms
}

type ring uint8

const (
	ringMember  ring = iota // a member's session
	ringPending             // a member id given out and not used
	ringJoin                // a rebalance waits no longer for members to join
	ringInitial             // the delay of a group's first rebalance
	ringSync                // members that have joined have not synced
)

// alarms is the heap of all that are set, earliest first.
type alarms []*alarm

func (h alarms) Len() int           { return len(h) }
func (h alarms) Less(i, j int) bool { return h[i].at < h[j].at }
func (h alarms) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index = i; h[j].index = j }
func (h *alarms) Push(x any)        { a := x.(*alarm); a.index = len(*h); *h = append(*h, a) }
func (h *alarms) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return a
}

// set makes a ring at due, whenever it was to ring before.
func (h *alarms) set(a *alarm, due int64) {
	a.due = due
	switch {
	case !a.isSet:
		a.at, a.isSet = due, true
		heap.Push(h, a)
	case due < a.at:
		a.at = due
		heap.Fix(h, a.index)
	}
}

func (h *alarms) cancel(a *alarm) {
	if a.isSet {
		heap.Remove(h, a.index)
		a.isSet = false
	}
}

// next is when the first may ring; it may turn out to have been put off.
func (h alarms) next() (int64, bool) {
	if len(h) == 0 {
		return 0, false
	}
	return h[0].at, true
}

// pop takes one that rings at now, nil if none does.
func (h *alarms) pop(now int64) *alarm {
	for len(*h) > 0 && (*h)[0].at <= now {
		a := (*h)[0]
		if a.due > now {
			a.at = a.due
			heap.Fix(h, 0)
			continue
		}
		heap.Pop(h)
		a.isSet = false
		return a
	}
	return nil
}
