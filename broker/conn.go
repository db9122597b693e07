package broker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/replica"
)

// conn is one client connection. Its requests are handled in order by one goroutine, the reader, which also writes the responses;
// only while a Produce waits for its acknowledgement a second goroutine writes (see outbox), and the reader goes on reading.
// All fields but those of outbox and draining are owned by the reader.
type conn struct {
	s  *Server
	nc net.Conn
	br *bufio.Reader

	// ctx ends when waiting makes no sense any more: the connection ended or the server stops. Handlers that wait watch it, and
	// answer with what they have.
	ctx      context.Context
	cancel   context.CancelFunc
	draining atomic.Bool

	// gone ends when nobody is there to be answered: what has been accepted need not be waited for.
	gone  context.Context
	leave context.CancelFunc

	listener        string // name of the listener that accepted it
	clientID        string // of the request being handled
	softwareName    string // KIP-511, from ApiVersions
	softwareVersion string

	outbox  outbox
	send    sender
	produce produceScratch
	fetch   fetchScratch
	waiter  *replica.Waiter
}

const readBufferBytes = 16 << 10

func newConn(s *Server, nc net.Conn, listener string) *conn {
	c := &conn{s: s, nc: nc, listener: listener, br: bufio.NewReaderSize(nc, readBufferBytes)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.gone, c.leave = context.WithCancel(context.Background())
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetNoDelay(true)
		if n := s.Options.SendBufferBytes; n > 0 {
			tcp.SetWriteBuffer(n)
		}
		if n := s.Options.RecvBufferBytes; n > 0 {
			tcp.SetReadBuffer(n)
		}
	}
	c.send.init(nc, s.Options.MaxIdle)
	c.outbox.init(c)
	return c
}

// drain lets the request under way finish and ends the connection then. Called by Shutdown.
func (c *conn) drain() {
	c.draining.Store(true)
	c.cancel()
	c.nc.SetReadDeadline(time.Unix(1, 0)) // ends a wait for the next request
}

// cut ends the connection at once. Called by Shutdown.
func (c *conn) cut() {
	c.cancel()
	c.leave()
	c.nc.Close()
}

// run reads and answers requests until the connection ends.
func (c *conn) run() {
	err := c.loop()
	if err != nil {
		c.leave()
	}
	if ferr := c.outbox.finish(); err == nil {
		err = ferr
	}
	c.cancel()
	c.leave()
	c.nc.Close()
	c.fetch.drop()
	switch {
	case err == nil || quiet(err):
		c.s.Options.Logger.Debug("connection ended", "client", c.nc.RemoteAddr().String(), "err", err)
	default:
		c.s.metrics.badFrames.Inc()
		c.s.Options.Logger.Warn("connection closed", "client", c.nc.RemoteAddr().String(), "err", err)
	}
}

// quiet says that err is how connections normally end.
func quiet(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, context.Canceled) || errors.As(err, &op) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) // from sendfile, without a net.OpError
}

// errDone ends the loop without a fault.
var errDone = errors.New("connection is done")

