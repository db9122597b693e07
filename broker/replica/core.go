package replica

import (
	"fmt"
	"slices"
)

// Core is the arithmetic of one partition's replication: log end offset, high watermark, leader epoch, in-sync replicas, and what may
// be read. Pure: the shell tells it what happened, and it says what follows. Not safe for concurrent use.
//
// The rules are PROTOCOLS 7; where each is kept stands beside the code. Followers and the ISR are in isr.go.
type Core struct {
	self       int32
	role       role
	epoch      int32
	epochStart int64 // LEO when this broker was elected
	leo        int64
	hw         int64

	lagMs  int64 // replica.lag.time.max.ms
	minISR int32 // min.insync.replicas

	replicas  []int32
	isr       []int32   // as the metadata has it
	version   int32     // partition epoch of isr
	proposal  *Proposal // its outcome is not known yet
	followers []follower
}

type role uint8

const (
	idle role = iota
	leading
	following
)

// EventKind says what happened.
type EventKind uint8

const (
	Opened     EventKind = iota + 1 // the log was recovered: it ends at LEO; HW was its high watermark, as far as is known
	Elected                         // this broker leads in Epoch; its log ends at LEO
	Followed                        // another broker leads in Epoch, or none
	Resigned                        // this broker has no part in it any more
	Appended                        // the log now ends at LEO
	Restarted                       // the log was replaced by one that ends at LEO, all of it committed
	Truncated                       // the log now ends at LEO
	Told                            // the leader's answer, which did not diverge, says that its high watermark is HW
	Fetched                         // follower Replica asked for LEO in Epoch (-1: not told), so it has everything below, from LogStart on; this log begins at Start
	Ticked                          // time has passed
	Missed                          // the brokers Away are not registered now
	Known                           // the metadata has Replicas and ISR at Version, in Epoch
	Refused                         // the proposal of Version was not written and cannot be any more
	Configured                      // MinISR has changed
)

// Event is one thing that happened to a partition. Which fields count is said at the kinds.
type Event struct {
	Kind     EventKind
	Epoch    int32
	Version  int32 // partition epoch
	Replica  int32
	MinISR   int32
	LEO      int64
	HW       int64
	LogStart int64 // of a follower's log
	Start    int64 // of this broker's log
	NowMs    int64 // of a clock that never goes back
	Replicas []int32
	ISR      []int32
	Away     []int32

	BrokerEpoch int64 // of a fetching follower's process
	Eligible    bool  // it is the registered, unfenced one
}

// Effect is what the shell has to do.
type Effect struct {
	HWMoved bool      // readers may see more
	Began   bool      // a follower's log begins elsewhere
	Stopped bool      // parked requests must be answered NOT_LEADER_OR_FOLLOWER
	Stale   bool      // the fetch is of a former process of that follower: refuse it
	Fenced  bool      // the fetch is of another leader epoch: refuse it
	Under   bool      // fewer in-sync replicas than demanded, since now: parked acks=all requests must be told
	Propose *Proposal // write it to the metadata, then say Known or Refused
}

// Step applies an event.
func (c *Core) Step(e Event) Effect {
	switch e.Kind {
	case Opened:
		c.leo, c.hw = e.LEO, min(max(c.hw, e.HW), e.LEO)
	case Elected:
		return c.elect(e)
	case Followed:
		return c.follow(e)
	case Resigned:
		return c.leave()
	case Appended:
		return Effect{HWMoved: c.appended(e.LEO)}
	case Restarted:
		c.leo, c.hw, c.epochStart = e.LEO, e.LEO, e.LEO
		return Effect{HWMoved: true}
	case Truncated:
		c.leo, c.hw = e.LEO, min(c.hw, e.LEO)
	case Told:
		return Effect{HWMoved: c.told(e.HW)}
	case Fetched:
		return c.fetched(e)
	case Ticked:
		return Effect{Propose: c.shrink(e.NowMs)}
	case Missed:
		return c.missed(e)
	case Known:
		return c.known(e)
	case Refused:
		return c.refused(e)
	case Configured:
		c.minISR = e.MinISR
		return Effect{HWMoved: c.advance()}
	}
	return Effect{}
}

