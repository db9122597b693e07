package cluster

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/proc"
	"github.com/varvelog/varve/e2e/wire"
)

// relays are a network of relays, one before each listener, whose address the listener's owner advertises. A way that is cut holds the bytes in
// that direction, as a network does that loses packets: nothing is refused and nothing is reset; once it is whole again they go on. Who
// connects is told by the process that holds the other end of the socket.
type relays struct {
	t     *testing.T
	lines *wire.Lines
	pids  func() map[int]int // the places of the processes that run now

	mu    sync.Mutex
	conns map[net.Conn]bool // guarded by mu
}

func newRelays(t *testing.T, lines *wire.Lines, pids func() map[int]int) *relays {
	n := &relays{t: t, lines: lines, pids: pids, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for c := range n.conns {
			c.Close()
		}
	})
	return n
}

// relay listens in the stead of target, which belongs to a place, and returns its own address.
func (n *relays) relay(to int, target string) string {
	n.t.Helper()
	addr, err := proc.FreeAddr()
	if err != nil {
		n.t.Fatal(err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go n.carry(c, to, target)
		}
	}()
	return addr
}

// carry serves one connection until either end closes it.
func (n *relays) carry(in net.Conn, to int, target string) {
	defer n.hold(in)()
	from := n.caller(in)
	// A connection needs both ways to come about.
	n.await(from, to)
	n.await(to, from)
	out, err := net.Dial("tcp", target)
	if err != nil {
		// Refused: the process is gone, which the caller has to see as a refusal; the nearest to that is a reset.
		in.(*net.TCPConn).SetLinger(0)
		return
	}
	defer n.hold(out)()
	var ways sync.WaitGroup
	ways.Go(func() { n.pump(in, out, from, to) })
	ways.Go(func() { n.pump(out, in, to, from) })
	ways.Wait()
}

// hold remembers a connection for the test's end.
func (n *relays) hold(c net.Conn) (release func()) {
	n.mu.Lock()
	n.conns[c] = true
	n.mu.Unlock()
	return func() {
		c.Close()
		n.mu.Lock()
		delete(n.conns, c)
		n.mu.Unlock()
	}
}

// pump moves bytes from one end to the other while the way is whole.
func (n *relays) pump(src, dst net.Conn, from, to int) {
	defer src.Close()
	defer dst.Close()
	b := make([]byte, 32<<10)
	for {
		k, err := src.Read(b)
		if k > 0 {
			if d := n.late(from, to); d > 0 {
				proc.Pause(d)
			}
			n.await(from, to)
			if _, err := dst.Write(b[:k]); err != nil {
				return
			}
		}
		if err != nil {
			n.await(from, to) // the end of a stream travels as the bytes do
			return
		}
	}
}

// resend is how long TCP waits at least before it sends again what was lost.
const resend = 200 * time.Millisecond

// late is how long bytes take from one place to another: what is lost is sent again.
func (n *relays) late(from, to int) (d time.Duration) {
	_, poor, _ := n.lines.State(from, to)
	for _, l := range poor {
		d += l.Delay
		for again := resend; rand.Float64() < l.Loss; again *= 2 {
			d += again
		}
	}
	return d
}

// await returns when the way is whole.
func (n *relays) await(from, to int) {
	for {
		cut, _, healed := n.lines.State(from, to)
		if !cut {
			return
		}
		<-healed
	}
}

// caller finds whose process made the connection; what is none of the test's processes is a client.
func (n *relays) caller(c net.Conn) int {
	inode, err := inodeOf(c.RemoteAddr().(*net.TCPAddr).Port, c.LocalAddr().(*net.TCPAddr).Port)
	if err != nil {
		return clients
	}
	want := fmt.Sprintf("socket:[%s]", inode)
	for pid, p := range n.pids() {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, f := range files {
			if to, err := os.Readlink(f); err == nil && to == want {
				return p
			}
		}
	}
	return clients
}

// inodeOf finds the loopback socket with these ports in the kernel's table.
func inodeOf(local, remote int) (string, error) {
	f, err := os.Open("/proc/thread-self/net/tcp")
	if err != nil {
		return "", err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		w := strings.Fields(s.Text())
		if len(w) > 9 && portOf(w[1]) == local && portOf(w[2]) == remote {
			return w[9], nil
		}
	}
	return "", io.EOF
}

func portOf(hex string) int {
	_, p, _ := strings.Cut(hex, ":")
	n, err := strconv.ParseInt(p, 16, 32)
	if err != nil {
		return -1
	}
	return int(n)
}
