package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// nets numbers the networks of this process, whose addresses and interfaces differ.
var nets atomic.Int32

// Net is a switch and the hosts at it. All methods may be called concurrently.
type Net struct {
	*Lines
	number byte
	over   sync.WaitGroup // goroutines

	mu     sync.Mutex
	hosts  map[int]*Host     // guarded by mu
	queues map[[2]int]*queue // guarded by mu
	closed bool              // guarded by mu
}

// Host is a namespace with an interface at a Net.
type Host struct {
	IP  netip.Addr
	id  int
	ns  *os.File // nil: this process's
	dev *os.File
}

// New makes a network at which this process is the host Own.
func New() (*Net, error) {
	n := &Net{Lines: NewLines(), number: byte(nets.Add(1)), hosts: map[int]*Host{}, queues: map[[2]int]*queue{}}
	h := &Host{id: Own, IP: n.ip(Own)}
	var err error
	if h.dev, err = device(fmt.Sprintf("wire%d", n.number), h.IP); err != nil {
		return nil, err
	}
	n.plug(h)
	return n, nil
}

// ownOctet is the last of the address of Own; that of others is their id.
const ownOctet = 254

func (n *Net) ip(id int) netip.Addr {
	if id == Own {
		id = ownOctet
	}
	return netip.AddrFrom4([4]byte{10, 77, n.number, byte(id)})
}

// Add makes a host with an id from 1 to 253.
func (n *Net) Add(id int) (*Host, error) {
	if id < 1 || id >= ownOctet {
		return nil, fmt.Errorf("host %d: from 1 to %d", id, ownOctet-1)
	}
	h := &Host{id: id, IP: n.ip(id)}
	err := within(nil, func() (err error) {
		if h.ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		if err = up("lo"); err == nil {
			h.dev, err = device("eth0", h.IP)
		}
		return err
	})
	if err != nil {
		if h.ns != nil {
			h.ns.Close()
		}
		return nil, fmt.Errorf("host %d: %w", id, err)
	}
	n.plug(h)
	return h, nil
}

func (n *Net) plug(h *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[h.id] = h
	n.over.Go(func() { n.carry(h) })
}

// Start starts a process on the host, which does not outlive this process.
func (h *Host) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if h.ns == nil {
		return cmd.Start()
	}
	return within(h.ns, cmd.Start)
}

// Close unplugs all hosts. Processes on them live on, alone.
func (n *Net) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	var errs []error
	for _, h := range n.hosts {
		errs = append(errs, h.dev.Close())
		if h.ns != nil {
			errs = append(errs, h.ns.Close())
		}
	}
	for _, q := range n.queues {
		close(q.in)
	}
	n.mu.Unlock()
	n.over.Wait()
	return errors.Join(errs...)
}

// carry takes what a host sends until its device is closed.
func (n *Net) carry(h *Host) {
	b := make([]byte, mtuBytes+64)
	for {
		k, err := h.dev.Read(b)
		if err != nil {
			return
		}
		n.forward(h.id, b[:k])
	}
}

// forward hands one packet on: to whom its IPv4 header says, unless that is nobody, a cut, or bad luck.
func (n *Net) forward(from int, packet []byte) {
	if len(packet) < 20 || packet[0]>>4 != 4 {
		return
	}
	dst := netip.AddrFrom4([4]byte(packet[16:20]))
	to := int(dst.As4()[3])
	if to == ownOctet {
		to = Own
	}
	if n.stopped(from, to, packet) {
		return
	}
	_, poor, _ := n.State(from, to)
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[to]
	if n.closed || h == nil || h.IP != dst || rand.Float64() < poor[0].Loss || rand.Float64() < poor[1].Loss {
		return
	}
	if delay := poor[0].Delay + poor[1].Delay; delay > 0 {
		n.queue(from, h).put(packet, delay)
		return
	}
	_, _ = h.dev.Write(packet) // never blocks; what a device does not take is lost
}

// stopped says that the way is cut, or the packet's connection not known any more.
func (n *Net) stopped(from, to int, packet []byte) bool {
	if cut, _, _ := n.State(from, to); cut {
		return true
	}
	f, opens, ok := segment(from, to, packet)
	return ok && n.forgotten(f, opens)
}

// segment reads the ports of a TCP segment, and whether it opens a connection.
func segment(from, to int, packet []byte) (f flow, opens, ok bool) {
	const tcp, syn, ack = 6, 2, 16
	head := int(packet[0]&15) * 4
	if packet[9] != tcp || len(packet) < head+14 {
		return flow{}, false, false
	}
	t := packet[head:]
	return flow{from, to, binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])}, t[13]&(syn|ack) == syn, true
}

// queue is the packets on their way from one host to another, of which none overtakes another. A full one loses what comes.
type queue struct{ in chan late }

type late struct {
	packet []byte
	due    time.Time
}

const queuePackets = 4096

// queue, with mu.
func (n *Net) queue(from int, to *Host) *queue {
	key := [2]int{from, to.id}
	q := n.queues[key]
	if q == nil {
		q = &queue{make(chan late, queuePackets)}
		n.queues[key] = q
		n.over.Go(func() {
			for l := range q.in {
				<-time.After(time.Until(l.due))
				if !n.stopped(from, to.id, l.packet) { // it may have been since
					_, _ = to.dev.Write(l.packet)
				}
			}
		})
	}
	return q
}

func (q *queue) put(packet []byte, delay time.Duration) {
	select {
	case q.in <- late{append([]byte(nil), packet...), time.Now().Add(delay)}:
	default:
	}
}
