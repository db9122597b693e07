package main

import (
	"slices"
	"sync"
	"time"
)

// hist keeps every latency, in microseconds: exact quantiles, four bytes a record.
type hist struct {
	mu sync.Mutex
	us []uint32
}

func newHist() *hist { return &hist{us: make([]uint32, 0, 1<<16)} }

func (h *hist) add(d time.Duration) {
	us := uint32(min(max(d.Microseconds(), 1), 1<<32-1))
	h.mu.Lock()
	h.us = append(h.us, us)
	h.mu.Unlock()
}

func (h *hist) count() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return int64(len(h.us))
}

func (h *hist) out() map[string]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.us) == 0 {
		return nil
	}
	slices.Sort(h.us)
	var sum float64
	for _, v := range h.us {
		sum += float64(v)
	}
	at := func(q float64) float64 { return float64(h.us[min(int(q/100*float64(len(h.us))), len(h.us)-1)]) / 1000 }
	return map[string]any{"n": len(h.us), "mean_ms": r3(sum / float64(len(h.us)) / 1000), "min_ms": at(0),
		"p50_ms": at(50), "p90_ms": at(90), "p99_ms": at(99), "p999_ms": at(99.9), "max_ms": at(100)}
}
