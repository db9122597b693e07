package group

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	refused     prometheus.Counter
	corrupt     prometheus.Counter
	loadSeconds prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, stats func() Stats) *metrics {
	m := &metrics{
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "group_requests_refused_total", Help: "Requests refused because too much waits for being written."}),
		corrupt: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "group_load_corrupt_records_total", Help: "Records of __consumer_offsets that could not be read."}),
		loadSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "group_load_seconds", Help: "Time to load a partition of __consumer_offsets.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}),
	}
	reg.MustRegister(m.refused, m.corrupt, m.loadSeconds)
	gauge := func(name, help string, v func(Stats) int) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(v(stats())) }))
	}
	gauge("group_groups_count", "Groups that this broker coordinates.", func(s Stats) int { return s.Groups })
	gauge("group_offsets_count", "Committed offsets that this broker keeps.", func(s Stats) int { return s.Offsets })
	counter := func(name, help string, v func(Stats) uint64) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(v(stats())) }))
	}
	counter("group_offset_commits_total", "Offsets committed.", func(s Stats) uint64 { return s.Commits })
	counter("group_rebalances_total", "Rebalances completed.", func(s Stats) uint64 { return s.Rebalances })
	counter("group_offsets_expired_total", "Offsets expired.", func(s Stats) uint64 { return s.Expired })
	return m
}

// stats sums what the shards have; counters of shards that were given up are lost, as when a process restarts.
func (c *Coordinator) stats() Stats {
	var sum Stats
	c.each(func(s *shard) {
		if s.enter() != nil {
			return
		}
		t := s.core.Stats()
		s.mu.Unlock()
		sum.Groups += t.Groups
		sum.Offsets += t.Offsets
		sum.Commits += t.Commits
		sum.Rebalances += t.Rebalances
		sum.Expired += t.Expired
	})
	return sum
}
