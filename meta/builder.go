package meta

import (
	"errors"
	"maps"
	"slices"

	"github.com/varvelog/varve/manifest"
)

// state is an image and what no reader may see: partitions whose topic is not there (yet), in a chain of transactions
// under way or left by a crash. Immutable, as the image is.
type state struct {
	img     *Image
	pending map[topicID]map[int32]*Partition
	topics  map[topicID]int64 // ModRev of each topic record, living or deleted
}

// builder makes the next state out of one. Maps and topics are copied when first written, so that what an event does
// not touch is shared: a partition's event copies its topic's pointers once per fold, never the cluster's partitions.
type builder struct {
	keys keys
	old  *state
	img  *Image
	pend map[topicID]map[int32]*Partition
	revs map[topicID]int64

	ownTopics, ownByID, ownDeleted, ownBrokers, ownConfigs, ownAttached, ownPend, ownRevs, ownKnown, ownForgotten, ownDraining bool

	ownTopic     map[topicID]*Topic // copies that may still be written
	ownPartition map[topicID]bool   // inner maps of pend that may
	bad          []error
}

func emptyState(cluster string, inc uint32) *state {
	return &state{
		img: &Image{
			Cluster: cluster, Incarnation: inc, Controller: -1,
			Brokers: map[int32]*Broker{}, Known: map[int32]*Broker{}, Forgotten: map[int32]bool{}, draining: map[int32]int64{}, Topics: map[string]*Topic{}, TopicsByID: map[topicID]*Topic{},
			Deleted: map[topicID]*Topic{}, Configs: map[string]map[string]string{}, Attached: map[string]*Attached{},
		},
		pending: map[topicID]map[int32]*Partition{},
		topics:  map[topicID]int64{},
	}
}

func newBuilder(k keys, old *state) *builder {
	img := *old.img
	return &builder{
		keys: k, old: old, img: &img, pend: old.pending, revs: old.topics,
		ownTopic: map[topicID]*Topic{}, ownPartition: map[topicID]bool{},
	}
}

// own copies a map unless that was done before.
func own[M ~map[K]V, K comparable, V any](m *M, done *bool) M {
	if !*done {
		*m, *done = maps.Clone(*m), true
	}
	return *m
}

// finish is the new state; the error joins the records that could not be read. They count as unchanged.
func (b *builder) finish() (*state, error) {
	return &state{img: b.img, pending: b.pend, topics: b.revs}, errors.Join(b.bad...)
}

// fold applies one revision. Partitions that are put come first and those that are deleted last, so a topic made,
// moved or removed in one transaction with its partitions never lacks them, whatever the order of the operations.
func (b *builder) fold(rev int64, events []Event) {
	var late []Event
	var latePart []Event
	for _, e := range events {
		p, err := b.keys.parse(e.Key)
		switch {
		case err != nil:
			b.reject(bad(e.Key, "%w", err))
		case p.area == areaPartition && !e.Deleted:
			b.putPartition(p, e.Pair)
		case p.area == areaPartition:
			latePart = append(latePart, e)
		case (p.area == areaTopic || p.area == areaDeleted) && e.Deleted:
			b.dropTopic(p)
		default:
			late = append(late, e)
		}
	}
	for _, e := range late {
		if p, _ := b.keys.parse(e.Key); e.Deleted {
			b.remove(p)
		} else {
			b.put(p, e.Pair)
		}
	}
	for _, e := range latePart {
		p, _ := b.keys.parse(e.Key)
		b.dropPartition(p, e.Key)
	}
	b.img.Rev = max(b.img.Rev, rev)
}

func (b *builder) reject(err error) { b.bad = append(b.bad, err) }

