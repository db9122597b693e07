package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// client is one connection to the broker, made anew when it breaks; one request at a time. For one goroutine.
type client struct {
	dial     func() (net.Conn, error)
	patience time.Duration // for an answer, and then one try to connect is all; 0: answerWait, and tries without end
	conn     net.Conn
	next     int32
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("sim"))

const answerWait = 15 * time.Second

// do sends a request and waits for its answer. Any error leaves the outcome unknown.
func (c *client) do(ctx context.Context, _ *part, req kmsg.Request) (kmsg.Response, error) {
	if err := c.send(ctx, nil, req); err != nil {
		return nil, err
	}
	conn := c.conn
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	resp, err := c.receive(req)
	if err != nil {
		c.close()
	}
	return resp, err
}

// send writes a request, connecting first where it has to.
func (c *client) send(ctx context.Context, _ *part, req kmsg.Request) error {
	for c.conn == nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		conn, err := c.dial()
		if err != nil {
			pause(ctx, 100*time.Millisecond)
			if c.patience > 0 {
				return err
			}
			continue
		}
		c.conn = conn
	}
	c.next++
	wait := c.patience
	if wait == 0 {
		wait = answerWait
	}
	c.conn.SetDeadline(time.Now().Add(wait))
	if _, err := c.conn.Write(formatter.AppendRequest(nil, req, c.next)); err != nil {
		c.close()
		return err
	}
	return nil
}

func (c *client) receive(req kmsg.Request) (kmsg.Response, error) {
	var size [4]byte
	if _, err := io.ReadFull(c.conn, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > 64<<20 {
		return nil, fmt.Errorf("answer of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.conn, b); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != c.next {
		return nil, fmt.Errorf("answer to request %d, want %d", got, c.next)
	}
	b = b[4:]
	if req.IsFlexible() && req.Key() != kmsg.ApiVersions.Int16() {
		if len(b) == 0 {
			return nil, errors.New("answer without header")
		}
		b = b[1:]
	}
	resp := req.ResponseKind()
	return resp, resp.ReadFrom(b)
}

// certain: there is only one broker.
func (c *client) certain() (int32, bool) { return math.MaxInt32, true }

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}
