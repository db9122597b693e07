package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/record"
)

// frameOf prefixes b with its length.
func frameOf(b ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// requestHeader is a header of version 1.
func requestHeader(key, version int16) []byte {
	b := appendInt16(appendInt16(nil, key), version)
	return append(appendInt32(b, 9), 0xff, 0xff)
}

func TestHostileFramesCloseTheConnectionWithOneLogLine(t *testing.T) {
	var mu sync.Mutex
	var lines bytes.Buffer
	w := newWorld(t, settings{
		log:    slog.New(slog.NewTextHandler(lockedWriter{&mu, &lines}, &slog.HandlerOptions{Level: slog.LevelWarn})),
		broker: func(o *Options) { o.MaxRequestBytes = 4 << 20 },
	})
	meta13 := kmsg.NewPtrMetadataRequest()
	meta13.Version = 13
	whole := formatter.AppendRequest(nil, meta13, 1)
	trailing := frameOf(append(bytes.Clone(whole[4:]), 0)...)
	p := kmsg.NewPtrProduceRequest()
	p.Version = 13
	produce := formatter.AppendRequest(nil, p, 1)
	for _, tc := range []struct {
		name  string
		bytes []byte
	}{
		{"negative length", []byte{0xff, 0xff, 0xff, 0xff, 0, 3, 0, 1, 0, 0, 0, 1}},
		{"zero length", make([]byte, 12)},
		{"length below a header", []byte{0, 0, 0, 7, 0, 3, 0, 1, 0, 0, 0, 1}},
		{"huge length", []byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 9, 0, 0, 0, 1}},
		{"over socket.request.max.bytes", append([]byte{0, 0x40, 0, 1}, requestHeader(0, 9)...)},
		{"plain request over its limit", append([]byte{0, 0x20, 0, 1}, requestHeader(3, 9)...)},
		{"unknown api key", frameOf(requestHeader(999, 0)...)},
		{"negative api key", frameOf(requestHeader(-5, 0)...)},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"TLS", []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 1, 2, 3, 4}},
		{"version too new", frameOf(requestHeader(3, 14)...)},
		{"version too old: Produce 2", frameOf(requestHeader(0, 2)...)},
		{"version too old: Fetch 3", frameOf(requestHeader(1, 3)...)},
		{"header cut short", frameOf(requestHeader(3, 9)[:9]...)},
		{"header tags cut short", frameOf(append(requestHeader(3, 9), 5)...)},
		{"client id longer than the frame", frameOf(0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff)},
		{"no body", frameOf(append(requestHeader(3, 13), 0)...)},
		{"bytes after the request", trailing},
		{"bytes after a Produce", frameOf(append(bytes.Clone(produce[4:]), 0)...)},
		{"Produce with 2^31 topics", frameOf(append(requestHeader(0, 8), 0xff, 0xff, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff)...)},
		{"Produce with 300,000 empty topics", frameOf(append(append(requestHeader(0, 3), 0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 4, 0x93, 0xe0), make([]byte, 300_000*6)...)...)},
		{"Fetch cut short", frameOf(append(requestHeader(1, 11), 0xff, 0xff, 0xff, 0xff)...)},
	} {
		mu.Lock()
		lines.Reset()
		mu.Unlock()
		c := w.dial()
		if _, err := c.conn.Write(tc.bytes); err != nil {
			t.Fatal(err)
		}
		c.closed()
		w.until("the log line of "+tc.name, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Count(lines.String(), "connection closed") == 1
		})
		mu.Lock()
		if n := strings.Count(lines.String(), "\n"); n != 1 {
			t.Errorf("%s: %d log lines:\n%s", tc.name, n, lines.String())
		}
		mu.Unlock()
	}
	w.dial().metadata(metadataReq(13, false))
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 2, nil)
	c := w.dial()
	var reqs []kmsg.Request
	for i := range 30 {
		f := fetchReq(18, topic, 0, int32(i%2))
		reqs = append(reqs, produceReq(13, -1, topic, int32(i%2), bigBatch(t, 10*i*i)), metadataReq(9, false, "t"), f, listOffsetsReq(9, "t", -1))
	}
	var all []byte
	for i, r := range reqs {
		all = append(all, formatter.AppendRequest(nil, r, int32(i))...)
	}
	go func() { // in odd pieces
		for len(all) > 0 {
			n := min(len(all), 7001)
			c.conn.Write(all[:n])
			all = all[n:]
		}
	}()
	for i, r := range reqs {
		resp := c.receive(r, int32(i))
		if p, ok := resp.(*kmsg.ProduceResponse); ok {
			if got := p.Topics[0].Partitions[0]; got.ErrorCode != 0 || got.BaseOffset != int64(i/4/2) {
				t.Fatalf("request %d: %+v", i, got)
			}
		}
		if f, ok := resp.(*kmsg.FetchResponse); ok {
			if got := f.Topics[0].Partitions[0]; got.HighWatermark != int64(i/4/2+1) || len(offsets(t, got.RecordBatches)) != i/4/2+1 {
				t.Fatalf("request %d: high watermark %d", i, got.HighWatermark)
			}
		}
	}
}

