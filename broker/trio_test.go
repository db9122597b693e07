package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/control"
	"github.com/varvelog/varve/broker/peer"
	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// trio is brokers 1, 2, ... in one bubble: one metadata store, a disk each, an in-memory network that can be cut, and the test as
// their controller.
type trio struct {
	t                        testing.TB
	kv                       *memkv.KV
	net                      *links
	bucket                   objstore.Bucket // nil: no tiering
	minISR                   int32
	racks                    bool
	local                    int64 // local.retention.bytes, with a bucket
	leaderRate, followerRate int64 // throttles, of all replicas of topics named "slow..."; 0: none

	control bool // real controllers instead of the test
	unclean bool // unclean.leader.election.enable, with control
	log     *slog.Logger
	brokers map[int32]*member
}

// member is one broker; its disk outlives its process.
type member struct {
	id     int32
	fs     *vfs.Mem
	kv     *memkv.KV
	store  *meta.Store
	parts  *replica.Manager
	server *Server
	stop   func(clean bool)
}

// inBubble runs f with n brokers in a synctest bubble.
func inBubble(t *testing.T, n int, set func(*trio), f func(c *trio)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &trio{t: t, kv: memkv.New(), net: newLinks(), minISR: 1, brokers: map[int32]*member{}, log: slog.New(slog.DiscardHandler)}
		if os.Getenv("VARVE_TEST_LOG") != "" {
			c.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}
		if set != nil {
			set(c)
		}
		for id := int32(1); id <= int32(n); id++ {
			c.brokers[id] = &member{id: id, fs: vfs.NewMem()}
			c.start(id)
		}
		c.until("all know each other", func() bool {
			for _, m := range c.brokers {
				if len(m.store.Image().Brokers) != n {
					return false
				}
			}
			return true
		})
		f(c)
		for _, m := range c.brokers {
			if m.stop != nil {
				m.stop(false)
			}
		}
	})
}

// start runs a new process of a broker on the disk of the last one.
func (c *trio) start(id int32) {
	c.t.Helper()
	m := c.brokers[id]
	m.kv = c.kv.Client()
	log := c.log.With("self", id)
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	var err error
	if m.store, err = meta.Open(ctx, m.kv, "", meta.Options{Logger: log}); err != nil {
		c.t.Fatal(err)
	}
	former := m.store.Image()
	g.Go(func() { m.store.Run(ctx) })
	advertised := []meta.Listener{{Name: "PLAINTEXT", Host: fmt.Sprintf("broker%d", id), Port: 9092}}
	rack := fmt.Sprintf("rack%d", id)
	previous, _, err := replica.CleanEpoch(m.fs, "data")
	if err != nil {
		c.t.Fatal(err)
	}
	epoch, keep, err := m.store.Register(ctx, meta.Broker{ID: id, Rack: rack, Listeners: advertised, Directory: rack, Previous: previous}, 10_000)
	if err != nil {
		c.t.Fatal(err)
	}
	g.Go(func() { keep(ctx) })
	if c.control {
		controller := control.New(m.store, control.Options{NodeID: id, Logger: log, Unclean: func(*meta.Topic) bool { return c.unclean }, MinISR: func(*meta.Topic) int32 { return c.minISR }})
		g.Go(func() { controller.Run(ctx) })
		c.until("admitted", func() bool { return m.store.Image().Admitted(id, epoch) })
	}
	var archive *tier.Archive
	if c.bucket != nil {
		info, inc, err := tier.OpenArchive(ctx, c.bucket, m.store.Image().Cluster)
		if err != nil {
			c.t.Fatal(err)
		}
		chunks, err := cache.New(cache.Options{})
		if err != nil {
			c.t.Fatal(err)
		}
		archive = tier.New(c.bucket, info, replica.Pointers{Store: m.store}, chunks, tier.Options{Broker: id, Incarnation: inc, MaxLag: 100 * time.Millisecond})
		g.Go(func() { archive.Run(ctx) })
	}
	peers := peer.New(peer.Options{
		Dial: func(ctx context.Context, address string) (net.Conn, error) { return c.net.dial(id, address) },
		Address: func(id int32) (string, int64, bool) {
			b := m.store.Image().Brokers[id]
			if b == nil {
				return "", 0, false
			}
			return b.Listeners[0].Host, b.Epoch, true
		},
	})
	m.parts, err = replica.NewManager(m.fs, m.store, archive, replica.Options{
		NodeID: id, Dir: "data", Logger: log, Controlled: true, Former: former, BrokerEpoch: func() int64 { return epoch },
		Upstream: &Upstream{NodeID: id, Peers: peers}, MinISR: func(*meta.Topic) int32 { return c.minISR },
		Throttle: func() (int64, int64) {
			return cmp.Or(c.leaderRate, math.MaxInt64), cmp.Or(c.followerRate, math.MaxInt64)
		},
		Throttled: func(t *meta.Topic) (leader, follower []string) {
			if strings.HasPrefix(t.Name, "slow") {
				return []string{"*"}, []string{"*"}
			}
			return nil, nil
		},
		LagMax: 10 * time.Second, Fetchers: 2, RetentionCheck: time.Second,
		TopicConfig: func(t *meta.Topic) (localseg.Config, tier.TopicConfig) {
			return localseg.Config{
				Delete: true, RetentionMs: -1, SegmentBytes: 4096, Tiered: c.bucket != nil, LocalRetentionBytes: c.local,
			}, tier.TopicConfig{Name: t.Name, RetentionMs: -1, RetentionBytes: -1}
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := m.parts.Start(ctx); err != nil {
		c.t.Fatal(err)
	}
	run, stopRun := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { m.parts.Run(run) })
	m.server, err = New(m.store, m.parts, Options{NodeID: id, Rack: rack, Advertised: advertised, Logger: log, RackAware: c.racks})
	if err != nil {
		c.t.Fatal(err)
	}
	l := c.net.listen(id)
	serve, stopServe := context.WithCancel(ctx)
	g.Go(func() { m.server.Serve(serve, l) })
	m.stop = func(clean bool) {
		m.stop = nil
		stopServe()
		down, done := context.WithTimeout(context.Background(), 2*time.Second)
		defer done()
		if !clean {
			c.net.crash(id)
		}
		m.server.Shutdown(down)
		stopRun()
		parts.Wait()
		peers.Close()
		if clean {
			if err := m.parts.Close(down); err != nil {
				c.t.Errorf("close: %v", err)
			}
		} else {
			m.parts.Abandon()
		}
		cancel()
		g.Wait()
	}
}

// until waits for ok in the bubble's time.
func (c *trio) until(what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("not within 2 min: %s", what)
		}
	}
}

