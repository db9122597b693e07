package group

import (
	"fmt"

	"github.com/varvelog/varve/manifest"
)

// Versions of the value of an offset commit (format.md). Written: 1 with an expiry of its own, 4 with a topic id, else 3.
const (
	offsetValueExpire = 1
	offsetValuePlain  = 3
	offsetValueTagged = 4

	tagTopicID = 0
)

// offsetRecord is the record of a committed offset.
func offsetRecord(group string, o Offset) (Record, error) {
	if !fits(group, o.Topic, o.Metadata) {
		return Record{}, ErrRecordTooLarge
	}
	return Record{Key: appendOffsetKey(nil, group, o.Topic, o.Partition), Value: AppendOffsetValue(nil, offsetVersion(o), o)}, nil
}

func offsetVersion(o Offset) int16 {
	switch {
	case o.ExpireMs >= 0:
		return offsetValueExpire
	case o.TopicID != manifest.TopicID{}:
		return offsetValueTagged
	}
	return offsetValuePlain
}

// AppendOffsetValue encodes the value of an offset commit in a version of 0 to 4; what the version has no place for is left out.
// Metadata must be shorter than 32 KiB.
func AppendOffsetValue(b []byte, version int16, o Offset) []byte {
	b = appendInt16(b, version)
	b = appendInt64(b, o.Offset)
	if version >= 3 {
		b = appendInt32(b, o.LeaderEpoch)
	}
	if version >= 4 {
		b = appendCompact(b, o.Metadata)
	} else {
		b = appendString(b, o.Metadata)
	}
	b = appendInt64(b, o.CommitMs)
	if version == 1 {
		b = appendInt64(b, o.ExpireMs)
	}
	if version < 4 {
		return b
	}
	if o.TopicID == (manifest.TopicID{}) {
		return append(b, 0)
	}
	b = append(b, 1, tagTopicID, byte(len(o.TopicID)))
	return append(b, o.TopicID[:]...)
}

// DecodeOffsetValue reads the value of an offset commit; topic and partition are in its key.
func DecodeOffsetValue(b []byte) (Offset, error) {
	r := reader{b: b}
	version := r.int16()
	if !r.bad && (version < 0 || version > offsetValueTagged) {
		return Offset{}, fmt.Errorf("offset value of version %d: %w", version, ErrUnsupported)
	}
	r.flexible = version >= 4
	o := Offset{Offset: r.int64(), LeaderEpoch: -1, ExpireMs: -1}
	if version >= 3 {
		o.LeaderEpoch = r.int32()
	}
	o.Metadata = r.string()
	o.CommitMs = r.int64()
	if version == 1 {
		o.ExpireMs = r.int64()
	}
	r.tags(func(tag int, b []byte) {
		if tag == tagTopicID && len(b) == len(o.TopicID) {
			copy(o.TopicID[:], b)
		}
	})
	return o, r.err("offset value")
}
