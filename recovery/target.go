package recovery

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind of a target.
type Kind string

const (
	Latest  Kind = "latest"
	AtTime  Kind = "time"
	Offsets Kind = "offset"
)

// Target is what a restore goes back to.
type Target struct {
	Kind    Kind
	Time    int64         // ms, of AtTime
	Offsets []OffsetPoint // of Offsets
}

// OffsetPoint is where partitions end: Offset is exclusive, the first one that is not restored.
type OffsetPoint struct {
	Topic     string // "" where exactly one topic is restored
	Partition int32  // -1: all of the topic
	Offset    int64
}

func (p OffsetPoint) String() string {
	switch {
	case p.Topic != "" && p.Partition >= 0:
		return fmt.Sprintf("%s:%d=%d", p.Topic, p.Partition, p.Offset)
	case p.Partition >= 0:
		return fmt.Sprintf("%d=%d", p.Partition, p.Offset)
	}
	return strconv.FormatInt(p.Offset, 10)
}

// ParseOffsets reads a comma list of TOPIC:PARTITION=OFFSET, or of PARTITION=OFFSET or one plain OFFSET for the one topic
// that is restored.
func ParseOffsets(text string) ([]OffsetPoint, error) {
	var list []OffsetPoint
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		p, err := parseOffset(part)
		if err != nil {
			return nil, err
		}
		where := fmt.Sprintf("%s:%d", p.Topic, p.Partition)
		if seen[where] || p.Partition < 0 && strings.Contains(text, ",") {
			return nil, fmt.Errorf("%w: offset target %q: a partition is named twice", ErrRequest, text)
		}
		seen[where] = true
		list = append(list, p)
	}
	return list, nil
}

func parseOffset(text string) (OffsetPoint, error) {
	bad := func(why string) (OffsetPoint, error) {
		return OffsetPoint{}, fmt.Errorf("%w: offset target %q: %s; write TOPIC:PARTITION=OFFSET, PARTITION=OFFSET or OFFSET", ErrRequest, text, why)
	}
	p := OffsetPoint{Partition: -1}
	where, offset, placed := strings.Cut(strings.TrimSpace(text), "=")
	if !placed {
		where, offset = "", where
	}
	n, err := strconv.ParseInt(offset, 10, 64)
	if err != nil || n < 0 {
		return bad("the offset is not a number from 0")
	}
	p.Offset = n
	if !placed {
		return p, nil
	}
	if i := strings.LastIndexByte(where, ':'); i >= 0 {
		p.Topic, where = where[:i], where[i+1:]
		if err := checkTopicName(p.Topic); err != nil {
			return bad("the topic is no topic name")
		}
	}
	part, err := strconv.ParseInt(where, 10, 32)
	if err != nil || part < 0 {
		return bad("the partition is not a number from 0")
	}
	p.Partition = int32(part)
	return p, nil
}

// endOf is where a partition ends by an offset target; ok is false if the target does not name it.
func (t Target) endOf(topic string, partition int32) (int64, bool) {
	for _, p := range t.Offsets {
		if (p.Topic == "" || p.Topic == topic) && (p.Partition < 0 || p.Partition == partition) {
			return p.Offset, true
		}
	}
	return 0, false
}

// checkOffsets refuses an offset target that does not fit the topics that are restored.
func (t Target) checkOffsets(topics []chosen) error {
	if t.Kind != Offsets {
		return nil
	}
	for _, p := range t.Offsets {
		found := 0
		for _, c := range topics {
			if p.Topic != "" && p.Topic != c.rec.Name {
				continue
			}
			found++
			if p.Partition >= c.rec.Partitions {
				return fmt.Errorf("%w: offset target %s: topic %s has %d partitions", ErrRequest, p, c.rec.Name, c.rec.Partitions)
			}
		}
		switch {
		case found == 0:
			return fmt.Errorf("%w: offset target %s: the topic is not among those restored", ErrRequest, p)
		case found > 1 && p.Topic == "":
			return fmt.Errorf("%w: offset target %s names no topic, but %d are restored; write TOPIC:PARTITION=OFFSET", ErrRequest, p, found)
		}
	}
	for _, c := range topics {
		for n := range c.rec.Partitions {
			if _, ok := t.endOf(c.rec.Name, n); !ok {
				return fmt.Errorf("%w: the offset target has no offset for %s:%d", ErrRequest, c.rec.Name, n)
			}
		}
	}
	return nil
}
