package control

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	changes *prometheus.CounterVec
}

// newMetrics registers the controller's metrics. Those of the cluster are told by the controller alone, so that sums are right.
func newMetrics(r prometheus.Registerer, c *Controller) *metrics {
	m := &metrics{
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "control_partition_changes_total", Help: "Partitions changed by this controller, by reason."}, []string{"reason"}),
	}
	ofCluster := func(name, help string, f func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if c.term() == 0 {
				return 0
			}
			return float64(f())
		})
	}
	r.MustRegister(m.changes,
		ofCluster("control_active", "1 on the controller.", func() int { return 1 }),
		ofCluster("control_offline_partitions", "Partitions without a living leader; 0 but on the controller.", func() int { return OfflinePartitions(c.store.Image()) }),
		ofCluster("control_under_replicated_partitions", "Partitions of which a replica is not in sync; 0 but on the controller.", func() int { return UnderReplicated(c.store.Image()) }),
		ofCluster("control_brokers", "Registered brokers; 0 but on the controller.", func() int { return len(c.store.Image().Brokers) }),
		ofCluster("control_fenced_brokers", "Brokers that the cluster knows and that are not there; 0 but on the controller.", func() int {
			img, n := c.store.Image(), 0
			for _, b := range img.Known {
				if b.Fenced {
					n++
				}
			}
			return n
		}),
	)
	return m
}
