package meta

import (
	"encoding/json"
	"fmt"

	"github.com/varvelog/varve/manifest"
)

// recordMajor is the version of all records: format.md says when it rises. Fields that a reader does not know are left
// out silently, so a field may only be added without raising it if losing it is harmless.
const recordMajor = 1

// Records as stored: JSON objects with "v" first. What the key says is not repeated.
type (
	clusterRecord struct {
		V           int    `json:"v"`
		Incarnation uint32 `json:"inc"`
		CreatedMs   int64  `json:"created"`
	}
	defaultRecord struct {
		V  int    `json:"v"`
		ID string `json:"id"`
	}
	brokerRecord struct {
		V         int        `json:"v"`
		Rack      string     `json:"rack,omitempty"`
		Listeners []listener `json:"listeners"`
		Admin     string     `json:"admin,omitempty"`
		Directory string     `json:"dir,omitempty"`
		Previous  int64      `json:"previous,omitempty"`
		Process   string     `json:"process,omitempty"`
		Continues []string   `json:"continues,omitempty"`
	}
	knownRecord struct {
		V         int        `json:"v"`
		Epoch     int64      `json:"epoch"`
		Rack      string     `json:"rack,omitempty"`
		Directory string     `json:"dir,omitempty"`
		Process   string     `json:"process,omitempty"`
		Listeners []listener `json:"listeners"`
		Forgotten bool       `json:"forgotten,omitempty"`
	}
	drainRecord struct {
		V     int   `json:"v"`
		Epoch int64 `json:"epoch"`
	}
	listener struct {
		Name string `json:"name"`
		Host string `json:"host"`
		Port int32  `json:"port"`
	}
	topicRecord struct {
		V          int               `json:"v"`
		Name       string            `json:"name"` // needed below deleted/, checked below topic/
		ID         string            `json:"id"`
		Internal   bool              `json:"internal,omitempty"`
		Configs    map[string]string `json:"configs,omitempty"`
		CreatedMs  int64             `json:"created"`
		Version    uint64            `json:"version"`
		Archived   uint64            `json:"archived,omitempty"`
		DeletedMs  int64             `json:"deleted,omitempty"`
		ChangedMs  int64             `json:"changed,omitempty"`
		BehindMs   int64             `json:"behind,omitempty"`
		Collecting bool              `json:"collecting,omitempty"`
		Partitions int32             `json:"partitions"`
	}
	partitionRecord struct {
		V              int            `json:"v"`
		Replicas       []int32        `json:"replicas"`
		ISR            []int32        `json:"isr"`
		Leader         int32          `json:"leader"`
		LeaderEpoch    int32          `json:"epoch"`
		PartitionEpoch int32          `json:"pepoch"`
		Adding         []int32        `json:"adding,omitempty"`
		Removing       []int32        `json:"removing,omitempty"`
		Offline        []int32        `json:"offline,omitempty"`
		Recovering     bool           `json:"recovering,omitempty"`
		Undeleted      bool           `json:"undeleted,omitempty"`
		Pointer        *pointerRecord `json:"ptr,omitempty"`
	}
	pointerRecord struct {
		Manifest    string      `json:"m,omitempty"`
		N           uint64      `json:"n,omitempty"`
		Through     int64       `json:"through,omitempty"`
		ThroughTime int64       `json:"time,omitempty"`
		Pins        []pinRecord `json:"pins,omitempty"`
	}
	pinRecord struct {
		ID     string `json:"id"`
		Reason string `json:"reason,omitempty"`
	}
	configRecord struct {
		V       int               `json:"v"`
		Configs map[string]string `json:"configs"`
	}
	attachedRecord struct {
		V       int    `json:"v"`
		URL     string `json:"url"`
		LeaseID string `json:"lease"`
		TTLMs   int64  `json:"ttl"`
	}
	controllerRecord struct {
		V  int   `json:"v"`
		ID int32 `json:"id"`
	}
	producersRecord struct {
		V    int   `json:"v"`
		Next int64 `json:"next"`
	}
	pendingRecord struct {
		V         int    `json:"v"`
		Op        string `json:"op"` // opCreate, opForget
		Name      string `json:"name,omitempty"`
		Attempt   string `json:"attempt"` // random: tells the writer's own record from another's
		StartedMs int64  `json:"started"`
	}
)

