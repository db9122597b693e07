package wire

import (
	"sync"
	"time"
)

// Own is the id of the host that is the test's own process.
const Own = 0

// Lines are the lines of hosts, by their ids, and what is wrong with them. Whoever carries what they send goes by it. All methods may be
// called concurrently.
type Lines struct {
	mu    sync.Mutex
	cut   map[[2]int]bool // guarded by mu; from, to
	poor  map[int]Poor    // guarded by mu
	lost  map[[2]int]bool // guarded by mu; between whom connections that were there are not known any more; the lower id first
	flows map[flow]bool   // guarded by mu; those that began since
	whole chan struct{}   // guarded by mu; closed when all is healed, then another
}

// Poor is what a host's line does, both ways: it loses a share of what is sent, and delays the rest.
type Poor struct {
	Loss  float64
	Delay time.Duration
}

// NewLines makes lines with which nothing is wrong.
func NewLines() *Lines {
	return &Lines{cut: map[[2]int]bool{}, poor: map[int]Poor{}, lost: map[[2]int]bool{}, flows: map[flow]bool{}, whole: make(chan struct{})}
}

// Cut has what goes from one host to another not arrive from now on.
func (l *Lines) Cut(from, to int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut[[2]int{from, to}] = true
}

// Impair makes a host's line poor.
func (l *Lines) Impair(id int, p Poor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.poor[id] = p
}

// Forget has the connections that two hosts have with each other be silent from now on, while new ones work, as behind a firewall that
// has lost its table. Relays do not go by it.
func (l *Lines) Forget(a, b int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.flows)
	l.lost[pair(a, b)] = true
}

func pair(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// flow is a TCP connection: who opened it, from which port, to whom.
type flow struct {
	from, to         int
	fromPort, toPort uint16
}

// forgotten says whether a segment belongs to a connection that is not known any more. opens: it is the first one of a connection.
func (l *Lines) forgotten(f flow, opens bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lost[pair(f.from, f.to)] {
		return false
	}
	if opens {
		l.flows[f] = true
	}
	return !l.flows[f] && !l.flows[flow{f.to, f.from, f.toPort, f.fromPort}]
}

// Heal ends all cuts and impairments.
func (l *Lines) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.cut)
	clear(l.poor)
	clear(l.lost)
	clear(l.flows)
	close(l.whole)
	l.whole = make(chan struct{})
}

// State is how what goes from one host to another fares: not at all, or over the poor lines of both. healed is closed by the next Heal.
func (l *Lines) State(from, to int) (cut bool, poor [2]Poor, healed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut[[2]int{from, to}], [2]Poor{l.poor[from], l.poor[to]}, l.whole
}