// topic makes a topic of one partition with these replicas; the first one leads.
func (c *trio) topic(name string, replicas ...int32) *meta.Topic {
	c.t.Helper()
	s := c.brokers[replicas[0]].store
	t, err := s.CreateTopic(context.Background(), meta.TopicSpec{Name: name, Assignment: [][]int32{replicas}})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, id := range replicas {
		c.until("hosted", func() bool { return c.hosted(id, t) != nil })
	}
	return t
}

// hosted is the partition on that broker, led or not; nil if it has none.
func (c *trio) hosted(id int32, t *meta.Topic) *replica.Partition {
	if c.brokers[id].stop == nil {
		return nil
	}
	for _, p := range c.brokers[id].parts.All() {
		if p.ID().Topic == t.ID {
			return p
		}
	}
	return nil
}

// record reads the partition's record as it is in the store.
func (c *trio) record(t *meta.Topic) *meta.Partition {
	c.t.Helper()
	for _, m := range c.brokers {
		if m.stop == nil {
			continue
		}
		p, err := m.store.GetPartition(context.Background(), manifest.PartitionID{Topic: t.ID})
		if err == nil {
			return p
		}
	}
	c.t.Fatal("no record")
	return nil
}

// elect does what a controller does, and waits until the leader leads.
func (c *trio) elect(t *meta.Topic, leader int32, isr ...int32) {
	c.t.Helper()
	was := c.record(t)
	s := c.brokers[leader].store
	id := manifest.PartitionID{Topic: t.ID}
	c.until("elected", func() bool {
		if was = c.record(t); isr == nil {
			isr = was.ISR
		}
		err := s.Elect(context.Background(), []meta.Election{{ID: id, Leader: leader, ISR: isr}})
		return err == nil
	})
	c.until("leads", func() bool {
		p := c.hosted(leader, t)
		return p != nil && p.Leading() && p.LeaderEpoch() > was.LeaderEpoch
	})
}

// isr waits until the ISR is that, in any order.
func (c *trio) isr(t *meta.Topic, want ...int32) {
	c.t.Helper()
	var got []int32
	defer func() {
		if c.t.Failed() {
			c.t.Logf("ISR %v, want %v", got, want)
		}
	}()
	c.until(fmt.Sprintf("ISR is %v", want), func() bool {
		got = slices.Sorted(slices.Values(c.record(t).ISR))
		return slices.Equal(got, want)
	})
}

// dial opens a client's connection to a broker.
func (c *trio) dial(id int32) *client {
	c.t.Helper()
	nc, err := c.net.dial(0, fmt.Sprintf("broker%d", id))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { nc.Close() })
	return &client{t: c.t, conn: nc}
}

// produce sends n records in a batch to a broker and returns the answer.
func (c *trio) produce(to int32, t *meta.Topic, acks int16, values ...string) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	cl := c.dial(to)
	defer cl.conn.Close()
	resp := cl.do(produceReq(13, acks, t, 0, valueBatch(c.t, values...))).(*kmsg.ProduceResponse)
	return resp.Topics[0].Partitions[0]
}

func (c *trio) mustProduce(to int32, t *meta.Topic, values ...string) {
	c.t.Helper()
	if p := c.produce(to, t, -1, values...); p.ErrorCode != 0 {
		c.t.Fatalf("produce: code %d %s", p.ErrorCode, str(p.ErrorMessage))
	}
}

