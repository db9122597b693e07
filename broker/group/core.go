package group

import (
	"github.com/varvelog/varve/internal/invariants"
)

// Core is the groups and committed offsets of one partition of __consumer_offsets: pure, so that the same calls give the same
// effects. Times are milliseconds of a clock that nobody sets, handed in; in records
// there are Unix milliseconds, see Set. One caller at a time.
//
// A method that answers at once returns its answer; one that may have to wait takes a Ticket and the answer comes as an effect, now
// or from a later call. Members and generations change when the core decides; what a client is told, and committed offsets, change when
// the record that says so is committed (Appended).
type Core struct {
	conf   Config
	groups map[string]*group
	alarms alarms
	writes map[uint64]write // begun by an Append effect, not Appended yet
	ref    uint64
	txns   map[int64]map[string]struct{} // producer id -> groups with offsets in its open transaction
	again  []DeletedTopic                // of which tombstones could not be written
	stats  Stats

	aheadMs int64 // see Set
}

// Stats count what the core has and what has happened since it was made.
type Stats struct {
	Groups, Offsets                         int
	Commits, Rebalances, Expired, Deletions uint64
}

// Ticket names a request that waits for its answer. The caller makes it unique among those that wait; never 0.
type Ticket uint64

// Effect is what the shell must do, in order.
type Effect interface{ effect() }

// Append asks to write records in one go and then to call Appended with Ref. Appends are answered in the order in which they came.
type Append struct {
	Ref     uint64
	Records []Record
}

// Answer completes a waiting request: the Result is a JoinResult, SyncResult, CommitResult, DeleteOffsetsResult or
// DeleteGroupsResult, as the request was.
type Answer struct {
	Ticket Ticket
	Result any
}

// Change tells an operator that a group entered a state, and why.
type Change struct {
	Group      string
	State      State
	Generation int32
	Members    int
	Reason     string
}

func (Append) effect() {}
func (Answer) effect() {}
func (Change) effect() {}

// write is what to do when the records of an Append are committed, at base, or were not written (err).
type write interface {
	done(c *Core, now, base int64, err error, out []Effect) []Effect
}

// NewCore makes an empty one. Replay what the log has, then call Loaded, then all else.
func NewCore(conf Config) *Core {
	conf.fill()
	invariants.Assert(conf.NewID != nil, "group: no source of member ids")
	return &Core{
		conf:   conf,
		groups: map[string]*group{},
		writes: map[uint64]write{},
		txns:   map[int64]map[string]struct{}{},
	}
}

// Stats is a copy of the counters.
func (c *Core) Stats() Stats {
	s := c.stats
	s.Groups = len(c.groups)
	return s
}

// Set tells by how many ms the clock that people read, of which the times in records are, is ahead of the one that now is of. It may be
// set at any time.
func (c *Core) Set(aheadMs int64) { c.aheadMs = aheadMs }

// wall is the time of day at now.
func (c *Core) wall(now int64) int64 { return now + c.aheadMs }

// Next is when Tick has something to do, if ever.
func (c *Core) Next() (int64, bool) { return c.alarms.next() }

// Tick rings the alarms that are due at now.
func (c *Core) Tick(now int64, out []Effect) []Effect {
	for a := c.alarms.pop(now); a != nil; a = c.alarms.pop(now) {
		switch a.ring {
		case ringMember:
			out = c.sessionEnds(now, a.group, a.id, out)
		case ringPending:
			out = c.pendingEnds(now, a.group, a.id, out)
		case ringJoin:
			out = c.completeJoin(now, a.group, out)
		case ringInitial:
			out = c.initialDelayEnds(now, a.group, out)
		case ringSync:
			out = c.syncEnds(now, a.group, out)
		}
	}
	return out
}

// append begins a write.
func (c *Core) append(w write, records []Record, out []Effect) []Effect {
	c.ref++
	c.writes[c.ref] = w
	return append(out, Append{Ref: c.ref, Records: records})
}

// Appended says that the records of an Append are committed, the first at offset base, or that err kept them out of the log for good.
func (c *Core) Appended(now int64, ref uint64, base int64, err error, out []Effect) []Effect {
	w, ok := c.writes[ref]
	invariants.Assert(ok, "group: append %d ends twice or never began", ref)
	delete(c.writes, ref)
	return w.done(c, now, base, err, out)
}

// get finds a group; nil if there is none.
func (c *Core) get(id string) *group { return c.groups[id] }

func (c *Core) getOrCreate(id string) *group {
	g := c.groups[id]
	if g == nil {
		g = newGroup(id)
		c.groups[id] = g
	}
	return g
}

// changed reports the state of a group.
func changed(g *group, reason string, out []Effect) []Effect {
	return append(out, Change{Group: g.id, State: g.state, Generation: g.generation, Members: len(g.members), Reason: reason})
}
