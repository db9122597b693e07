package cache

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	memoryHits, diskHits, joins, misses           prometheus.Counter
	memoryEvictions, diskEvictions                prometheus.Counter
	fillBytes, fillErrors, budgetWaits, refused   prometheus.Counter
	diskCorrupt, diskErrors                       prometheus.Counter
	fillSeconds                                   prometheus.Histogram
	memoryBytes, heldBytes, diskBytes, fillsBytes prometheus.GaugeFunc
}

// newMetrics registers the cache's metrics; the gauges read what c knows.
func newMetrics(r prometheus.Registerer, c *Cache) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Subsystem: "cache", Name: name, Help: help})
	}
	gauge := func(name, help string, f func() int64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Subsystem: "cache", Name: name, Help: help}, func() float64 { return float64(f()) })
	}
	m := &metrics{
		memoryHits:      counter("memory_hits_total", "Chunks found in memory."),
		diskHits:        counter("disk_hits_total", "Chunks found on disk."),
		joins:           counter("joins_total", "Requests that joined a fill under way."),
		misses:          counter("misses_total", "Chunks that had to be filled."),
		memoryEvictions: counter("memory_evictions_total", "Chunks put out of memory."),
		diskEvictions:   counter("disk_evictions_total", "Chunks put out of the disk tier."),
		fillBytes:       counter("fill_bytes_total", "Bytes filled."),
		fillErrors:      counter("fill_errors_total", "Fills that failed."),
		budgetWaits:     counter("budget_waits_total", "Fills that waited for the byte budget."),
		refused:         counter("prefetch_refused_total", "Prefetches refused for lack of budget."),
		diskCorrupt:     counter("disk_corrupt_total", "Files of the disk tier that were damaged."),
		diskErrors:      counter("disk_errors_total", "Failed reads and writes of the disk tier."),
		fillSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Subsystem: "cache", Name: "fill_seconds",
			Help: "Duration of fills.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}),
		memoryBytes: gauge("memory_bytes", "Bytes in the memory tier.", c.memoryBytes),
		heldBytes:   gauge("buffer_bytes", "Bytes of buffers in use: memory tier, fills, and chunks put out but still read.", c.pool.inUse.Load),
		diskBytes:   gauge("disk_bytes", "Bytes in the disk tier.", c.diskBytes),
		fillsBytes:  gauge("budget_used_bytes", "Bytes of fills under way.", c.filling.Load),
	}
	if r == nil {
		return m, nil
	}
	for _, x := range []prometheus.Collector{m.memoryHits, m.diskHits, m.joins, m.misses, m.memoryEvictions, m.diskEvictions, m.fillBytes,
		m.fillErrors, m.budgetWaits, m.refused, m.diskCorrupt, m.diskErrors, m.fillSeconds, m.memoryBytes, m.heldBytes, m.diskBytes, m.fillsBytes} {
		if err := r.Register(x); err != nil {
			return nil, err
		}
	}
	return m, nil
}
