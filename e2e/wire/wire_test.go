//go:build linux

package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if !Entered() {
		if code, err := Enter(); err == nil {
			os.Exit(code)
		}
		os.Exit(m.Run())
	}
	os.Exit(m.Run())
}

// line is a connection from this process to a host.
type line struct {
	n        *Net
	h        *Host
	near, on net.Conn
}

// dialHost makes one; nil where this machine allows no namespaces, which the log tells.
func dialHost(t *testing.T) *line {
	t.Helper()
	err := errors.New("no namespace could be entered")
	if Entered() {
		err = Prepare()
	}
	if err != nil {
		t.Logf("not tried: %v", err)
		return nil
	}
	n, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	h, err := n.Add(1)
	if err != nil {
		t.Fatal(err)
	}
	l := &line{n: n, h: h}
	l.near, l.on = l.dial(t)
	return l
}

// dial makes another connection.
func (l *line) dial(t *testing.T) (near, on net.Conn) {
	t.Helper()
	var door net.Listener
	if err := within(l.h.ns, func() (err error) { door, err = net.Listen("tcp", l.h.IP.String()+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	near, err := net.DialTimeout("tcp", door.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if on, err = door.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); on.Close() })
	return near, on
}

// arrives tells whether a byte that one end sends is at the other within a time.
func arrives(t *testing.T, from, to net.Conn, within time.Duration) bool {
	t.Helper()
	if _, err := from.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	to.SetReadDeadline(time.Now().Add(within))
	_, err := io.ReadFull(to, make([]byte, 1))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the end of a line is an error, %v, not silence", err)
	}
	return err == nil
}

const (
	long  = time.Minute
	short = 700 * time.Millisecond
)

func TestWhatIsCutIsSilentAndTheOtherWayIsNot(t *testing.T) {
	l := dialHost(t)
	if l == nil {
		return
	}
	// The last byte brings the acknowledgement of the one before: an end that still waits for one when the way is cut sends nothing new.
	if !arrives(t, l.on, l.near, long) || !arrives(t, l.near, l.on, long) {
		t.Fatal("the line is dead from the start")
	}
	l.n.Cut(Own, 1)
	if arrives(t, l.near, l.on, short) {
		t.Error("what was sent over a cut has arrived")
	}
	if !arrives(t, l.on, l.near, long) {
		t.Error("the other way is cut too")
	}
	l.n.Heal()
	if !arrives(t, l.near, l.on, long) {
		t.Error("TCP did not send again what was lost")
	}
}

func TestForgottenConnectionsAreSilentAndNewOnesAreNot(t *testing.T) {
	l := dialHost(t)
	if l == nil {
		return
	}
	l.n.Forget(1, Own)
	if arrives(t, l.near, l.on, short) || arrives(t, l.on, l.near, short) {
		t.Error("what was sent over a forgotten connection has arrived")
	}
	if near, on := l.dial(t); !arrives(t, near, on, long) || !arrives(t, on, near, long) {
		t.Error("a new connection is silent too")
	}
	l.n.Heal()
	if !arrives(t, l.near, l.on, long) {
		t.Error("TCP did not send again what was lost")
	}
}

func TestPoorLineIsLateAndLosesSome(t *testing.T) {
	l := dialHost(t)
	if l == nil {
		return
	}
	const delay = 50 * time.Millisecond
	l.n.Impair(1, Poor{0.2, delay})
	began := time.Now()
	for range 3 {
		if !arrives(t, l.near, l.on, long) {
			t.Fatal("TCP did not send again what was lost")
		}
	}
	if took := time.Since(began); took < 3*delay {
		t.Errorf("three bytes, one after the other, took %s over a line with a delay of %s", took, delay)
	}
	l.n.Impair(1, Poor{1, delay})
	if arrives(t, l.near, l.on, short) {
		t.Error("a line that loses all has lost nothing")
	}
}
