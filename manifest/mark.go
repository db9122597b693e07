package manifest

import (
	"fmt"
	"math"
)

// Mark is `c/<cluster id>/mark/<broker>`: everything that was appended up to TimeMs, by the broker's clock, to the
// partitions that the broker led is in the archive. The broker overwrites it as it goes on, and at a clean stop, so that a
// reader of the bucket knows up to when nothing is missing, however long nothing was appended.
type Mark struct {
	Cluster  string
	Broker   int32
	TimeMs   int64 // by the broker's clock, which stamps append times
	WindowMs int64 // archive.restore.window.ms where a topic says nothing else
	Written  int64 // ms, the broker's clock when the mark was written; for people
}

type markDocument struct {
	Format   int    `json:"format"`
	Kind     string `json:"kind"`
	Cluster  string `json:"cluster_id"`
	Broker   int32  `json:"broker"`
	TimeMs   int64  `json:"time_ms"`
	WindowMs int64  `json:"restore_window_ms"`
	Written  int64  `json:"written_ms"`
}

// MarkPrefix begins the marks of a cluster's brokers.
func MarkPrefix(cluster string) string { return ClusterPrefix(cluster) + "mark/" }

// MarkKey names the mark of a broker.
func MarkKey(cluster string, broker int32) string {
	return fmt.Sprintf("%s%010d", MarkPrefix(cluster), broker)
}

// ParseMarkKey returns the broker of a mark below MarkPrefix of the cluster.
func ParseMarkKey(cluster, key string) (broker int32, ok bool) {
	k := keyParser{rest: key, ok: true}
	k.lit(MarkPrefix(cluster))
	broker = int32(k.digits(10, math.MaxInt32))
	return broker, k.done()
}

// Key is where the mark is stored.
func (m Mark) Key() string { return MarkKey(m.Cluster, m.Broker) }

// Encode makes the body of the mark's object.
func (m Mark) Encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("encode mark: %w", err)
	}
	return encodeDocument(markDocument{documentVersion, "mark", m.Cluster, m.Broker, m.TimeMs, m.WindowMs, m.Written})
}

// DecodeMark is the inverse of Encode.
func DecodeMark(b []byte) (Mark, error) {
	var d markDocument
	if err := decodeDocument(b, &d); err != nil {
		return Mark{}, err
	}
	if d.Kind != "mark" {
		return Mark{}, corruptf(0, "document of kind %q, want a mark", d.Kind)
	}
	m := Mark{d.Cluster, d.Broker, d.TimeMs, d.WindowMs, d.Written}
	if err := m.check(); err != nil {
		return Mark{}, corruptf(0, "%w", err)
	}
	return m, nil
}

func (m Mark) check() error {
	if m.Cluster == "" || m.Broker < 0 || m.TimeMs < 0 || m.WindowMs < 0 {
		return fmt.Errorf("mark of broker %d of cluster %q at %d ms, window %d ms", m.Broker, m.Cluster, m.TimeMs, m.WindowMs)
	}
	return checkText("cluster", m.Cluster)
}
