package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// world is one broker in this process: metadata in memory, logs in a directory, a listener on loopback.
type world struct {
	t      testing.TB
	kv     *memkv.KV
	store  *meta.Store
	parts  *replica.Manager
	server *Server
	addr   string

	connect func() (net.Conn, error)

	stopOnce sync.Once
	stopFn   func()
}

// settings of a world; the zero value is a broker with defaults on a real disk.
type settings struct {
	kv     *memkv.KV
	fs     vfs.FS
	dir    string
	retain time.Duration   // default an hour
	bucket objstore.Bucket // nil: no tiering
	config func(*meta.Topic) (localseg.Config, tier.TopicConfig)
	broker func(*Options)
	log    *slog.Logger
	pipes  bool // connections are net.Pipe, as in a bubble
}

// pipeListener accepts net.Pipe connections.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial() (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- near:
		return far, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func newWorld(t testing.TB, set settings) *world {
	t.Helper()
	if set.kv == nil {
		set.kv = memkv.New()
	}
	if set.fs == nil {
		set.fs = vfs.OS{}
	}
	if set.dir == "" {
		set.dir = t.TempDir()
	}
	if set.retain == 0 {
		set.retain = time.Hour
	}
	if set.log == nil {
		set.log = slog.New(slog.DiscardHandler)
	}
	w := &world{t: t, kv: set.kv}
	var l net.Listener
	var err error
	if set.pipes {
		p := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		l, w.connect = p, p.dial
	} else {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		w.connect = func() (net.Conn, error) { return net.Dial("tcp", w.addr) }
	}
	w.addr = l.Addr().String()
	port := int32(l.Addr().(*net.TCPAddr).Port)

	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	w.store, err = meta.Open(ctx, set.kv, "", meta.Options{Logger: set.log})
	if err != nil {
		t.Fatal(err)
	}
	g.Go(func() { w.store.Run(ctx) })
	advertised := []meta.Listener{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: port}}
	_, keep, err := w.store.Register(ctx, meta.Broker{ID: 1, Listeners: advertised}, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	g.Go(func() { keep(ctx) })
	w.until("the image has the broker", func() bool { return w.store.Image().Brokers[1] != nil })
	var archive *tier.Archive
	if set.bucket != nil {
		info, inc, err := tier.OpenArchive(ctx, set.bucket, w.store.Image().Cluster)
		if err != nil {
			t.Fatal(err)
		}
		chunks, err := cache.New(cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		archive = tier.New(set.bucket, info, replica.Pointers{Store: w.store}, chunks, tier.Options{Incarnation: inc, MaxLag: 20 * time.Millisecond})
		g.Go(func() { archive.Run(ctx) })
	}
	w.parts, err = replica.NewManager(set.fs, w.store, archive, replica.Options{
		NodeID: 1, Dir: set.dir, TopicConfig: set.config, Logger: set.log, RetentionCheck: set.retain,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.parts.Start(ctx); err != nil {
		t.Fatal(err)
	}
	run, stopRun := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { w.parts.Run(run) })
	o := Options{NodeID: 1, Advertised: advertised, AutoCreateTopics: true, DefaultPartitions: 3, Logger: set.log}
	if set.broker != nil {
		set.broker(&o)
	}
	w.server, err = New(w.store, w.parts, o)
	if err != nil {
		t.Fatal(err)
	}
	serve, stopServe := context.WithCancel(ctx)
	g.Go(func() { w.server.Serve(serve, l) })
	w.stopFn = func() {
		stopServe()
		down, done := context.WithTimeout(context.Background(), 2*time.Second)
		defer done()
		w.server.Shutdown(down)
		stopRun()
		parts.Wait()
		if err := w.parts.Close(down); err != nil && len(w.parts.Offline()) == 0 {
			t.Errorf("close: %v", err)
		}
		cancel()
		g.Wait()
	}
	t.Cleanup(w.stop)
	return w
}

func (w *world) stop() { w.stopOnce.Do(w.stopFn) }

// topic creates a topic and waits until its partitions are led.
func (w *world) topic(name string, partitions int, configs map[string]string) *meta.Topic {
	w.t.Helper()
	assignment := make([][]int32, partitions)
	for i := range assignment {
		assignment[i] = []int32{1}
	}
	t, err := w.store.CreateTopic(context.Background(), meta.TopicSpec{Name: name, Configs: configs, Assignment: assignment})
	if err != nil {
		w.t.Fatal(err)
	}
	w.until("the image has the topic", func() bool { return w.store.Image().TopicsByID[t.ID] != nil })
	for i := range partitions {
		w.partition(name, int32(i))
	}
	return t
}

// until polls ok, in real time.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func (w *world) partition(topic string, partition int32) *replica.Partition {
	w.t.Helper()
	p, err := w.parts.Leader(replica.TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		w.t.Fatalf("%s-%d: %v", topic, partition, err)
	}
	return p
}

// client is a raw connection.
type client struct {
	t    testing.TB
	conn net.Conn
	next int32
}

func (w *world) dial() *client {
	w.t.Helper()
	conn, err := w.connect()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return &client{t: w.t, conn: conn}
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))

