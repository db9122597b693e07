package tier

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/objstore"
)

// metrics of one Archive. Labels: kind is segment, tail or manifest; step and outcome are small fixed sets.
type metrics struct {
	uploads     *prometheus.CounterVec // kind
	uploadBytes *prometheus.CounterVec // kind
	failures    *prometheus.CounterVec // step, outcome
	commits     prometheus.Counter
	conflicts   prometheus.Counter
	fenced      prometheus.Counter
	reads       *prometheus.CounterVec // outcome
	readBytes   prometheus.Counter
	ahead       *prometheus.CounterVec // outcome: started, skipped
	corrupt     prometheus.Counter
	gaps        prometheus.Counter
	gapOffsets  prometheus.Counter
	entries     *prometheus.CounterVec // change: dead, doomed, dropped, orphan
	deleted     *prometheus.CounterVec // kind: segment, manifest, group, topic
}

// newMetrics registers with reg, which may be nil. lag and pending are asked for at each scrape.
func newMetrics(reg prometheus.Registerer, lag, pending, led func() float64) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "archive_" + name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "archive_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, f func() float64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "archive_" + name, Help: help}, f)
	}
	m := &metrics{
		uploads:     vec("uploads_total", "Objects uploaded.", "kind"),
		uploadBytes: vec("upload_bytes_total", "Bytes of objects uploaded.", "kind"),
		failures:    vec("failures_total", "Steps that failed and will be tried again.", "step", "outcome"),
		commits:     counter("commits_total", "Manifests committed."),
		conflicts:   counter("commit_conflicts_total", "Commits refused because the partition's record had changed."),
		fenced:      counter("fenced_total", "Partitions stopped because a newer leader owns their archive."),
		reads:       vec("reads_total", "Reads of archived offsets.", "outcome"),
		readBytes:   counter("read_bytes_total", "Bytes of batches read from the archive, cached ones too."),
		ahead:       vec("readahead_chunks_total", "Chunks asked for ahead of sequential readers.", "outcome"),
		corrupt:     counter("corrupt_total", "Objects, chunks or local batches found to be damaged."),
		gaps:        counter("gaps_total", "Gaps recorded: offsets that were gone before they were uploaded."),
		gapOffsets:  counter("gap_offsets_total", "Offsets in those gaps."),
		entries:     vec("entries_total", "Changes of manifest entries.", "change"),
		deleted:     vec("deleted_objects_total", "Objects deleted.", "kind"),
	}
	if reg != nil {
		reg.MustRegister(m.uploads, m.uploadBytes, m.failures, m.commits, m.conflicts, m.fenced, m.reads, m.readBytes,
			m.ahead, m.corrupt, m.gaps, m.gapOffsets, m.entries, m.deleted,
			gauge("lag_seconds", "Longest time that a committed record of a led partition has waited for its upload.", lag),
			gauge("pending_bytes", "Committed local bytes that are not archived yet.", pending),
			gauge("led_partitions", "Partitions whose archive this broker writes.", led))
	}
	return m
}

func (m *metrics) read(size int, err error) {
	outcome := objstore.Outcome(err)
	var c *CorruptError
	switch {
	case errors.As(err, &c):
		outcome = "corrupt"
	case errors.Is(err, localseg.ErrOffsetOutOfRange):
		outcome = "out_of_range"
	case errors.Is(err, ErrLeaseLapsed):
		outcome = "lease"
	}
	m.reads.WithLabelValues(outcome).Inc()
	m.readBytes.Add(float64(size))
}