// encode cannot fail: records hold nothing that JSON cannot say.
func encode(r any) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic("encode metadata record: " + err.Error())
	}
	return b
}

// decode reads the record of a key. v is the record's own V field, behind r.
func decode(key string, value []byte, r any, v *int) error {
	if err := json.Unmarshal(value, r); err != nil {
		// A newer major may have changed a field's type: that is not damage.
		var head struct {
			V int `json:"v"`
		}
		if json.Unmarshal(value, &head) == nil && head.V > recordMajor {
			*v = head.V
		} else {
			return &CorruptError{Key: key, Err: err}
		}
	}
	switch {
	case *v > recordMajor:
		return &CorruptError{Key: key, Err: fmt.Errorf("version %d, this program knows %d: %w", *v, recordMajor, ErrUnsupported)}
	case *v < 1:
		return &CorruptError{Key: key, Err: fmt.Errorf("version %d", *v)}
	}
	return nil
}

func bad(key, format string, args ...any) error {
	return &CorruptError{Key: key, Err: fmt.Errorf(format, args...)}
}

func encodePartition(p *Partition) []byte {
	r := partitionRecord{
		V: recordMajor, Replicas: p.Replicas, ISR: p.ISR, Leader: p.Leader,
		LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Adding: p.Adding, Removing: p.Removing,
		Offline: p.Offline, Recovering: p.Recovering, Undeleted: p.Undeleted,
	}
	if q := p.Pointer; q.Manifest != "" || q.N != 0 || q.Through != 0 || q.ThroughTime != 0 || len(q.Pins) > 0 {
		r.Pointer = &pointerRecord{Manifest: q.Manifest, N: q.N, Through: q.Through, ThroughTime: q.ThroughTime}
		for _, pin := range q.Pins {
			r.Pointer.Pins = append(r.Pointer.Pins, pinRecord(pin))
		}
	}
	return encode(r)
}

func decodePartition(id manifest.PartitionID, kv Pair) (*Partition, error) {
	var r partitionRecord
	if err := decode(kv.Key, kv.Value, &r, &r.V); err != nil {
		return nil, err
	}
	if len(r.Replicas) == 0 {
		return nil, bad(kv.Key, "no replicas")
	}
	if r.Leader < -1 || r.LeaderEpoch < 0 || r.PartitionEpoch < 0 {
		return nil, bad(kv.Key, "leader %d, epoch %d, partition epoch %d", r.Leader, r.LeaderEpoch, r.PartitionEpoch)
	}
	p := &Partition{
		ID: id, Replicas: r.Replicas, ISR: r.ISR, Leader: r.Leader,
		LeaderEpoch: r.LeaderEpoch, PartitionEpoch: r.PartitionEpoch, Adding: r.Adding, Removing: r.Removing,
		Offline: r.Offline, Recovering: r.Recovering, Undeleted: r.Undeleted, ModRev: kv.ModRev,
	}
	if q := r.Pointer; q != nil {
		if q.Through < 0 {
			return nil, bad(kv.Key, "archived through %d", q.Through)
		}
		p.Pointer = Pointer{Manifest: q.Manifest, N: q.N, Through: q.Through, ThroughTime: q.ThroughTime}
		for _, pin := range q.Pins {
			p.Pointer.Pins = append(p.Pointer.Pins, Pin(pin))
		}
	}
	return p, nil
}

// maxPartitions bounds what a record may claim before a slice of that length is made.
const maxPartitions = 1 << 20

