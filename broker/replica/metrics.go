package replica

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	refused      prometheus.Counter
	leadFailures prometheus.Counter
	offline      prometheus.Counter
	retained     prometheus.Counter
}

func newMetrics(r prometheus.Registerer, m *Manager) *metrics {
	x := &metrics{
		refused:      prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_appends_refused_total", Help: "Appends refused because archive.local.max.bytes was reached."}),
		leadFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_archive_lead_failures_total", Help: "Failed tries to take over the archive of a partition."}),
		offline:      prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_logs_offline_total", Help: "Logs that went offline or could not be opened."}),
		retained:     prometheus.NewCounter(prometheus.CounterOpts{Name: "replica_retention_deleted_bytes_total", Help: "Local bytes deleted by retention."}),
	}
	r.MustRegister(x.refused, x.leadFailures, x.offline, x.retained,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "replica_partitions", Help: "Partitions served."}, func() float64 { return float64(len(m.All())) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "replica_archive_backlog_bytes", Help: "Bytes of tiered partitions that are not archived, about."}, func() float64 { return float64(m.backlog.Load()) }),
	)
	return x
}
