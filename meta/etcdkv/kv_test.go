package etcdkv

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/meta/kvtest"
)

// quiet keeps only what an operator must see.
func quiet(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func start(t *testing.T, o ServerOptions) *Server {
	t.Helper()
	o.Logger = quiet(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// never is when a test gives up to wait for what has to happen sooner, on however busy a machine.
const never = 2 * time.Minute

// freePort is below the ports that systems choose for outgoing connections: a member that starts again finds it free, since no
// connection can have taken it meanwhile. No two tests get the same.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 11000 + rand.IntN(21000)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

var given sync.Map

func dial(t *testing.T, endpoint string) *KV {
	t.Helper()
	kv, err := Dial(Options{Endpoints: []string{endpoint}, Logger: quiet(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kv.Close() })
	return kv
}

func TestConformanceInProcess(t *testing.T) {
	t.Parallel()
	s := start(t, ServerOptions{Dir: t.TempDir()})
	kvtest.Run(t, &kvtest.Target{
		KV: s.KV(), Other: s.KV(),
		Compact: s.KV().Compact,
		Kill:    func() { s.e.Server.Stop() },
		Bound:   15 * time.Second, // three requests long,
	})
}

func TestConformanceTCP(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
	s := start(t, ServerOptions{Dir: dir, Listen: []string{addr}})
	kv := dial(t, addr)
	kvtest.Run(t, &kvtest.Target{
		KV: kv, Other: dial(t, addr),
		Compact: kv.Compact,
		Cut: func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		},
		Heal:  func() { s = start(t, ServerOptions{Dir: dir, Listen: []string{addr}}) },
		Kill:  func() { s.Close() },
		Bound: 15 * time.Second,
	})
}

// An endpoint that is away for long is tried every two seconds or so, not every two minutes: what comes back is found.
func TestEndpointThatWasAwayIsFoundSoon(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	kv := dial(t, l.Addr().String())
	go kv.Get(t.Context(), "/a") // which asks for a connection
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(never)); err != nil {
		t.Fatal(err)
	}
	var pauses [10]time.Duration
	last := time.Now()
	for i := range pauses {
		c, err := l.Accept()
		if err != nil {
			t.Fatalf("after %v: %v", pauses[:i], err)
		}
		c.Close()
		pauses[i] = time.Since(last)
		last = time.Now()
	}
	// gRPC's own last pause here would be of half a minute.
	if p := pauses[len(pauses)-1]; p > 10*time.Second {
		t.Errorf("pauses between tries: %v", pauses)
	}
}