// decodeTopic checks the record against its key: deleted says which area it is in.
func decodeTopic(kv Pair, name string, id topicID, deleted bool) (topicRecord, topicID, error) {
	var r topicRecord
	if err := decode(kv.Key, kv.Value, &r, &r.V); err != nil {
		return r, topicID{}, err
	}
	got, err := ParseTopicID(r.ID)
	switch {
	case err != nil || got == (topicID{}):
		return r, got, bad(kv.Key, "topic id %q", r.ID)
	case !deleted && r.Name != name:
		return r, got, bad(kv.Key, "is the record of topic %q", r.Name)
	case deleted && got != id:
		return r, got, bad(kv.Key, "is the record of topic id %q", r.ID)
	case deleted != (r.DeletedMs != 0):
		return r, got, bad(kv.Key, "deleted at %d ms", r.DeletedMs)
	case r.Partitions < 1 || r.Partitions > maxPartitions:
		return r, got, bad(kv.Key, "%d partitions", r.Partitions)
	}
	return r, got, nil
}

// change enters a change, at nowMs, of what the topic's record in the bucket says.
func (r *topicRecord) change(nowMs int64) {
	now := max(nowMs, 1)
	if r.Version == r.Archived || r.BehindMs == 0 {
		r.BehindMs = now
	}
	r.Version++
	r.ChangedMs = now
}

// archivedAs enters that version v is in the bucket. Where there were several changes since, it is not known when the first of them was:
// not before those that version v has.
func (r *topicRecord) archivedAs(v uint64) {
	r.Archived = v
	switch r.Version {
	case v:
		r.BehindMs = 0
	case v + 1:
		r.BehindMs = r.ChangedMs
	}
}

func (r topicRecord) topic(id topicID) *Topic {
	return &Topic{
		Name: r.Name, ID: id, Internal: r.Internal, Configs: r.Configs, CreatedMs: r.CreatedMs,
		Version: r.Version, Archived: r.Archived, DeletedMs: r.DeletedMs, ChangedMs: r.ChangedMs, Collecting: r.Collecting,
		BehindMs: r.BehindMs,
	}
}

func encodeBroker(b Broker) []byte {
	r := brokerRecord{V: recordMajor, Rack: b.Rack, Admin: b.Admin, Directory: b.Directory, Previous: b.Previous, Process: b.Process, Continues: b.Continues}
	for _, l := range b.Listeners {
		r.Listeners = append(r.Listeners, listener(l))
	}
	return encode(r)
}

func decodeBroker(id int32, kv Pair) (*Broker, error) {
	var r brokerRecord
	if err := decode(kv.Key, kv.Value, &r, &r.V); err != nil {
		return nil, err
	}
	b := &Broker{
		ID: id, Epoch: kv.ModRev, Rack: r.Rack, Admin: r.Admin, Directory: r.Directory, Previous: r.Previous, Process: r.Process, Continues: r.Continues, lease: kv.Lease,
	}
	for _, l := range r.Listeners {
		b.Listeners = append(b.Listeners, Listener(l))
	}
	return b, nil
}

func encodeKnown(b *Broker) []byte {
	r := knownRecord{V: recordMajor, Epoch: b.Epoch, Rack: b.Rack, Directory: b.Directory, Process: b.Process}
	for _, l := range b.Listeners {
		r.Listeners = append(r.Listeners, listener(l))
	}
	return encode(r)
}

// encodeForgotten is what stays of a broker that was forgotten: the id, so that who comes by it is not taken for one that never had anything.
func encodeForgotten() []byte { return encode(knownRecord{V: recordMajor, Forgotten: true}) }

// decodeKnown returns nil for a broker that was forgotten.
func decodeKnown(id int32, kv Pair) (*Broker, error) {
	var r knownRecord
	if err := decode(kv.Key, kv.Value, &r, &r.V); err != nil || r.Forgotten {
		return nil, err
	}
	b := &Broker{ID: id, Epoch: r.Epoch, Rack: r.Rack, Directory: r.Directory, Process: r.Process}
	for _, l := range r.Listeners {
		b.Listeners = append(b.Listeners, Listener(l))
	}
	return b, nil
}