// send writes a request and returns its correlation id.
func (c *client) send(req kmsg.Request) int32 {
	c.t.Helper()
	c.next++
	if _, err := c.conn.Write(formatter.AppendRequest(nil, req, c.next)); err != nil {
		c.t.Fatalf("send: %v", err)
	}
	return c.next
}

// frame reads one response without its length.
func (c *client) frame() ([]byte, error) {
	c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	var size [4]byte
	if _, err := io.ReadFull(c.conn, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(c.conn, b)
	return b, err
}

// receive reads the response to req, whose bytes must be all used.
func (c *client) receive(req kmsg.Request, correlation int32) kmsg.Response {
	c.t.Helper()
	b, err := c.frame()
	if err != nil {
		c.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	resp, err := parseResponse(req, correlation, b)
	if err != nil {
		c.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp
}

func parseResponse(req kmsg.Request, correlation int32, b []byte) (kmsg.Response, error) {
	if got := int32(binary.BigEndian.Uint32(b)); got != correlation {
		return nil, fmt.Errorf("correlation id %d, want %d", got, correlation)
	}
	b = b[4:]
	if req.IsFlexible() && req.Key() != kmsg.ApiVersions.Int16() {
		if b[0] != 0 {
			return nil, fmt.Errorf("%d tags in the response header", b[0])
		}
		b = b[1:]
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(b); err != nil {
		return nil, err
	}
	if again := resp.AppendTo(nil); string(again) != string(b) {
		return nil, fmt.Errorf("encoded again it is %d bytes, not %d:\n got %x\nwant %x", len(again), len(b), b, again)
	}
	return resp, nil
}

func (c *client) do(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	return c.receive(req, c.send(req))
}

// closed expects that the broker has closed the connection without an answer.
func (c *client) closed() {
	c.t.Helper()
	if b, err := c.frame(); err == nil {
		c.t.Fatalf("got an answer of %d bytes, want a closed connection", len(b))
	}
}

// batch builds one batch of records with the given timestamps.
func batch(t testing.TB, o record.BatchOptions, timestamps ...int64) []byte {
	t.Helper()
	if o.ProducerID == 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = -1, -1, -1
	}
	recs := make([]record.Record, len(timestamps))
	for i, ts := range timestamps {
		recs[i] = record.Record{Offset: int64(i), Timestamp: ts, Key: []byte("k"), Value: fmt.Appendf(nil, "v%d", i)}
	}
	b, err := record.Build(nil, o, recs)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// produceReq is a Produce of one batch.
func produceReq(version int16, acks int16, topic *meta.Topic, partition int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic.Name, topic.ID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, records
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// produce sends one batch at the newest version and expects success.
func (c *client) produce(topic *meta.Topic, partition int32, records []byte) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	resp := c.do(produceReq(13, -1, topic, partition, records)).(*kmsg.ProduceResponse)
	p := resp.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		c.t.Fatalf("produce: code %d %s", p.ErrorCode, str(p.ErrorMessage))
	}
	return p
}

func str(s *string) string {
	if s == nil {
		return "<null>"
	}
	return *s
}

// fetchReq is a Fetch of one partition without a session.
func fetchReq(version int16, topic *meta.Topic, offset int64, partitions ...int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = version, -1, 0, 1, 50<<20
	req.ReplicaState.ID, req.ReplicaState.Epoch = -1, -1
	req.SessionEpoch = -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic.Name, topic.ID
	for _, p := range partitions {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, offset, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func now() int64 { return time.Now().UnixMilli() }
