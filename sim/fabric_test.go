package sim

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// onFabric runs f with a connection from host 1 to host 2 that has carried a byte each way.
func onFabric(t *testing.T, f func(t *testing.T, n *fabric, here, there net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newFabric(rand.New(rand.NewPCG(1, 1)))
		l := n.listen(2)
		here, err := n.dial(t.Context(), 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		there, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		carries(t, here, there)
		carries(t, there, here)
		f(t, n, here, there)
	})
}

func carries(t *testing.T, from, to net.Conn) {
	t.Helper()
	if err := carry(from, to); err != nil {
		t.Fatal(err)
	}
}

// carry sends a byte, and waits for it a second.
func carry(from, to net.Conn) error {
	if _, err := from.Write([]byte{7}); err != nil {
		return err
	}
	to.SetReadDeadline(time.Now().Add(time.Second))
	defer to.SetReadDeadline(time.Time{})
	_, err := to.Read(make([]byte, 1))
	return err
}

func TestCutHoldsOneDirectionUntilItIsMended(t *testing.T) {
	onFabric(t, func(t *testing.T, n *fabric, here, there net.Conn) {
		n.cut(1, 2)
		if err := carry(here, there); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("through a cut: %v", err)
		}
		carries(t, there, here)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := n.dial(ctx, 2, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("dial through a cut: %v", err)
		}
		n.mend(1, 2)
		carries(t, here, there) // what was held comes first
	})
}

func TestEndOfAProcessIsToldWhereItGetsThrough(t *testing.T) {
	onFabric(t, func(t *testing.T, n *fabric, here, _ net.Conn) {
		n.cut(2, 1)
		n.killed(2)
		here.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := here.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read through a cut: %v", err)
		}
		n.mend(2, 1)
		here.SetReadDeadline(time.Time{})
		if _, err := here.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("read: %v", err)
		}
		if _, err := n.dial(t.Context(), 1, 2); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial where nobody listens: %v", err)
		}
	})
}

func TestEndOfAMachineIsSilentUntilItIsUpAgain(t *testing.T) {
	onFabric(t, func(t *testing.T, n *fabric, here, there net.Conn) {
		n.crashed(2)
		there.Close()
		here.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := here.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read: %v", err)
		}
		here.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Second, func() { n.booted(2) })
		if _, err := here.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("read after the boot: %v", err)
		}
	})
}

func TestWriterWaitsForAReaderThatDoesNotRead(t *testing.T) {
	onFabric(t, func(t *testing.T, _ *fabric, here, there net.Conn) {
		here.SetWriteDeadline(time.Now().Add(time.Minute))
		n, err := here.Write(make([]byte, 2*windowBytes))
		if n != windowBytes || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d bytes, %v", n, err)
		}
		here.SetWriteDeadline(time.Time{})
		read := make(chan int64)
		go func() {
			n, _ := io.Copy(io.Discard, there)
			read <- n
		}()
		if _, err := here.Write(make([]byte, 2*windowBytes)); err != nil {
			t.Fatal(err)
		}
		here.Close()
		if n := <-read; n != 3*windowBytes {
			t.Fatalf("%d bytes read", n)
		}
	})
}