func (c *conn) loop() error {
	for {
		f, err := c.readFrame()
		if errors.Is(err, errDone) {
			return nil
		}
		if err != nil {
			return err
		}
		size := int64(len(f.b))
		err = c.handle(f)
		c.s.budget.release(size)
		if errors.Is(err, errDone) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readFrame reads one request, without its length. Small responses wait in the outbox while more whole requests are there.
func (c *conn) readFrame() (*buffer, error) {
	const prefix = 4 + headerBytes
	if n := c.br.Buffered(); n < prefix || !c.wholeFrame(n) {
		if err := c.outbox.flush(); err != nil {
			return nil, err
		}
		c.nc.SetReadDeadline(time.Now().Add(c.s.Options.MaxIdle))
	}
	if c.draining.Load() { // after the deadline was set, so that drain's own is not overwritten unseen
		return nil, errDone
	}
	head, err := c.br.Peek(prefix)
	if err != nil {
		if c.draining.Load() || len(head) == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, errDone
		}
		return nil, err
	}
	size, key := int32(binary.BigEndian.Uint32(head)), int16(binary.BigEndian.Uint16(head[4:]))
	if _, ok := c.s.lookup(key); !ok {
		return nil, fmt.Errorf("api key %d: %w", key, errMalformed)
	}
	if size < headerBytes || size > c.s.frameLimit(key) {
		return nil, fmt.Errorf("request of %d bytes for api key %d, limit %d: %w", size, key, c.s.frameLimit(key), errMalformed)
	}
	c.br.Discard(4)
	if err := c.s.budget.acquire(c.ctx, int64(size)); err != nil {
		return nil, err
	}
	f := c.frame(key, int(size))
	if _, err := io.ReadFull(c.br, f.b); err != nil {
		c.s.budget.release(int64(size))
		f.free()
		return nil, err
	}
	return f, nil
}

// wholeFrame tells whether the n buffered bytes hold the next request to its end.
func (c *conn) wholeFrame(n int) bool {
	head, err := c.br.Peek(4)
	return err == nil && int64(n)-4 >= int64(binary.BigEndian.Uint32(head))
}

// frame returns the buffer for a request: pooled where the handler keeps nothing of it, else of its own, since what kmsg decodes
// aliases it.
func (c *conn) frame(key int16, size int) *buffer {
	switch kmsg.Key(key) {
	case kmsg.Produce, kmsg.Fetch:
		return getBuffer(size)
	}
	return &buffer{b: make([]byte, size), class: -1}
}

// handle answers the request in f and frees it.
func (c *conn) handle(f *buffer) error {
	defer f.free()
	h, body, err := parseHeader(f.b, flexibleVersion)
	a, _ := c.s.lookup(h.key)
	if h.version < a.min || h.version > a.max {
		if kmsg.Key(h.key) == kmsg.ApiVersions {
			return c.tooNewApiVersions(h)
		}
		return fmt.Errorf("%s version %d, served %d to %d: %w", kmsg.NameForKey(h.key), h.version, a.min, a.max, errMalformed)
	}
	if err != nil {
		return fmt.Errorf("%s version %d: %w", kmsg.NameForKey(h.key), h.version, err)
	}
	if c.clientID != string(h.clientID) {
		c.clientID = string(h.clientID)
	}
	c.s.metrics.count(h.key)
	switch kmsg.Key(h.key) {
	case kmsg.Produce:
		err = c.handleProduce(h, body)
	case kmsg.Fetch:
		err = c.handleFetch(h, body)
	default:
		err = c.handlePlain(a, h, body)
	}
	if err != nil && !errors.Is(err, errDone) {
		return fmt.Errorf("%s version %d: %w", kmsg.NameForKey(h.key), h.version, err)
	}
	return err
}

// handlePlain decodes with kmsg, calls the handler and queues its response.
func (c *conn) handlePlain(a api, h header, body []byte) error {
	req := kmsg.RequestForKey(h.key)
	req.SetVersion(h.version)
	if err := decode(req, body); err != nil {
		return err
	}
	resp, err := a.handle(c.s, c, req)
	if err != nil || resp == nil {
		return err
	}
	resp.SetVersion(h.version)
	dst := c.outbox.begin()
	start := len(dst)
	dst = resp.AppendTo(responseHeader(dst, h))
	return c.outbox.end(dst, start)
}

// decode reads req from all of body. kmsg accepts bytes after the request; those are found by reading one byte less, which must
// fail, since a decoder that runs forward needs each byte of a request.
func decode(req kmsg.Request, body []byte) error {
	if len(body) > 0 && req.ReadFrom(body[:len(body)-1]) == nil {
		return fmt.Errorf("bytes after the request: %w", errMalformed)
	}
	if err := req.ReadFrom(body); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return nil
}

// listenerName is the name of the listener that the client came through.
func (c *conn) listenerName() string { return c.listener }
