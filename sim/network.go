package sim

import (
	"net"
	"sync"
)

// network joins clients and the one broker by pipes in memory: TCP would keep a bubble from ever being idle.
type network struct {
	mu   sync.Mutex
	host *listener // guarded by mu; nil: nobody listens
}

// listen makes the broker's listener; a former one is cut.
func (n *network) listen() *listener {
	l := &listener{accept: make(chan net.Conn), gone: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.host = l
	return l
}

// dial connects to the broker, or refuses.
func (n *network) dial() (net.Conn, error) {
	n.mu.Lock()
	l := n.host
	n.mu.Unlock()
	if l == nil {
		return nil, net.ErrClosed
	}
	here, there := net.Pipe()
	if !l.keep(there) {
		return nil, net.ErrClosed
	}
	select {
	case l.accept <- there:
		return here, nil
	case <-l.gone:
		return nil, net.ErrClosed
	}
}

// listener is a net.Listener that remembers its connections, to cut them all at once as the end of a process does.
type listener struct {
	accept chan net.Conn
	gone   chan struct{}

	mu    sync.Mutex
	shut  bool                  // guarded by mu
	conns map[net.Conn]struct{} // guarded by mu
}

func (l *listener) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.gone:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: no new connections; those there are live on.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.shut {
		l.shut = true
		close(l.gone)
	}
	return nil
}

// cut closes the listener and all connections.
func (l *listener) cut() {
	l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
	clear(l.conns)
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "pipe" }
func (address) String() string  { return "sim:9092" }
