package cluster

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/e2e/proc"
)

// place is an end of the network: a broker by its id, the etcd, or all clients.
type place int32

const (
	clients place = 0
	etcd    place = 1000
)

// network is the only way between the processes of a test: a relay before each listener, whose address the listener's owner
// advertises. A way that is cut holds the bytes in that direction, as a network does that loses packets: nothing is refused and nothing
// is reset; once it is whole again they go on. Who connects is told by the process that holds the other end of the socket.
type network struct {
	t *testing.T

	mu    sync.Mutex
	cut   map[[2]place]bool    // guarded by mu
	whole chan struct{}        // guarded by mu; closed when a cut ends, then another
	pids  func() map[int]place // of the processes that run now
	conns map[net.Conn]bool    // guarded by mu
}

func newNetwork(t *testing.T, pids func() map[int]place) *network {
	n := &network{t: t, cut: map[[2]place]bool{}, whole: make(chan struct{}), pids: pids, conns: map[net.Conn]bool{}}
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
func (n *network) relay(to place, target string) string {
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
func (n *network) carry(in net.Conn, to place, target string) {
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
func (n *network) hold(c net.Conn) (release func()) {
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
func (n *network) pump(src, dst net.Conn, from, to place) {
	defer src.Close()
	defer dst.Close()
	b := make([]byte, 32<<10)
	for {
		k, err := src.Read(b)
		if k > 0 {
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

// await returns when the way is whole.
func (n *network) await(from, to place) {
	for {
		n.mu.Lock()
		cut, whole := n.cut[[2]place{from, to}], n.whole
		n.mu.Unlock()
		if !cut {
			return
		}
		<-whole
	}
}

// oneWay cuts the ways from one place to others.
func (n *network) oneWay(from place, to ...place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range to {
		n.cut[[2]place{from, p}] = true
	}
}

// bothWays cuts one place off from others.
func (n *network) bothWays(a place, others ...place) {
	n.oneWay(a, others...)
	for _, o := range others {
		n.oneWay(o, a)
	}
}

// heal ends all cuts.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
	close(n.whole)
	n.whole = make(chan struct{})
}

// caller finds whose process made the connection; what is none of the test's processes is a client.
func (n *network) caller(c net.Conn) place {
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
	f, err := os.Open("/proc/net/tcp")
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
