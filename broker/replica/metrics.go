package replica

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	refused      prometheus.Counter
	leadFailures prometheus.Counter
	offline      prometheus.Counter
	retained     prometheus.Counter
	isrShrinks   prometheus.Counter
	isrExpands   prometheus.Counter
	fetched      prometheus.Counter
	fetchErrors  prometheus.Counter
	truncations  prometheus.Counter
}

func newMetrics(r prometheus.Registerer, m *Manager) *metrics {
	x := &metrics{
		refused:      prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_appends_refused_total", Help: "Appends refused because archive.local.max.bytes was reached."}),
		leadFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_archive_lead_failures_total", Help: "Failed tries to take over the archive of a partition."}),
		offline:      prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_logs_offline_total", Help: "Logs that went offline or could not be opened."}),
		retained:     prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_retention_deleted_bytes_total", Help: "Local bytes deleted by retention."}),
		isrShrinks:   prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_isr_shrinks_total", Help: "Changes that took brokers out of an ISR."}),
		isrExpands:   prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_isr_expands_total", Help: "Changes that put a broker into an ISR."}),
		fetched:      prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_fetched_bytes_total", Help: "Bytes appended as a follower."}),
		fetchErrors:  prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_fetch_errors_total", Help: "Fetches from a leader, whole or of one partition, that failed."}),
		truncations:  prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_truncations_total", Help: "Logs of followers that were cut where they diverged from the leader's."}),
	}
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "replica_offline_partitions", Help: "Partitions hosted here whose log cannot be used."}, func() float64 { return float64(len(m.Offline())) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "replica_under_min_isr_partitions", Help: "Partitions led here that refuse acks=all: fewer than min.insync.replicas are in sync and there.",
		}, func() float64 { return float64(m.underMin()) }),
		x.refused, x.leadFailures, x.offline, x.retained, x.isrShrinks, x.isrExpands, x.fetched, x.fetchErrors, x.truncations,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "replica_partitions", Help: "Partitions served."}, func() float64 { return float64(len(m.All())) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "replica_archive_backlog_bytes", Help: "Bytes of tiered partitions that are not archived, about."}, func() float64 { return float64(m.backlog.Load()) }),
	)
	return x
}

func (m *Manager) underMin() (n int) {
	for _, p := range m.Led() {
		if p.under.Load() {
			n++
		}
	}
	return n
}
