package broker

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
)

// Fetch (1), versions 4 to 18. The response is framed by hand (fetch_wire.go) and its record ranges are never copied to user space
// where that is cheaper. Sessions are in fetch_session.go, what followers fetch in fetch_replica.go, fetching from followers (KIP-392) in
// fetch_preferred.go. Deviations: max.wait is cut to connections.max.idle.ms.

// fetchScratch is what a connection reuses from one Fetch to the next.
type fetchScratch struct {
	parts []fetchPart
	reply fetchReply
	cold  coldReads
}

// fetchPart is one partition of a Fetch: what is asked, then what was found.
type fetchPart struct {
	name             string
	id               manifest.TopicID
	partition        int32
	offset           int64
	currentEpoch     int32
	lastFetchedEpoch int32
	maxBytes         int32
	replicaStart     int64        // a follower's log start
	cached           *sessionPart // nil without a session

	p         *replica.Partition
	err       error
	slice     replica.Slice
	coldMax   int // to be read from the archive, at most so many bytes
	cold      *coldRead
	coldDone  bool // slice comes from the archive
	dropped   bool // there was a batch, but larger than what the limits left
	diverging epochEnd
	leader    leaderHint
	follower  bool  // it is read here as from a follower
	prefers   bool  // the client is to read from another replica,
	preferred int32 // this one
	outside   bool  // a follower's offset is not in the log: it is told the bounds
}

// epochEnd is a leader epoch and where it ends. ok false: none.
type epochEnd struct {
	ok    bool
	epoch int32
	end   int64
}

// fetchLimits are what a Fetch demands as a whole.
type fetchLimits struct {
	minBytes, maxBytes int
	deadline           time.Time
	iso                replica.Isolation
	replica            int32 // the follower that fetches; -1: a consumer
	brokerEpoch        int64 // of its process
}

func (c *conn) handleFetch(h header, body []byte) error {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(h.version)
	if err := decode(req, body); err != nil {
		return err
	}
	sc := &c.fetch
	ctx, err := c.s.sessions.begin(req, sc.parts[:0])
	sc.parts = ctx.parts
	if err != nil {
		return c.replyFetch(h, &ctx, err)
	}
	lim := c.fetchLimits(req)
	if lim.replica >= 0 {
		c.resolveReplica(&lim)
	} else {
		c.resolve(req)
	}
	c.readUntil(&lim)
	if lim.replica >= 0 {
		c.countReplicated(lim.replica)
	}
	return c.replyFetch(h, &ctx, nil)
}

func (c *conn) fetchLimits(req *kmsg.FetchRequest) fetchLimits {
	lim := fetchLimits{iso: replica.ReadUncommitted, replica: req.ReplicaID, brokerEpoch: -1}
	if req.Version >= 15 {
		lim.replica, lim.brokerEpoch = req.ReplicaState.ID, req.ReplicaState.Epoch
	}
	if req.IsolationLevel == 1 {
		lim.iso = replica.ReadCommitted
	}
	lim.maxBytes = int(min(max(req.MaxBytes, 0), c.s.Options.MaxFetchBytes))
	lim.minBytes = min(int(req.MinBytes), lim.maxBytes)
	wait := time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond
	lim.deadline = time.Now().Add(min(wait, c.s.Options.MaxIdle))
	return lim
}

// resolve finds the partitions and checks the epochs (KIP-320). From version 11 on followers answer, too (KIP-392).
func (c *conn) resolve(req *kmsg.FetchRequest) {
	for i := range c.fetch.parts {
		f := &c.fetch.parts[i]
		if req.Version >= 13 && f.id == (manifest.TopicID{}) {
			f.err = replica.ErrUnknownTopicID
			continue
		}
		tp := replica.TopicPartition{Topic: f.name, ID: f.id, Partition: f.partition}
		if req.Version >= 11 {
			if f.p, f.err = c.s.Replicas.Replica(tp); f.err == nil {
				f.follower = !f.p.Leading()
				f.err = f.p.CheckReplicaEpoch(f.currentEpoch)
			}
		} else if f.p, f.err = c.s.Replicas.Leader(tp); f.err == nil {
			f.err = f.p.CheckEpoch(f.currentEpoch)
		}
		if f.err == nil && f.lastFetchedEpoch >= 0 {
			f.checkDiverging()
		}
		if f.err == nil && req.Version >= 11 && c.s.Options.RackAware {
			f.preferred, f.prefers = c.s.preferredReplica(f, req.Rack)
		}
		c.hint(f)
	}
}

// hint says in an answer who leads, where the client is wrong about it (KIP-951).
func (c *conn) hint(f *fetchPart) {
	if errors.Is(f.err, replica.ErrNotLeader) || errors.Is(f.err, replica.ErrFencedEpoch) {
		f.leader = c.s.leaderHint(f.name, f.id, f.partition)
	}
}

// checkDiverging compares the reader's history with ours: it may have records of an epoch that ended earlier here.
func (f *fetchPart) checkDiverging() {
	epoch, end := f.p.EndOffsetForEpoch(f.lastFetchedEpoch)
	switch {
	case epoch < 0 || end < 0:
		f.err = fmt.Errorf("end of epoch %d is not known: %w", f.lastFetchedEpoch, localseg.ErrOffsetOutOfRange)
	case f.offset < f.p.LogStart():
		f.err = fmt.Errorf("offset %d is below the log start: %w", f.offset, localseg.ErrOffsetOutOfRange)
	case epoch < f.lastFetchedEpoch || end < f.offset:
		f.diverging = epochEnd{ok: true, epoch: epoch, end: end}
	}
}