// pipe is a connection of a server without listener, and its other end.
func pipe(t *testing.T, s *Server) (*conn, *client) {
	t.Helper()
	near, far := net.Pipe()
	c := newConn(s, near, "PLAINTEXT")
	t.Cleanup(func() { near.Close(); far.Close() })
	return c, &client{t: t, conn: far}
}

func TestResponsesBehindOneThatWaitsKeepTheirOrder(t *testing.T) {
	w := newWorld(t, settings{broker: func(o *Options) { o.MaxInFlight = 3 }})
	topic := w.topic("t", 1, nil)
	w.dial().produce(topic, 0, bigBatch(t, 200_000))
	c, far := pipe(t, w.server)
	acked := make(chan struct{})
	answer := func(n byte) []byte { return frameOf(0, 0, 0, n) }

	if err := c.outbox.end(answer(0), 0); err != nil { // before: written by the reader
		t.Fatal(err)
	}
	got := make(chan []byte, 16)
	go func() {
		for {
			b, err := far.frame()
			if err != nil {
				close(got)
				return
			}
			got <- b
		}
	}()
	if err := c.outbox.later(func() []byte { <-acked; return answer(1) }); err != nil {
		t.Fatal(err)
	}
	if err := c.outbox.end(append(c.outbox.begin(), answer(2)...), 0); err != nil {
		t.Fatal(err)
	}
	f := fetchReq(18, topic, 0, 0)
	full := make(chan error, 1)
	go func() { // the queue has room for three: the fourth waits
		h := header{key: 1, version: 18, correlation: 3, flexible: true}
		body := f.AppendTo(nil)
		err := c.handleFetch(h, body)
		if err == nil {
			err = c.outbox.end(append(c.outbox.begin(), answer(4)...), 0)
		}
		full <- err
	}()
	if b := <-got; b[3] != 0 {
		t.Fatalf("first response %d", b[3])
	}
	select {
	case b := <-got:
		t.Fatalf("response %d overtook the one that waits", b[3])
	case <-full:
		t.Fatal("the queue took more than its bound")
	case <-time.After(50 * time.Millisecond):
	}
	close(acked)
	for i := byte(1); i <= 4; i++ {
		b := <-got
		if b[3] != i {
			t.Fatalf("response %d, want %d", b[3], i)
		}
		if i == 3 {
			resp, err := parseResponse(f, 3, b)
			if err != nil || len(resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches) < 200_000 {
				t.Fatalf("fetch: %v", err)
			}
		}
	}
	if err := <-full; err != nil {
		t.Fatal(err)
	}
	if err := c.outbox.finish(); err != nil {
		t.Fatal(err)
	}
	c.outbox.mu.Lock()
	active := c.outbox.active
	c.outbox.mu.Unlock()
	if active {
		t.Fatal("the writer is still there with an empty queue")
	}
}

func TestRequestsWaitForTheByteBudget(t *testing.T) {
	w := newWorld(t, settings{broker: func(o *Options) { o.MaxQueuedBytes = 300_000 }})
	topic := w.topic("t", 1, nil)
	c := w.dial()
	if err := w.server.budget.acquire(context.Background(), 250_000); err != nil {
		t.Fatal(err)
	}
	small := w.dial()
	small.metadata(metadataReq(9, false)) // there is room for it
	req := produceReq(13, -1, topic, 0, bigBatch(t, 100_000))
	id := c.send(req)
	c.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.conn.Read(make([]byte, 1)); err == nil {
		t.Fatalf("%d bytes answered over the budget", n)
	}
	w.server.budget.release(250_000)
	c.receive(req, id)
	// More than the whole budget is served alone, not refused.
	c.produce(topic, 0, bigBatch(t, 400_000))
	if !w.server.budget.sem.TryAcquire(300_000) {
		t.Fatal("budget was not given back")
	}
}

