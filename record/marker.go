package record

import "encoding/binary"

// Marker is the content of a control batch that ends a transaction.
type Marker struct {
	Commit           bool
	CoordinatorEpoch int32
}

// Types of control records, in the key after its version.
const (
	controlAbort  = 0
	controlCommit = 1
)

// markerLimit bounds a control batch that somebody has compressed.
const markerLimit = 1 << 20

// ParseMarker reads the marker of a control batch. Newer versions of key and value are read as version 0, as in Kafka:
// they may only append fields. ErrUnsupported for control records that end no transaction (KRaft's); ErrCorrupt if b is
// no control batch or not of that form.
func ParseMarker(b Batch) (Marker, error) {
	if !b.Control() {
		return Marker{}, fail(ErrCorrupt, b, atAttributes, "not a control batch")
	}
	it := b.Records(markerLimit)
	defer it.Close()
	if !it.Next() {
		if it.Err() != nil {
			return Marker{}, it.Err()
		}
		return Marker{}, fail(ErrCorrupt, b, atCount, "no control record")
	}
	key, val := it.f.key.of(it.p), it.f.val.of(it.p)
	if len(key) < 4 || key[0]&0x80 != 0 {
		return Marker{}, failRecord(ErrCorrupt, b, 0, it.f.key.at, "bad key of a control record")
	}
	kind := int16(binary.BigEndian.Uint16(key[2:]))
	if kind != controlAbort && kind != controlCommit {
		return Marker{}, fail(ErrUnsupported, b, HeaderSize, "control record of type %d", kind)
	}
	if len(val) < 6 || val[0]&0x80 != 0 {
		return Marker{}, failRecord(ErrCorrupt, b, 0, it.f.val.at, "bad value of a control record")
	}
	return Marker{Commit: kind == controlCommit, CoordinatorEpoch: int32(binary.BigEndian.Uint32(val[2:]))}, nil
}

// BuildMarker encodes a control batch at base offset 0 and without leader epoch, appended to dst; tsMs is its timestamp.
func BuildMarker(dst []byte, producerID int64, producerEpoch int16, tsMs int64, m Marker) Batch {
	var key [4]byte
	if m.Commit {
		key[3] = controlCommit
	}
	var val [6]byte
	binary.BigEndian.PutUint32(val[2:], uint32(m.CoordinatorEpoch))

	start := len(dst)
	dst = appendHeader(dst, BatchOptions{LeaderEpoch: -1, ProducerID: producerID, ProducerEpoch: producerEpoch,
		BaseSequence: -1, Transactional: true, Control: true})
	dst = appendRecord(dst, &Record{Timestamp: tsMs, Key: key[:], Value: val[:]}, tsMs, 0)
	b := Batch(dst[start:])
	binary.BigEndian.PutUint32(b[atSize:], uint32(len(b)-sizeOverhead))
	binary.BigEndian.PutUint64(b[atBaseTimestamp:], uint64(tsMs))
	b.setMaxTimestamp(tsMs)
	binary.BigEndian.PutUint32(b[atCount:], 1)
	b.seal()
	return b
}