func (b *builder) put(p parsed, kv Pair) {
	var err error
	switch p.area {
	case areaTopic, areaDeleted:
		err = b.putTopic(p, kv)
	case areaBroker:
		var r *Broker
		if r, err = decodeBroker(p.broker, kv); err == nil {
			own(&b.img.Brokers, &b.ownBrokers)[p.broker] = r
			b.standing(p.broker)
		}
	case areaKnown:
		var r *Broker
		if r, err = decodeKnown(p.broker, kv); err == nil {
			if r == nil {
				delete(own(&b.img.Known, &b.ownKnown), p.broker)
				own(&b.img.Forgotten, &b.ownForgotten)[p.broker] = true
			} else {
				own(&b.img.Known, &b.ownKnown)[p.broker] = r
				delete(own(&b.img.Forgotten, &b.ownForgotten), p.broker)
			}
			b.standing(p.broker)
		}
	case areaDrain:
		var r drainRecord
		if err = decode(kv.Key, kv.Value, &r, &r.V); err == nil {
			own(&b.img.draining, &b.ownDraining)[p.broker] = r.Epoch
			b.standing(p.broker)
		}
	case areaConfig:
		var r configRecord
		if err = decode(kv.Key, kv.Value, &r, &r.V); err == nil {
			own(&b.img.Configs, &b.ownConfigs)[p.name] = r.Configs
		}
	case areaAttached:
		var r attachedRecord
		if err = decode(kv.Key, kv.Value, &r, &r.V); err == nil {
			a := &Attached{Archive: p.name, URL: r.URL, LeaseID: r.LeaseID, TTLMs: r.TTLMs}
			own(&b.img.Attached, &b.ownAttached)[p.name] = a
		}
	case keyController:
		var r controllerRecord
		if err = decode(kv.Key, kv.Value, &r, &r.V); err == nil {
			b.img.Controller, b.img.Term = r.ID, kv.ModRev
		}
	}
	if err != nil {
		b.reject(err)
	}
}

func (b *builder) remove(p parsed) {
	switch p.area {
	case areaBroker:
		delete(own(&b.img.Brokers, &b.ownBrokers), p.broker)
		b.standing(p.broker)
	case areaKnown:
		delete(own(&b.img.Known, &b.ownKnown), p.broker)
		delete(own(&b.img.Forgotten, &b.ownForgotten), p.broker)
		b.standing(p.broker)
	case areaDrain:
		delete(own(&b.img.draining, &b.ownDraining), p.broker)
		b.standing(p.broker)
	case areaConfig:
		delete(own(&b.img.Configs, &b.ownConfigs), p.name)
	case areaAttached:
		delete(own(&b.img.Attached, &b.ownAttached), p.name)
	case keyController:
		b.img.Controller, b.img.Term = -1, 0
	}
}

// standing works out anew whether a broker is fenced or draining, which its registration and two more records say together.
func (b *builder) standing(id int32) {
	r, k := b.img.Brokers[id], b.img.Known[id]
	if k != nil && k.Fenced != (r == nil) {
		c := *k
		c.Fenced = r == nil
		own(&b.img.Known, &b.ownKnown)[id] = &c
	}
	if r == nil {
		return
	}
	fenced, draining := k != nil && k.Epoch != r.Epoch || b.img.Forgotten[id], b.img.draining[id] == r.Epoch
	if r.Fenced != fenced || r.Draining != draining {
		c := *r
		c.Fenced, c.Draining = fenced, draining
		own(&b.img.Brokers, &b.ownBrokers)[id] = &c
	}
}

// topic finds a living or deleted topic.
func (b *builder) topic(id topicID) *Topic {
	if t := b.img.TopicsByID[id]; t != nil {
		return t
	}
	return b.img.Deleted[id]
}

// place puts a topic where its DeletedMs says, and records that this builder may write it.
func (b *builder) place(t *Topic) {
	b.ownTopic[t.ID] = t
	if t.DeletedMs != 0 {
		own(&b.img.Deleted, &b.ownDeleted)[t.ID] = t
		return
	}
	own(&b.img.Topics, &b.ownTopics)[t.Name] = t
	own(&b.img.TopicsByID, &b.ownByID)[t.ID] = t
}

func (b *builder) putPartition(p parsed, kv Pair) {
	t := b.topic(p.topic)
	if t == nil || int(p.part) >= len(t.Partitions) {
		if r, ok := b.partition(p, kv, b.pend[p.topic][p.part]); ok {
			b.stash(p.topic)[p.part] = r
		}
		return
	}
	r, ok := b.partition(p, kv, t.Partitions[p.part])
	if !ok {
		return
	}
	if b.ownTopic[p.topic] == nil {
		c := *t
		c.Partitions = slices.Clone(t.Partitions)
		t = &c
		b.place(t)
	}
	t.Partitions[p.part] = r
}

// partition decodes, or takes the former value if it is of the same revision (a resync).
func (b *builder) partition(p parsed, kv Pair, was *Partition) (*Partition, bool) {
	if was == nil {
		was = b.known(p)
	}
	if was != nil && was.ModRev == kv.ModRev {
		return was, true
	}
	r, err := decodePartition(manifest.PartitionID{Topic: p.topic, Partition: p.part}, kv)
	if err != nil {
		b.reject(err)
		return nil, false
	}
	return r, true
}

// known is the partition in the old state.
func (b *builder) known(p parsed) *Partition {
	t := b.old.img.TopicsByID[p.topic]
	if t == nil {
		t = b.old.img.Deleted[p.topic]
	}
	if t != nil && int(p.part) < len(t.Partitions) {
		return t.Partitions[p.part]
	}
	return b.old.pending[p.topic][p.part]
}

