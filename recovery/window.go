package recovery

import (
	"math"
	"strconv"
)

// defaultWindowMs is archive.restore.window.ms where neither topic nor broker says anything.
const defaultWindowMs = 7 * 24 * 60 * 60 * 1000

// windowKey is the topic configuration that says how far back a restore can go.
const windowKey = "archive.restore.window.ms"

// Window is the range of times, ms, both ends included, as of which something can be restored.
type Window struct {
	From, To int64
}

// Empty: there is nothing to restore.
func (w Window) Empty() bool { return w.From > w.To }

// Contains reports whether the time is inside.
func (w Window) Contains(ms int64) bool { return w.From <= ms && ms <= w.To }

// WindowOf is the window of topics. It begins where the oldest of them has its first archived record, or was created if
// there is none, but no further back than the restore window of each, by the store's clock: what has died before that may
// be deleted. It ends where the archive is complete.
func (inv *Inventory) WindowOf(topics []*Topic) Window {
	w := Window{math.MaxInt64, inv.Through(topics)}
	floor := int64(math.MinInt64)
	for _, t := range topics {
		w.From = min(w.From, t.begins())
		floor = max(floor, inv.Now-inv.windowMs(t))
	}
	w.From = max(w.From, floor)
	return w
}

// begins is when the topic had its first record that may be restored, or its creation. A topic that was itself restored
// has records older than it is here.
func (t *Topic) begins() int64 {
	first := int64(math.MaxInt64)
	for _, p := range t.Partitions {
		if ms, ok := p.FirstAppend(); ok {
			first = min(first, ms)
		}
	}
	if first == math.MaxInt64 {
		return t.Created()
	}
	return max(first, t.Created())
}

// windowMs is the topic's restore window, else the brokers' default, else varve's own.
func (inv *Inventory) windowMs(t *Topic) int64 {
	if v, err := strconv.ParseInt(t.Last().Configs[windowKey], 10, 64); err == nil && v > 0 {
		return v
	}
	ms := int64(0)
	for _, m := range inv.Marks {
		ms = max(ms, m.WindowMs)
	}
	if ms == 0 {
		ms = defaultWindowMs
	}
	return ms
}

// Through is the time up to which everything that was appended is in the archive: the earliest of the brokers' marks.
// Where no broker has left one, the newest record of the topics is taken: all before it may or may not be whole. One that cannot be read
// may be the earliest: then it is no time at all.
func (inv *Inventory) Through(topics []*Topic) int64 {
	if len(inv.unread) > 0 {
		return math.MinInt64
	}
	through := int64(math.MaxInt64)
	for _, m := range inv.Marks {
		through = min(through, m.TimeMs)
	}
	if len(inv.Marks) > 0 {
		return through
	}
	through = math.MinInt64
	for _, t := range topics {
		for _, p := range t.Partitions {
			if p.Tip != nil {
				through = max(through, p.Tip.ThroughTime)
			}
		}
	}
	return through
}
