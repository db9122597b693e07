package manifest

import (
	"fmt"
	"slices"
)

// TopicEvent is what happened to a topic at a time.
type TopicEvent uint8

const (
	TopicCreated TopicEvent = iota + 1
	TopicAltered            // configs or partition count
	TopicDropped
	TopicUndropped
)

var topicEventNames = []string{"", "created", "altered", "dropped", "undropped"}

func (e TopicEvent) String() string {
	if e.valid() {
		return topicEventNames[e]
	}
	return fmt.Sprintf("event %d", uint8(e))
}

func (e TopicEvent) valid() bool { return e >= TopicCreated && e <= TopicUndropped }

func (e TopicEvent) MarshalText() ([]byte, error) {
	if !e.valid() {
		return nil, fmt.Errorf("topic event %d", uint8(e))
	}
	return []byte(e.String()), nil
}

func (e *TopicEvent) UnmarshalText(b []byte) error {
	i := slices.Index(topicEventNames, string(b))
	if i < int(TopicCreated) {
		return fmt.Errorf("topic event %q", b)
	}
	*e = TopicEvent(i)
	return nil
}

// TopicRecord is `t/<topic id>/topic.<n>`: a topic's whole metadata from Time on. n rises by one.
type TopicRecord struct {
	Cluster     string
	Incarnation uint32
	N           uint64
	Event       TopicEvent
	Time        int64 // ms
	ID          TopicID
	Name        string
	Partitions  int32
	Configs     map[string]string // dynamic topic configs only
	Internal    bool
}

// topicDocument is the JSON form: the order of its fields is part of the format. encoding/json sorts the configs.
type topicDocument struct {
	Format      int               `json:"format"`
	Kind        string            `json:"kind"`
	Cluster     string            `json:"cluster_id"`
	Incarnation uint32            `json:"incarnation"`
	N           uint64            `json:"n"`
	Event       TopicEvent        `json:"event"`
	TimeMs      int64             `json:"time_ms"`
	ID          TopicID           `json:"topic_id"`
	Name        string            `json:"name"`
	Partitions  int32             `json:"partitions"`
	Configs     map[string]string `json:"configs,omitempty"`
	Internal    bool              `json:"internal"`
}

// Key is where the record is stored.
func (r *TopicRecord) Key() string { return TopicRecordKey(r.ID, r.N) }

// Encode makes the body of the record's object. Names and configs that are not UTF-8 are an error.
func (r *TopicRecord) Encode() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("encode topic record: %w", err)
	}
	return encodeDocument(topicDocument{documentVersion, "topic", r.Cluster, r.Incarnation, r.N, r.Event, r.Time, r.ID,
		r.Name, r.Partitions, r.Configs, r.Internal})
}

// DecodeTopicRecord is the inverse of Encode.
func DecodeTopicRecord(b []byte) (*TopicRecord, error) {
	var t topicDocument
	if err := decodeDocument(b, &t); err != nil {
		return nil, err
	}
	r := &TopicRecord{t.Cluster, t.Incarnation, t.N, t.Event, t.TimeMs, t.ID, t.Name, t.Partitions, t.Configs, t.Internal}
	if t.Kind != "topic" {
		return nil, corruptf(0, "document of kind %q, want a topic", t.Kind)
	}
	if err := r.check(); err != nil {
		return nil, corruptf(0, "%w", err)
	}
	return r, nil
}

func (r *TopicRecord) check() error {
	if r.Name == "" || r.Partitions <= 0 || !r.Event.valid() {
		return fmt.Errorf("topic %q of %d partitions, %v", r.Name, r.Partitions, r.Event)
	}
	for k, v := range r.Configs {
		if err := checkText("config", k, v); err != nil {
			return err
		}
	}
	return checkText("name", r.Name, r.Cluster)
}