// readUntil reads all partitions until there is enough, an error, or the time has come.
func (c *conn) readUntil(lim *fetchLimits) {
	parts := c.fetch.parts
	if c.readAll(lim) || !time.Now().Before(lim.deadline) {
		return
	}
	// Register, then read again: what is appended in between is seen by one of the two.
	if c.waiter == nil {
		c.waiter = replica.NewWaiter()
	}
	for i := range parts {
		if p := parts[i].p; p != nil {
			c.await(p, lim)
		}
	}
	defer func() {
		for i := range parts {
			if p := parts[i].p; p != nil {
				c.unawait(p, lim)
			}
		}
	}()
	timer := time.NewTimer(time.Until(lim.deadline))
	defer timer.Stop()
	for !c.readAll(lim) {
		select {
		case <-c.waiter.C: // maybe left from the last Fetch: then one reading is for nothing
		case <-timer.C:
			return // what was read last is nearly as new
		case <-c.ctx.Done():
			return
		}
	}
}

// await has the connection's waiter woken when p may have more to read for this fetch.
func (c *conn) await(p *replica.Partition, lim *fetchLimits) {
	if lim.replica < 0 || c.s.Options.RackAware {
		p.AddWaiter(c.waiter)
	}
	if lim.replica >= 0 {
		p.AddTailWaiter(c.waiter)
	}
}

// unawait undoes await.
func (c *conn) unawait(p *replica.Partition, lim *fetchLimits) {
	if lim.replica < 0 || c.s.Options.RackAware {
		p.RemoveWaiter(c.waiter)
	}
	if lim.replica >= 0 {
		p.RemoveTailWaiter(c.waiter)
	}
}

// read reads the local log as this fetch may.
func (f *fetchPart) read(max int, lim *fetchLimits) (replica.Slice, error) {
	switch {
	case lim.replica >= 0:
		return f.p.ReadReplica(lim.replica, f.currentEpoch, f.offset, max)
	case f.follower:
		return f.p.ReadFollower(f.offset, max, lim.iso)
	}
	return f.p.ReadHot(f.offset, max, lim.iso)
}

// readAll reads every partition, first the local logs, then all of what only the archive has, in parallel. It says whether the
// answer can go out.
func (c *conn) readAll(lim *fetchLimits) bool {
	size, cold, ready := c.readHot(lim)
	if cold {
		size += c.readCold(lim)
		ready = true
		if size == 0 && c.retryDropped(lim) {
			return true
		}
	}
	return ready || size >= lim.minBytes || len(c.fetch.parts) == 0
}

// readHot reads the local logs in order within the limits: soft for the first batch of the first partition that has one (KIP-74).
func (c *conn) readHot(lim *fetchLimits) (size int, cold, ready bool) {
	left, first := lim.maxBytes, true
	for i := range c.fetch.parts {
		f := &c.fetch.parts[i]
		if f.err != nil || f.diverging.ok {
			ready = true
			continue
		}
		if f.coldDone {
			size += f.slice.Size
			left -= f.slice.Size
			first = first && f.slice.Size == 0
			continue
		}
		f.slice.Release()
		f.slice, f.coldMax, f.dropped = replica.Slice{}, 0, false
		if f.prefers {
			f.peek()
			ready = true
			continue
		}
		limit := min(int(f.maxBytes), left)
		if !first && limit <= 0 && f.peek() && (lim.replica < 0 || f.p.CheckEpoch(f.currentEpoch) == nil) { // see ReadReplica
			continue
		}
		sl, err := f.read(max(limit, 1), lim)
		switch {
		case errors.Is(err, localseg.ErrBelowLocal):
			if first || limit > 0 {
				f.coldMax = max(limit, 1)
				left -= f.coldMax
				cold, first = true, false
			}
			f.peek()
		case err != nil:
			f.err, ready = err, true
			c.hint(f)
		case !first && sl.Size > limit:
			sl.Release()
			f.slice = replica.Slice{
				Base: f.offset, Next: f.offset, HighWatermark: sl.HighWatermark, LastStable: sl.LastStable, LogStart: sl.LogStart,
			}
			f.dropped = true
		default:
			f.slice = sl
			size += sl.Size
			left -= sl.Size
			first = first && sl.Size == 0
			ready = ready || lim.replica >= 0 && f.news(c.s.Options.RackAware)
		}
	}
	return size, cold, ready
}

// peek fills in what an answer says of a partition whose records are not read. False: the offset is not in the log.
func (f *fetchPart) peek() bool {
	f.slice = replica.Slice{
		Base: f.offset, Next: f.offset,
		HighWatermark: f.p.HighWatermark(), LastStable: f.p.LastStable(), LogStart: f.p.LogStart(),
	}
	return f.offset >= f.slice.LogStart && f.offset <= f.slice.HighWatermark
}

// retryDropped reads the first partition whose batch was too large beside one that then brought nothing.
func (c *conn) retryDropped(lim *fetchLimits) bool {
	for i := range c.fetch.parts {
		f := &c.fetch.parts[i]
		if !f.dropped || f.err != nil || f.coldDone {
			continue
		}
		if sl, err := f.read(1, lim); err == nil {
			f.slice = sl
			return sl.Size > 0
		}
	}
	return false
}

// drop gives back what the connection still holds at its end.
func (sc *fetchScratch) drop() {
	for i := range sc.parts {
		sc.parts[i].slice.Release()
	}
	clear(sc.parts)
	sc.cold.drop()
	sc.reply.release()
}