// elect: the high watermark is kept and moves on only by what the in-sync replicas say in this epoch.
func (c *Core) elect(e Event) Effect {
	if c.role == leading && e.Epoch <= c.epoch {
		return Effect{} // an old or repeated election changes nothing
	}
	stopped := c.role == leading
	c.role, c.epoch, c.epochStart, c.leo = leading, e.Epoch, e.LEO, e.LEO
	c.proposal, c.followers = nil, nil
	c.adopt(e)
	for i := range c.followers {
		if f := &c.followers[i]; f.inSync {
			f.caughtUpMs = e.NowMs // it has replica.lag.time.max.ms to show itself
		}
	}
	return Effect{HWMoved: c.advance(), Stopped: stopped}
}

func (c *Core) follow(e Event) Effect {
	stopped := c.role == leading
	if stopped && e.Epoch < c.epoch {
		return Effect{}
	}
	c.role, c.epoch = following, max(c.epoch, e.Epoch)
	c.proposal, c.followers, c.isr, c.replicas = nil, nil, nil, nil
	return Effect{Stopped: stopped}
}

func (c *Core) leave() Effect {
	stopped := c.role == leading
	c.role, c.proposal, c.followers = idle, nil, nil
	return Effect{Stopped: stopped}
}

func (c *Core) appended(leo int64) bool {
	c.leo = leo
	return c.advance()
}

// told: a follower's high watermark is the leader's, as far as its own log reaches (PROTOCOLS 7.4: never from a diverging answer).
func (c *Core) told(hw int64) bool {
	hw = min(hw, c.leo)
	if c.role != following || hw <= c.hw {
		return false
	}
	c.hw = hw
	return true
}

// advance moves the high watermark to the least LEO of the maximal ISR, what is known and what is proposed (PROTOCOLS 7.1). It never
// goes back. Below min.insync.replicas nothing becomes committed, as in Kafka 4.
func (c *Core) advance() bool {
	if c.role != leading || c.under() {
		return false
	}
	hw := c.leo
	for i := range c.followers {
		if f := &c.followers[i]; f.inSync || f.proposed {
			hw = min(hw, f.leo)
		}
	}
	// The cap that a cut sets (PROTOCOLS 6) is to be applied to hw here.
	if hw <= c.hw {
		return false
	}
	c.hw = hw
	return true
}

// under says that acks=all cannot hold: fewer in-sync replicas that are there than min.insync.replicas, of which there can be no more than
// replicas.
func (c *Core) under() bool {
	n := len(c.isr)
	for i := range c.followers {
		if f := &c.followers[i]; f.inSync && f.absent {
			n--
		}
	}
	return n < min(int(c.minISR), len(c.replicas))
}

// CheckEpoch compares the epoch that a client believes in with the current one; -1 is no belief (KIP-320).
func (c *Core) CheckEpoch(current int32, anyReplica bool) error {
	switch {
	case c.role != leading && !(anyReplica && c.role == following):
		return ErrNotLeader
	case current == -1 || current == c.epoch:
		return nil
	case current < c.epoch:
		return fmt.Errorf("epoch %d, now %d: %w", current, c.epoch, ErrFencedEpoch)
	}
	return fmt.Errorf("epoch %d, now %d: %w", current, c.epoch, ErrUnknownEpoch)
}

// Settled says that everything from before the election is committed: only then may latest offsets be told (KIP-207).
func (c *Core) Settled() bool { return c.hw >= c.epochStart }

// inSync says whether the metadata has the broker among the in-sync replicas.
func (c *Core) inSync(id int32) bool { return slices.Contains(c.isr, id) }
