// Package peer keeps connections to the other brokers of the cluster and exchanges framed requests and responses on them.
//
// It knows neither what the frames say nor who leads what: callers encode and decode. A connection carries one request at a time; who
// wants several at once names several lanes. Nothing is retried here: a request whose connection breaks fails, and the next one dials.
package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// ErrUnknown says that the metadata does not tell where a broker is.
var ErrUnknown = errors.New("address of the broker is not known")

// Options of a Pool.
type Options struct {
	// Dial connects to an address; default: TCP, whose connections end when the other end has been silent for SilenceMax.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Address is where a broker listens for the others, host:port, and the epoch of its registration. Required.
	Address func(id int32) (address string, epoch int64, ok bool)
	// OnDown is called when a broker refuses a connection, or ends one that had worked: a hint that it may be dead. It must not
	// block. It is not called for requests that were given up.
	OnDown func(id int32)

	DialTimeout      time.Duration // default 3 s
	SilenceMax       time.Duration // what was sent is not acknowledged for so long: the line is dead; default 6 s, whole seconds
	MaxResponseBytes int           // default 100 MiB
}

func (o *Options) fill() {
	if o.SilenceMax < time.Second {
		o.SilenceMax = 6 * time.Second
	}
	if o.Dial == nil {
		d := Dialer(o.SilenceMax)
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
	}
	if o.OnDown == nil {
		o.OnDown = func(int32) {}
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = 3 * time.Second
	}
	if o.MaxResponseBytes <= 0 {
		o.MaxResponseBytes = 100 << 20
	}
}

// Pool has at most one connection for each broker and lane. All methods may be called concurrently.
type Pool struct {
	o Options

	mu     sync.Mutex
	lanes  map[laneKey]*lane // guarded by mu
	closed bool              // guarded by mu
}

type laneKey struct {
	id   int32
	lane int
}

// lane is a place for one connection; busy holds a token while a request uses it.
type lane struct {
	busy chan struct{}

	// Owned by the holder of the token.
	address string
	epoch   int64
	in      []byte // the last response

	mu sync.Mutex
	nc net.Conn // guarded by mu, so that Close can end a request under way; nil: none
}

// New makes a pool; it dials nothing.
func New(o Options) *Pool {
	o.fill()
	return &Pool{o: o, lanes: map[laneKey]*lane{}}
}

// ErrClosed says that the pool is closed.
var ErrClosed = errors.New("connections to other brokers are closed")

func (p *Pool) lane(id int32, n int) (*lane, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	k := laneKey{id, n}
	l := p.lanes[k]
	if l == nil {
		l = &lane{busy: make(chan struct{}, 1)}
		p.lanes[k] = l
	}
	return l, nil
}

// Do sends a request, frame without its length, and returns the response without its length. The response is valid until the next Do of
// the same broker and lane. When ctx ends the request is given up, and the connection with it.
func (p *Pool) Do(ctx context.Context, id int32, lane int, frame []byte) ([]byte, error) {
	l, err := p.lane(id, lane)
	if err != nil {
		return nil, err
	}
	select {
	case l.busy <- struct{}{}:
		defer func() { <-l.busy }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	nc, err := p.connect(ctx, id, l)
	if err != nil {
		return nil, fmt.Errorf("connect to broker %d: %w", id, err)
	}
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	resp, err := l.exchange(nc, frame, p.o.MaxResponseBytes)
	if !stop() && err == nil {
		err = ctx.Err() // the deadline may be set on it by now: of no use any more
	}
	if err == nil {
		return resp, nil
	}
	l.drop()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p.o.OnDown(id)
	return nil, fmt.Errorf("request to broker %d: %w", id, err)
}

// connect returns the lane's connection, dialled anew if there is none, or if the broker has moved or is another process now.
func (p *Pool) connect(ctx context.Context, id int32, l *lane) (net.Conn, error) {
	address, epoch, ok := p.o.Address(id)
	if !ok {
		return nil, ErrUnknown
	}
	if nc := l.conn(); nc != nil {
		if l.address == address && l.epoch == epoch {
			return nc, nil
		}
		l.drop()
	}
	dial, cancel := context.WithTimeout(ctx, p.o.DialTimeout)
	defer cancel()
	nc, err := p.o.Dial(dial, address)
	if err != nil {
		if ctx.Err() == nil {
			p.o.OnDown(id)
		}
		return nil, err
	}
	l.mu.Lock()
	l.nc = nc
	l.mu.Unlock()
	l.address, l.epoch = address, epoch
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		l.drop()
		return nil, ErrClosed
	}
	return nc, nil
}

func (l *lane) conn() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nc
}

func (l *lane) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nc != nil {
		l.nc.Close()
		l.nc = nil
	}
}

// keptBytes is the largest response buffer that is kept for the next one.
const keptBytes = 16 << 20

func (l *lane) exchange(nc net.Conn, frame []byte, limit int) ([]byte, error) {
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(frame)))
	bufs := net.Buffers{head[:], frame}
	if _, err := bufs.WriteTo(nc); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(head[:])))
	if n < 4 || n > limit {
		return nil, fmt.Errorf("response of %d bytes, limit %d", n, limit)
	}
	if cap(l.in) < n || cap(l.in) > keptBytes && n <= keptBytes {
		l.in = make([]byte, n)
	}
	l.in = l.in[:n]
	if _, err := io.ReadFull(nc, l.in); err != nil {
		return nil, err
	}
	return l.in, nil
}

// Close ends all connections, requests under way too; they fail.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	var all []*lane
	for _, l := range p.lanes {
		all = append(all, l)
	}
	p.mu.Unlock()
	for _, l := range all {
		l.drop()
	}
	return nil
}
