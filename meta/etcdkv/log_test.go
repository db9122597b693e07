package etcdkv

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
)

// A member that is made, restarted and closed says nothing that an operator would have to look at.
func TestNormalStartLogsNoWarning(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	o := ServerOptions{Dir: filepath.Join(t.TempDir(), "etcd"), Logger: slog.New(slog.NewTextHandler(&out, nil))}
	for range 2 {
		s, err := Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.KV().Grant(t.Context(), 5000); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(out.String()) {
		// What a slow disk makes etcd say is worth a line.
		if !strings.Contains(line, "took too long") && !strings.Contains(line, "slow") {
			t.Errorf("logged: %s", line)
		}
	}
}

func TestOnlyKnownWarningsAreHarmless(t *testing.T) {
	var out lockedBuffer
	l := newZap(slog.New(slog.NewTextHandler(&out, nil)), nil, new(atomic.Bool))
	l.Warn("simple token is not cryptographically signed")
	l.Error("failed to update storage version")
	l.Info("an info")
	l.Warn("a warning", zap.Int("n", 7))
	l.Error("an error")
	got := out.String()
	if strings.Count(got, "\n") != 2 || !strings.Contains(got, `level=WARN msg="a warning"`) || !strings.Contains(got, "n=7") || !strings.Contains(got, `level=ERROR msg="an error"`) {
		t.Fatalf("logged:\n%s", got)
	}
}

// lockedBuffer takes log lines from several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
