package broker

import (
	"errors"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/localseg"
)

// A follower's Fetch has a replica id and, from version 15 on, the epoch of its process. The offset that it asks for says what it has:
// that moves the high watermark and lets it into the ISR. It reads to the log's end. Deviation: with OFFSET_OUT_OF_RANGE the answer has
// the leader's log start and, as last stable offset, its log end, so that the follower need not ask for them.

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
			f.err = f.p.Fetched(lim.replica, lim.brokerEpoch, f.offset, f.replicaStart)
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

// news says that the session has been told another log start than there is now, for which a DeleteRecords may wait, or another high
// watermark, where consumers read from followers (KIP-392): these are told at once, others with their next records.
func (f *fetchPart) news(racks bool) bool {
	return f.cached != nil && (racks && f.slice.HighWatermark != f.cached.hw || f.cached.logStart >= 0 && f.slice.LogStart != f.cached.logStart)
}
