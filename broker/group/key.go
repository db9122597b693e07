package group

// Record is one record of __consumer_offsets. Value nil is a tombstone.
type Record struct{ Key, Value []byte }

// Versions of keys tell what the record is of. Others (consumer and share groups of KIP-848 and 932) are not read.
const (
	keyOffset0 = 0 // offset commit, as Kafka wrote it at first
	keyOffset  = 1
	keyGroup   = 2
)

// Key is a decoded key: of an offset (Group, Topic, Partition), or of a group's metadata (Topic "").
type Key struct {
	Version   int16
	Group     string
	Topic     string
	Partition int32
}

// OfGroup tells if it is the key of a group's metadata.
func (k Key) OfGroup() bool { return k.Version == keyGroup }

// DecodeKey reads a key: ErrUnsupported for other kinds of records, ErrCorrupt.
func DecodeKey(b []byte) (Key, error) {
	r := reader{b: b}
	k := Key{Version: r.int16()}
	switch {
	case r.bad:
	case k.Version == keyOffset0 || k.Version == keyOffset:
		k.Group, k.Topic, k.Partition = r.string(), r.string(), r.int32()
	case k.Version == keyGroup:
		k.Group = r.string()
	default:
		return k, ErrUnsupported
	}
	return k, r.err("key")
}

func appendOffsetKey(b []byte, group, topic string, partition int32) []byte {
	b = appendInt16(b, keyOffset)
	b = appendString(b, group)
	b = appendString(b, topic)
	return appendInt32(b, partition)
}

func appendGroupKey(b []byte, group string) []byte {
	return appendString(appendInt16(b, keyGroup), group)
}
