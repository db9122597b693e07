package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

// fabric joins brokers and clients by connections in memory that behave as TCP over a network that somebody meddles with: bytes take
// their time, a direction that is cut delivers nothing until it is healed, the end of a process ends its connections, and that of a
// machine leaves them hanging until it is up again. Hosts are numbered: brokers from 1 on, clients from firstClient on.
type fabric struct {
	mu      sync.Mutex
	rng     *rand.Rand         // guarded by mu
	slow    time.Duration      // guarded by mu; longest latency
	ports   map[int32]*port    // guarded by mu; who listens
	off     map[int32]bool     // guarded by mu; machines that are down
	cuts    map[[2]int32]int   // guarded by mu; how often a direction, from and to, is cut
	wires   map[*wire]struct{} // guarded by mu
	changed chan struct{}      // guarded by mu; closed and replaced when cuts or off change
}

const (
	firstClient = 100
	anyHost     = -1 // in a cut: every host
	usualSlow   = 2 * time.Millisecond
)

func newFabric(rng *rand.Rand) *fabric {
	return &fabric{
		rng: rng, slow: usualSlow, ports: map[int32]*port{}, off: map[int32]bool{}, cuts: map[[2]int32]int{}, wires: map[*wire]struct{}{},
		changed: make(chan struct{}),
	}
}

// turn wakes who waits for a change. Called with mu held.
func (f *fabric) turn() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// cut stops the delivery from one host to another, anyHost for all, until mend has been called as often.
func (f *fabric) cut(from, to int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cuts[[2]int32{from, to}]++
	f.turn()
}

func (f *fabric) mend(from, to int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cuts[[2]int32{from, to}]--
	f.turn()
}

// heal mends everything.
func (f *fabric) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.cuts)
	f.slow = usualSlow
	f.turn()
}

func (f *fabric) setSlow(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow = d
}

// passes says whether something gets from one host to the other now, and what is closed when that may have changed.
func (f *fabric) passes(from, to int32) (bool, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range [][2]int32{{from, to}, {from, anyHost}, {anyHost, to}} {
		if f.cuts[k] > 0 {
			return false, f.changed
		}
	}
	return !f.off[from] && !f.off[to], f.changed
}

// delay draws a latency; no two are likely to be the same.
func (f *fabric) delay() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 50*time.Microsecond + time.Duration(f.rng.Int64N(int64(f.slow)))
}

// listen makes a broker's listener.
func (f *fabric) listen(id int32) *port {
	p := &port{id: id, f: f, accept: make(chan net.Conn, 128), gone: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ports[id] = p
	return p
}

// dial connects two hosts. A machine that is off, or cut off, does not answer; one on which nobody listens refuses.
func (f *fabric) dial(ctx context.Context, from, to int32) (net.Conn, error) {
	for _, way := range [][2]int32{{from, to}, {to, from}} {
		pause(ctx, f.delay())
		for {
			ok, changed := f.passes(way[0], way[1])
			if ok {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, fmt.Errorf("dial broker %d: %w", to, ctx.Err())
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.ports[to]
	if p == nil {
		return nil, fmt.Errorf("dial broker %d: %w", to, syscall.ECONNREFUSED)
	}
	w := newWire(f, from, to)
	select {
	case p.accept <- w.there:
		f.wires[w] = struct{}{}
		return w.here, nil
	default:
		return nil, fmt.Errorf("dial broker %d: backlog is full: %w", to, syscall.ETIMEDOUT)
	}
}

// killed ends what a process had: its listener at once, its connections as far as the word gets through.
func (f *fabric) killed(id int32) {
	for _, w := range f.leave(id) {
		w.endOf(id).Close()
	}
}

// crashed takes a machine down, without a word to anybody, until booted.
func (f *fabric) crashed(id int32) {
	f.mu.Lock()
	f.off[id] = true
	f.turn()
	f.mu.Unlock()
	f.leave(id)
}

// booted brings a machine up again: it knows nothing of its former connections.
func (f *fabric) booted(id int32) {
	f.mu.Lock()
	if !f.off[id] {
		f.mu.Unlock()
		return
	}
	delete(f.off, id)
	f.turn()
	lost := f.of(id)
	f.mu.Unlock()
	for _, w := range lost {
		w.reset()
	}
}

func (f *fabric) leave(id int32) []*wire {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.ports[id]; p != nil {
		delete(f.ports, id)
		p.shut()
	}
	return f.of(id)
}

// of lists the connections of a host. Called with mu held.
func (f *fabric) of(id int32) (out []*wire) {
	for w := range f.wires {
		if w.a == id || w.b == id {
			out = append(out, w)
		}
	}
	return out
}

func (f *fabric) forget(w *wire) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.wires, w)
}

// port is a broker's net.Listener.
type port struct {
	id     int32
	f      *fabric
	accept chan net.Conn
	gone   chan struct{}
	once   sync.Once
}

func (p *port) shut() { p.once.Do(func() { close(p.gone) }) }

// Accept implements net.Listener.
func (p *port) Accept() (net.Conn, error) {
	select {
	case <-p.gone:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.gone:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *port) Close() error {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if p.f.ports[p.id] == p {
		delete(p.f.ports, p.id)
	}
	p.shut()
	return nil
}

// Addr implements net.Listener.
func (p *port) Addr() net.Addr { return host(p.id) }

// host is a net.Addr.
type host int32

func (h host) Network() string { return "sim" }
func (h host) String() string  { return fmt.Sprintf("broker%d:9092", int32(h)) }
