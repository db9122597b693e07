package sim

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// wire is one connection: two halves, one for each direction.
type wire struct {
	f           *fabric
	a, b        int32 // who dialled, and whom
	here, there *wireEnd

	mu   sync.Mutex
	ends int // guarded by mu; that are closed
}

func newWire(f *fabric, from, to int32) *wire {
	w := &wire{f: f, a: from, b: to}
	out, back := newHalf(f, from, to), newHalf(f, to, from)
	w.here = newWireEnd(w, from, to, back, out)
	w.there = newWireEnd(w, to, from, out, back)
	return w
}

func (w *wire) endOf(id int32) *wireEnd {
	if w.a == id {
		return w.here
	}
	return w.there
}

// reset ends the connection for both, at once.
func (w *wire) reset() {
	w.here.out.fail(syscall.ECONNRESET)
	w.here.in.fail(syscall.ECONNRESET)
	w.f.forget(w)
}

func (w *wire) closedOne() {
	w.mu.Lock()
	w.ends++
	all := w.ends == 2
	w.mu.Unlock()
	if all {
		w.f.forget(w)
	}
}

// windowBytes is how much a direction holds that nobody has read yet.
const windowBytes = 64 << 10

// half is one direction of a wire.
type half struct {
	f        *fabric
	from, to int32

	mu     sync.Mutex
	queue  []segment     // guarded by mu
	size   int           // guarded by mu; bytes in queue
	err    error         // guarded by mu; the connection is gone
	ended  bool          // guarded by mu; the writer has closed it
	unread bool          // guarded by mu; the reader has closed its end: what is written is lost
	turn   chan struct{} // guarded by mu; closed and replaced at each change
}

// segment is bytes on their way. No bytes: the end.
type segment struct {
	at time.Time // not delivered before
	b  []byte
}

func newHalf(f *fabric, from, to int32) *half {
	return &half{f: f, from: from, to: to, turn: make(chan struct{})}
}

// wake is called with mu held.
func (h *half) wake() {
	close(h.turn)
	h.turn = make(chan struct{})
}

func (h *half) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
		h.wake()
	}
}

// push is called with mu held.
func (h *half) push(b []byte, delay time.Duration) {
	at := time.Now().Add(delay)
	if n := len(h.queue); n > 0 && at.Before(h.queue[n-1].at) {
		at = h.queue[n-1].at
	}
	h.queue = append(h.queue, segment{at, b})
	h.size += len(b)
	h.wake()
}

func (h *half) write(p []byte, until *deadline) (n int, err error) {
	for len(p) > 0 {
		h.mu.Lock()
		turn := h.turn
		room := windowBytes - h.size
		switch {
		case h.ended:
			err = net.ErrClosed
		case h.err != nil:
			err = h.err
		case h.unread:
			if ok, _ := h.f.passes(h.to, h.from); ok { // the other's reset has come
				err = syscall.EPIPE
			} else {
				room = len(p) // lost, and nobody knows
				n += room
				p = nil
			}
		case room > 0:
			room = min(room, len(p))
			h.push(append([]byte(nil), p[:room]...), h.f.delay())
			p = p[room:]
			n += room
		}
		h.mu.Unlock()
		if err != nil {
			return n, err
		}
		if room > 0 {
			continue
		}
		if err := until.wait(turn, nil, 0); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (h *half) read(p []byte, until *deadline) (int, error) {
	for {
		ok, changed := h.f.passes(h.from, h.to)
		h.mu.Lock()
		turn, left := h.turn, time.Duration(0)
		switch {
		case h.unread:
			h.mu.Unlock()
			return 0, net.ErrClosed
		case h.err != nil:
			err := h.err
			h.mu.Unlock()
			return 0, err
		case len(h.queue) > 0 && ok:
			s := &h.queue[0]
			if left = time.Until(s.at); left > 0 {
				break
			}
			if len(s.b) == 0 {
				h.mu.Unlock()
				return 0, io.EOF
			}
			n := copy(p, s.b)
			if s.b = s.b[n:]; len(s.b) == 0 {
				h.queue = h.queue[1:]
			}
			h.size -= n
			h.wake()
			h.mu.Unlock()
			return n, nil
		}
		h.mu.Unlock()
		if err := until.wait(turn, changed, left); err != nil {
			return 0, err
		}
	}
}

// deadline is what SetDeadline sets.
type deadline struct {
	mu   sync.Mutex
	at   time.Time     // guarded by mu; zero: none
	turn chan struct{} // guarded by mu; closed and replaced when at changes
}

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
	close(d.turn)
	d.turn = make(chan struct{})
}

// wait returns when something has changed, the duration has passed (0: for ever), or with an error at the deadline.
func (d *deadline) wait(turn, changed <-chan struct{}, left time.Duration) error {
	d.mu.Lock()
	at, moved := d.at, d.turn
	d.mu.Unlock()
	var timer <-chan time.Time
	if !at.IsZero() {
		until := time.Until(at)
		if until <= 0 {
			return os.ErrDeadlineExceeded
		}
		if left == 0 || until < left {
			left = until
		}
	}
	if left > 0 {
		t := time.NewTimer(left)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-turn:
	case <-changed:
	case <-moved:
	case <-timer:
	}
	return nil
}

// wireEnd is a net.Conn.
type wireEnd struct {
	w             *wire
	local, remote int32
	in, out       *half
	once          sync.Once
	reads, writes deadline
}

func (e *wireEnd) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return e.in.read(p, &e.reads)
}

func (e *wireEnd) Write(p []byte) (int, error) { return e.out.write(p, &e.writes) }

// Close implements net.Conn. The other end learns of it behind what was written before.
func (e *wireEnd) Close() error {
	e.once.Do(func() {
		e.out.mu.Lock()
		e.out.ended = true
		e.out.push(nil, e.w.f.delay())
		e.out.mu.Unlock()
		e.in.mu.Lock()
		e.in.unread, e.in.queue, e.in.size = true, nil, 0
		e.in.wake()
		e.in.mu.Unlock()
		e.w.closedOne()
	})
	return nil
}

func (e *wireEnd) LocalAddr() net.Addr  { return host(e.local) }
func (e *wireEnd) RemoteAddr() net.Addr { return host(e.remote) }

func (e *wireEnd) SetDeadline(t time.Time) error {
	e.reads.set(t)
	e.writes.set(t)
	return nil
}
func (e *wireEnd) SetReadDeadline(t time.Time) error  { e.reads.set(t); return nil }
func (e *wireEnd) SetWriteDeadline(t time.Time) error { e.writes.set(t); return nil }

func newWireEnd(w *wire, local, remote int32, in, out *half) *wireEnd {
	e := &wireEnd{w: w, local: local, remote: remote, in: in, out: out}
	e.reads.turn, e.writes.turn = make(chan struct{}), make(chan struct{})
	return e
}
