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
		Bound:   20 * time.Second, // of five seconds, on a loaded machine,
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
		Bound: 20 * time.Second,
	})
}
