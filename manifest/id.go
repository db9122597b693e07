package manifest

import (
	"encoding/base64"
	"fmt"
)

// TopicID is Kafka's topic id (KIP-516). Its text form is Kafka's: URL-safe base64 without padding, 22 characters.
type TopicID [16]byte

const topicIDLen = 22

var topicIDText = base64.RawURLEncoding.Strict()

func (id TopicID) String() string { return topicIDText.EncodeToString(id[:]) }

// ParseTopicID parses the text form; only the one that String gives is accepted.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	if len(s) != topicIDLen {
		return id, fmt.Errorf("topic id %q: want %d characters", s, topicIDLen)
	}
	// DecodeString skips line breaks, so the length of the result matters too.
	b, err := topicIDText.DecodeString(s)
	if err != nil {
		return id, fmt.Errorf("topic id %q: %w", s, err)
	}
	if len(b) != len(id) {
		return id, fmt.Errorf("topic id %q: want %d bytes", s, len(id))
	}
	copy(id[:], b)
	return id, nil
}

// MarshalText and UnmarshalText let JSON documents carry the text form.
func (id TopicID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

func (id *TopicID) UnmarshalText(b []byte) error {
	got, err := ParseTopicID(string(b))
	if err == nil {
		*id = got
	}
	return err
}

// PartitionID names a partition for its whole life, through renames of nothing: names never identify data.
type PartitionID struct {
	Topic     TopicID
	Partition int32
}

func (p PartitionID) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Partition) }
