package recovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/varvelog/varve/manifest"
)

// Order is what a broker is sent to restore one topic into its cluster: the plan of that topic, resolved, so that what
// was printed is what is done.
type Order struct {
	Format     int               `json:"format"`
	URL        string            `json:"repo"`
	Archive    string            `json:"archive"`
	Source     string            `json:"source"`
	ID         manifest.TopicID  `json:"id"`
	Configs    map[string]string `json:"configs,omitempty"`
	Partitions []OrderPartition  `json:"partitions"`
}

// OrderPartition is the range [Start, End) to restore, and how many of its offsets were missing when it was planned.
type OrderPartition struct {
	Start   int64 `json:"start"`
	End     int64 `json:"end"`
	Missing int64 `json:"missing,omitempty"`
}

const (
	orderMax           = 8 << 20
	orderMaxPartitions = 100_000
)

// Order is the topic's order.
func (p *Plan) Order(t *TopicPlan) Order {
	o := Order{Format: planFormat, URL: p.URL, Archive: p.Archive, Source: t.Source, ID: t.ID, Configs: t.Configs}
	for i := range t.Partitions {
		_, missing := t.Partitions[i].Records()
		o.Partitions = append(o.Partitions, OrderPartition{t.Partitions[i].Start, t.Partitions[i].End, missing})
	}
	return o
}

// Encode makes the order's only encoding.
func (o Order) Encode() ([]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// DecodeOrder is the inverse of Encode.
func DecodeOrder(b []byte) (Order, error) {
	var o Order
	if len(b) > orderMax {
		return o, fmt.Errorf("%w: order of %d bytes, at most %d", ErrRequest, len(b), orderMax)
	}
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return o, fmt.Errorf("%w: order: %w", ErrRequest, err)
	}
	if head.Format != planFormat {
		return o, fmt.Errorf("%w: order of format %d, this broker knows %d; use a varve of its version", ErrRequest, head.Format, planFormat)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return Order{}, fmt.Errorf("%w: order: %w", ErrRequest, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Order{}, fmt.Errorf("%w: order: bytes after its end", ErrRequest)
	}
	return o, o.check()
}

func (o *Order) check() error {
	if o.Format != planFormat || o.URL == "" || o.Archive == "" || o.ID == (manifest.TopicID{}) {
		return fmt.Errorf("%w: order of format %d, archive %q at %q, topic %s", ErrRequest, o.Format, o.Archive, o.URL, o.ID)
	}
	if err := checkTopicName(o.Source); err != nil {
		return err
	}
	if n := len(o.Partitions); n == 0 || n > orderMaxPartitions {
		return fmt.Errorf("%w: order of %d partitions", ErrRequest, n)
	}
	for i, p := range o.Partitions {
		if p.Start < 0 || p.End < p.Start || p.Missing < 0 || p.Missing > p.End-p.Start {
			return fmt.Errorf("%w: order: partition %d of offsets [%d, %d), %d missing", ErrRequest, i, p.Start, p.End, p.Missing)
		}
	}
	return nil
}

// topicAttempts bounds how often one order can be carried out under one name, each time after the topic was deleted.
const topicAttempts = 256

// topicID is the id of the topic that an order makes under a name: the same order gives the same ids, so that whoever
// repeats it can tell that it is done. Each attempt has another.
func topicID(order []byte, name string, attempt int) manifest.TopicID {
	for salt := uint32(0); ; salt++ {
		h := sha256.New()
		h.Write(order)
		h.Write([]byte{0})
		h.Write([]byte(name))
		h.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(attempt)), salt))
		id := manifest.TopicID(h.Sum(nil)[:16])
		if id[0] != 0 && id.String()[0] != '-' {
			return id
		}
	}
}

// Made reports whether a topic of that name and id was made by the order.
func (o Order) Made(name string, id manifest.TopicID) bool {
	b, err := o.Encode()
	if err != nil {
		return false
	}
	for n := range topicAttempts {
		if topicID(b, name, n) == id {
			return true
		}
	}
	return false
}