func TestConnectionLimitAndIdleClose(t *testing.T) {
	w := newWorld(t, settings{broker: func(o *Options) { o.MaxConnections, o.MaxIdle = 2, 100*time.Millisecond }})
	a, b := w.dial(), w.dial()
	a.metadata(metadataReq(9, false))
	b.metadata(metadataReq(9, false))
	over := w.dial()
	over.closed()
	began := time.Now()
	a.closed()
	if d := time.Since(began); d > 5*time.Second {
		t.Fatalf("idle connection closed after %v", d)
	}
	w.until("a connection is free", func() bool {
		c := &client{t: t}
		var err error
		if c.conn, err = net.Dial("tcp", w.addr); err != nil {
			return false
		}
		defer c.conn.Close()
		c.conn.Write(formatter.AppendRequest(nil, metadataReq(9, false), 1))
		_, err = c.frame()
		return err == nil
	})
}

func TestShutdownAnswersWhatIsUnderWay(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	idle, polling, half := w.dial(), w.dial(), w.dial()
	idle.metadata(metadataReq(9, false))
	req := fetchReq(18, topic, 0, 0)
	req.MaxWaitMillis = 60_000
	id := polling.send(req)
	half.conn.Write([]byte{0, 0, 1, 0, 0, 3}) // a request that never becomes whole
	w.until("the poll is under way", func() bool {
		var m dto.Metric
		w.server.metrics.byKey[kmsg.Fetch.Int16()].Write(&m)
		return m.GetCounter().GetValue() == 1
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	began := time.Now()
	if err := w.server.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Fatalf("shutdown took %v", d)
	}
	polling.receive(req, id) // its long poll ends early, with an answer
	polling.closed()
	idle.closed()
	half.closed()
	if _, err := net.DialTimeout("tcp", w.addr, time.Second); err == nil {
		late := w.dial()
		late.closed()
	}
}

func TestShutdownCutsWhatDoesNotEnd(t *testing.T) {
	w := newWorld(t, settings{})
	topic := w.topic("t", 1, nil)
	producer := w.dial()
	for range 40 {
		producer.produce(topic, 0, bigBatch(t, 900_000))
	}
	stuck := w.dial() // asks for much, reads nothing
	req := fetchReq(18, topic, 0, 0)
	req.Topics[0].Partitions[0].PartitionMaxBytes = 50 << 20
	stuck.send(req)
	w.until("it is being answered", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		return len(w.server.conns) == 2
	})
	stuck.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := stuck.conn.Read(make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := w.server.Shutdown(ctx); err != context.DeadlineExceeded {
		t.Fatalf("err = %v, want deadline exceeded", err)
	}
}

// FuzzFrame sends any bytes to a connection: it ends, without a panic, and the budget comes back.
func FuzzFrame(f *testing.F) {
	w := newWorld(f, settings{broker: func(o *Options) { o.MaxRequestBytes, o.MaxIdle = 1<<20, time.Second }})
	topic := w.topic("t", 1, nil)
	for _, r := range []kmsg.Request{
		metadataReq(0, true), metadataReq(13, false, "t"), fetchReq(4, topic, 0, 0), inSession(fetchReq(18, topic, 0, 0), 0, 0),
		produceReq(3, 1, topic, 0, batch(f, record.BatchOptions{}, 1)), produceReq(13, -1, topic, 0, batch(f, record.BatchOptions{ProducerID: 3}, 1)),
		listOffsetsReq(11, "t", -3), kmsg.NewPtrApiVersionsRequest(), kmsg.NewPtrDeleteRecordsRequest(),
	} {
		f.Add(formatter.AppendRequest(nil, r, 1))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := net.Pipe()
		c := newConn(w.server, near, "PLAINTEXT")
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run()
		}()
		go func() {
			buf := make([]byte, 4096)
			for {
				if _, err := far.Read(buf); err != nil {
					return
				}
			}
		}()
		far.SetWriteDeadline(time.Now().Add(5 * time.Second))
		far.Write(b)
		far.Close()
		<-done
		if !w.server.budget.sem.TryAcquire(w.server.budget.size) {
			t.Fatal("budget was not given back")
		}
		w.server.budget.sem.Release(w.server.budget.size)
	})
}