func valueBatch(t testing.TB, values ...string) []byte {
	t.Helper()
	recs := make([]record.Record, len(values))
	for i, v := range values {
		recs[i] = record.Record{Offset: int64(i), Timestamp: now(), Value: []byte(v)}
	}
	b, err := record.Build(nil, record.BatchOptions{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, recs)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// batchValues lists the values of all records in b.
func batchValues(t testing.TB, b []byte) (out []string) {
	t.Helper()
	for len(b) > 0 {
		batch, rest, err := record.Next(b)
		if err != nil {
			t.Fatal(err)
		}
		it := batch.Records(1 << 20)
		for it.Next() {
			out = append(out, string(it.Record().Value))
		}
		it.Close()
		b = rest
	}
	return out
}

// values lists what a broker has locally of its log in [from, to), whatever is committed.
func (c *trio) values(id int32, t *meta.Topic, from, to int64) []string {
	c.t.Helper()
	p := c.hosted(id, t)
	var out []string
	for from < to {
		span, err := p.Log().Read(from, to, 1<<20)
		if err != nil {
			c.t.Fatalf("broker %d: read %d: %v", id, from, err)
		}
		b := make([]byte, span.Size)
		if _, err := span.ReadAt(b, 0); err != nil && err != io.EOF {
			c.t.Fatal(err)
		}
		if span.Size == 0 {
			span.Release()
			break
		}
		from = span.Next
		span.Release()
		out = append(out, batchValues(c.t, b)...)
	}
	return out
}

// same waits until the logs of these brokers are equal to their ends, and everything in them is committed.
func (c *trio) same(t *meta.Topic, ids ...int32) []string {
	c.t.Helper()
	c.until("equal logs", func() bool {
		for _, id := range ids {
			p := c.hosted(id, t)
			if p == nil || p.LEO() != c.hosted(ids[0], t).LEO() || p.HighWatermark() != p.LEO() {
				return false
			}
		}
		return true
	})
	end, start := c.hosted(ids[0], t).LEO(), int64(0)
	for _, id := range ids {
		start = max(start, c.hosted(id, t).Log().LocalStart())
	}
	want := c.values(ids[0], t, start, end)
	for _, id := range ids[1:] {
		if got := c.values(id, t, start, end); !slices.Equal(got, want) {
			c.t.Fatalf("broker %d has\n%q\nbroker %d has\n%q", ids[0], want, id, got)
		}
	}
	return want
}

// links is a network of net.Pipe. 0 is a client: never cut off.
type links struct {
	mu        sync.Mutex
	listeners map[string]*linkListener
	conns     map[*linkConn]struct{}
	cuts      map[[2]int32]bool
	late      map[int32]time.Duration // how long what others answer a broker is under way
}

func newLinks() *links {
	return &links{listeners: map[string]*linkListener{}, conns: map[*linkConn]struct{}{}, cuts: map[[2]int32]bool{}, late: map[int32]time.Duration{}}
}

type linkConn struct {
	net.Conn
	n        *links
	from, to int32
}

func (c *linkConn) Read(p []byte) (int, error) {
	k, err := c.Conn.Read(p)
	c.n.mu.Lock()
	late := c.n.late[c.from]
	c.n.mu.Unlock()
	if k > 0 && late > 0 {
		time.Sleep(late)
	}
	return k, err
}

// delay has what others answer a broker arrive so much later; 0: at once.
func (n *links) delay(id int32, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.late[id] = d
}

var errRefused = errors.New("connection refused")

func (n *links) dial(from int32, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[address]
	if l == nil || n.cuts[[2]int32{from, l.id}] {
		return nil, errRefused
	}
	a, b := net.Pipe()
	c := &linkConn{a, n, from, l.id}
	n.conns[c] = struct{}{}
	select {
	case l.ch <- b:
		return c, nil
	case <-l.done:
		return nil, errRefused
	}
}

func (n *links) listen(id int32) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &linkListener{id: id, n: n, ch: make(chan net.Conn, 100), done: make(chan struct{})}
	n.listeners[fmt.Sprintf("broker%d", id)] = l
	return l
}

// cut ends and refuses connections between two brokers, either way; heal undoes it.
func (n *links) cut(a, b int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[[2]int32{a, b}], n.cuts[[2]int32{b, a}] = true, true
	for c := range n.conns {
		if c.from == a && c.to == b || c.from == b && c.to == a {
			c.Close()
			delete(n.conns, c)
		}
	}
}

func (n *links) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

// crash ends every connection from and to a broker.
func (n *links) crash(id int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if c.from == id || c.to == id {
			c.Close()
			delete(n.conns, c)
		}
	}
}

type linkListener struct {
	id   int32
	n    *links
	ch   chan net.Conn
	done chan struct{}
	once sync.Once
}

func (l *linkListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ch:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *linkListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.n.mu.Lock()
		delete(l.n.listeners, fmt.Sprintf("broker%d", l.id))
		l.n.mu.Unlock()
	})
	return nil
}

func (l *linkListener) Addr() net.Addr {
	return &net.UnixAddr{Name: fmt.Sprintf("broker%d", l.id), Net: "pipe"}
}
