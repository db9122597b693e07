package broker

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/record"
)

// A follower's Fetch has a replica id and, from version 15 on, the epoch of its process. The offset that it asks for says what it has:
// that moves the high watermark and lets it into the ISR. It reads to the log's end. Deviation: with OFFSET_OUT_OF_RANGE the answer has
// the leader's log start and, as last stable offset, its log end, so that the follower need not ask for them. Records go with a tagged
// field of varve's own, when the leader appended them: offset, ms, span in ms of each stretch, 20 bytes.

// resolveReplica finds the partitions for a follower and notes what it has. Nothing is noted of one whose log diverges: what it has is
// not known before it has cut its log (PROTOCOLS 7.4).
func (c *conn) resolveReplica(lim *fetchLimits) {
	for i := range c.fetch.parts {
		f := &c.fetch.parts[i]
		f.p, f.err = c.s.Replicas.LeaderNow(replica.TopicPartition{Topic: f.name, ID: f.id, Partition: f.partition})
		if f.err == nil {
			f.err = f.p.CheckEpoch(f.currentEpoch)
		}
		if f.err == nil && f.lastFetchedEpoch >= 0 {
			f.checkDiverging()
		}
		if f.err == nil && !f.diverging.ok {
			f.err = f.p.Fetched(lim.replica, f.currentEpoch, lim.brokerEpoch, f.offset, f.replicaStart)
		}
		f.outside = f.p != nil && errors.Is(f.err, localseg.ErrOffsetOutOfRange)
		c.hint(f)
	}
}

// countReplicated charges what goes out to the throttle's rate.
func (c *conn) countReplicated(follower int32) {
	for i := range c.fetch.parts {
		if f := &c.fetch.parts[i]; f.err == nil && f.p != nil {
			f.p.Replicated(follower, f.slice.Size)
		}
	}
}

// news says that the session has been told another log start than there is now, or that a new one has a follower with another, for which
// a DeleteRecords may wait, or the follower's way into the ISR; or another high watermark, where consumers read from followers (KIP-392).
// These are told at once, others with their next records.
func (f *fetchPart) news(racks bool) bool {
	if f.cached == nil {
		return false
	}
	start := f.cached.logStart
	if start < 0 {
		start = f.replicaStart
	}
	return racks && f.slice.HighWatermark != f.cached.hw || start >= 0 && f.slice.LogStart != start
}

const (
	appendTimesTag  = 118 // of a partition in a Fetch response; Kafka's own are below 10
	appendTimeBytes = 8 + 8 + 4
)

func appendAppendTimes(b []byte, list []record.AppendTime) []byte {
	b = append(b, appendTimesTag)
	b = binary.AppendUvarint(b, uint64(len(list)*appendTimeBytes))
	for _, t := range list {
		b = appendInt64(b, t.Offset)
		b = appendInt64(b, t.Ms)
		b = appendInt32(b, int32(t.SpanMs))
	}
	return b
}

// decodeAppendTimes reads what a leader says of records that begin at offset base.
func decodeAppendTimes(b []byte, base int64) ([]record.AppendTime, error) {
	if len(b) == 0 || len(b)%appendTimeBytes != 0 {
		return nil, fmt.Errorf("append times in %d bytes: %w", len(b), errMalformed)
	}
	list := make([]record.AppendTime, 0, len(b)/appendTimeBytes)
	for ; len(b) > 0; b = b[appendTimeBytes:] {
		t := record.AppendTime{Offset: int64(binary.BigEndian.Uint64(b)), Ms: int64(binary.BigEndian.Uint64(b[8:])), SpanMs: binary.BigEndian.Uint32(b[16:])}
		n := len(list)
		if t.Offset < 0 || t.Ms <= 0 || n == 0 && t.Offset > base || n > 0 && (t.Offset <= list[n-1].Offset || t.Ms < list[n-1].LastMs()) {
			return nil, fmt.Errorf("append times %+v at %d: %w", t, n, errMalformed)
		}
		list = append(list, t)
	}
	return list, nil
}