// stash is the writable map of a topic's invisible partitions.
func (b *builder) stash(id topicID) map[int32]*Partition {
	pend := own(&b.pend, &b.ownPend)
	if !b.ownPartition[id] {
		m := maps.Clone(pend[id])
		if m == nil {
			m = map[int32]*Partition{}
		}
		pend[id], b.ownPartition[id] = m, true
	}
	return pend[id]
}

func (b *builder) dropPartition(p parsed, key string) {
	if t := b.topic(p.topic); t != nil && int(p.part) < len(t.Partitions) {
		b.reject(bad(key, "partition deleted, its topic %q lives", t.Name))
		return
	}
	if m := b.pend[p.topic]; m[p.part] == nil {
		return
	}
	m := b.stash(p.topic)
	if delete(m, p.part); len(m) == 0 {
		delete(b.pend, p.topic)
		delete(b.ownPartition, p.topic)
	}
}

// dropTopic takes the topic out of sight; its partitions wait for what comes of it.
func (b *builder) dropTopic(p parsed) {
	t := b.img.Topics[p.name]
	if p.area == areaDeleted {
		t = b.img.Deleted[p.topic]
	}
	if t != nil {
		b.hide(t)
	}
}

func (b *builder) hide(t *Topic) {
	m := b.stash(t.ID)
	for i, part := range t.Partitions {
		m[int32(i)] = part
	}
	delete(b.ownTopic, t.ID)
	delete(own(&b.revs, &b.ownRevs), t.ID)
	if t.DeletedMs != 0 {
		delete(own(&b.img.Deleted, &b.ownDeleted), t.ID)
		return
	}
	delete(own(&b.img.Topics, &b.ownTopics), t.Name)
	delete(own(&b.img.TopicsByID, &b.ownByID), t.ID)
}

func (b *builder) putTopic(p parsed, kv Pair) error {
	r, id, err := decodeTopic(kv, p.name, p.topic, p.area == areaDeleted)
	if err != nil {
		return err
	}
	t := r.topic(id)
	t.Partitions = make([]*Partition, r.Partitions)
	old := b.topic(id)
	if old != nil {
		copy(t.Partitions, old.Partitions)
	}
	for i := range t.Partitions {
		if m := b.pend[id][int32(i)]; m != nil {
			t.Partitions[i] = m
		}
		if t.Partitions[i] == nil {
			lacks := manifest.PartitionID{Topic: id, Partition: int32(i)}
			return bad(kv.Key, "lacks its partition record %s", b.keys.partition(lacks))
		}
	}
	if was := b.img.Topics[p.name]; was != nil && was.ID != id {
		b.hide(was)
	}
	if old != nil && (old.DeletedMs != t.DeletedMs || old.Name != t.Name) {
		b.hide(old)
	}
	b.place(t)
	b.settle(t, old)
	own(&b.revs, &b.ownRevs)[id] = kv.ModRev
	return nil
}

// settle takes what the topic shows out of the invisible partitions, and puts what it no longer shows there.
func (b *builder) settle(t, old *Topic) {
	if m := b.pend[t.ID]; len(m) > 0 {
		m = b.stash(t.ID)
		for i := range t.Partitions {
			delete(m, int32(i))
		}
		if len(m) == 0 {
			delete(b.pend, t.ID)
			delete(b.ownPartition, t.ID)
		}
	}
	if old == nil {
		return
	}
	for i := len(t.Partitions); i < len(old.Partitions); i++ {
		b.stash(t.ID)[int32(i)] = old.Partitions[i]
	}
}

// load makes a state from all records. Objects of old whose revision is the same are taken over, so that a resync
// shares what did not change. What cannot be read is missing from it: an error means that it must not be shown.
func load(k keys, old *state, pairs []Pair, rev int64) (*state, error) {
	b := newBuilder(k, emptyState(old.img.Cluster, old.img.Incarnation))
	b.old = old
	events := make([]Event, len(pairs))
	for i, p := range pairs {
		events[i] = Event{Pair: p}
	}
	b.fold(rev, events)
	b.reuse()
	return b.finish()
}

// reuse replaces topics that equal their former selves by these.
func (b *builder) reuse() {
	for id, rev := range b.revs {
		t, was := b.topic(id), b.old.img.TopicsByID[id]
		if was == nil {
			was = b.old.img.Deleted[id]
		}
		if was != nil && b.old.topics[id] == rev && slices.Equal(was.Partitions, t.Partitions) {
			b.place(was)
		}
	}
}
