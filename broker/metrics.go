package broker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metrics of the server.
type metrics struct {
	connections  prometheus.Gauge
	refused      prometheus.Counter
	budgetWaits  prometheus.Counter
	requests     *prometheus.CounterVec
	badFrames    prometheus.Counter
	produceBytes prometheus.Counter
	fetchBytes   prometheus.Counter
	sessions     prometheus.Gauge

	byKey map[int16]prometheus.Counter // requests by API, resolved once
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		connections:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "broker_connections", Help: "Open client connections."}),
		refused:      prometheus.NewCounter(prometheus.CounterOpts{Name: "broker_connections_refused_total", Help: "Connections refused over max.connections."}),
		budgetWaits:  prometheus.NewCounter(prometheus.CounterOpts{Name: "broker_request_budget_waits_total", Help: "Requests that waited for queued.max.request.bytes."}),
		requests:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "broker_requests_total", Help: "Requests by API."}, []string{"api"}),
		badFrames:    prometheus.NewCounter(prometheus.CounterOpts{Name: "broker_bad_requests_total", Help: "Connections closed because of a malformed request."}),
		produceBytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "broker_produce_bytes_total", Help: "Record batch bytes appended by clients."}),
		fetchBytes:   prometheus.NewCounter(prometheus.CounterOpts{Name: "broker_fetch_bytes_total", Help: "Record batch bytes sent to clients."}),
		sessions:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "broker_fetch_sessions", Help: "Incremental fetch sessions held."}),
	}
	for _, c := range []prometheus.Collector{m.connections, m.refused, m.budgetWaits, m.requests, m.badFrames, m.produceBytes, m.fetchBytes, m.sessions} {
		r.MustRegister(c)
	}
	m.byKey = map[int16]prometheus.Counter{}
	for k := range apiTable() {
		m.byKey[k.Int16()] = m.requests.WithLabelValues(kmsg.NameForKey(k.Int16()))
	}
	return m
}

// count adds a request of an API that is served.
func (m *metrics) count(key int16) {
	if c := m.byKey[key]; c != nil {
		c.Inc()
	}
}
