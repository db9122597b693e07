package replica

import "fmt"

// Core is the arithmetic of one partition's replication: log end offset, high watermark, leader epoch, and what may be read. Pure: the
// shell tells it what happened, and it says what follows. Not safe for concurrent use.
//
// With one replica the high watermark is the log end. Followers and the ISR enter by further events; the rules they must keep are
// PROTOCOLS 7.
type Core struct {
	leading    bool
	epoch      int32
	epochStart int64 // LEO when this broker was elected
	leo        int64
	hw         int64
}

// EventKind says what happened.
type EventKind uint8

const (
	Elected   EventKind = iota + 1 // this broker leads in Epoch; its log ends at LEO
	Resigned                       // another broker leads, or nobody
	Appended                       // the log now ends at LEO
	Restarted                      // the log was replaced by one that ends at LEO, all of it committed
)

// Event is one thing that happened to a partition.
type Event struct {
	Kind  EventKind
	Epoch int32
	LEO   int64
}

// Effect is what the shell has to do.
type Effect struct {
	HWMoved bool // readers may see more
	Stopped bool // parked requests must be answered NOT_LEADER_OR_FOLLOWER
}

// Step applies an event.
func (c *Core) Step(e Event) Effect {
	switch e.Kind {
	case Elected:
		if c.epochKnown(e.Epoch) {
			return Effect{} // an old or repeated election changes nothing
		}
		stopped := c.leading
		c.leading, c.epoch, c.epochStart, c.leo = true, e.Epoch, e.LEO, e.LEO
		return Effect{HWMoved: c.advance(), Stopped: stopped}
	case Resigned:
		stopped := c.leading
		c.leading = false
		return Effect{Stopped: stopped}
	case Appended:
		c.leo = e.LEO
		return Effect{HWMoved: c.advance()}
	case Restarted:
		c.leo, c.hw, c.epochStart = e.LEO, e.LEO, e.LEO
		return Effect{HWMoved: true}
	}
	return Effect{}
}

func (c *Core) epochKnown(epoch int32) bool { return c.leading && epoch <= c.epoch }

// advance moves the high watermark to the least LEO of the in-sync replicas, here the only one; it never goes back.
func (c *Core) advance() bool {
	if !c.leading || c.leo <= c.hw {
		return false
	}
	c.hw = c.leo
	return true
}

// CheckEpoch compares the epoch that a client believes in with the current one; -1 is no belief (KIP-320).
func (c *Core) CheckEpoch(current int32) error {
	switch {
	case !c.leading:
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
