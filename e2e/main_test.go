package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/proc"
)

// bin is the binary under test.
var bin string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "varve-e2e-")
	if err == nil {
		defer os.RemoveAll(dir)
		bin, err = buildBinary(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer stopS3()
	return m.Run()
}

func buildBinary(dir string) (string, error) {
	if b := os.Getenv("VARVE_BIN"); b != "" {
		return filepath.Abs(b)
	}
	b := filepath.Join(dir, "varve")
	if out, err := exec.Command("go", "build", "-o", b, "github.com/varvelog/varve/cmd/varve").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	return b, nil
}

// node is a broker of one test, and its archive's URL.
type node struct {
	*proc.Varve
	t       *testing.T
	archive string
}

// quick makes what waits for minutes in production wait for moments.
var quick = []string{
	"group.initial.rebalance.delay.ms=0", "log.retention.check.interval.ms=100", "archive.max.lag.ms=200", "archive.sweep.interval.ms=200",
	"offsets.topic.num.partitions=3",
}

// prepare makes a node with a fresh directory that is not yet running. At the test's end it has to stop cleanly.
func prepare(t *testing.T, set ...string) *node {
	t.Helper()
	return prepareIn(t, filepath.Join(t.TempDir(), "data"), set...)
}

func prepareIn(t *testing.T, dir string, set ...string) *node {
	t.Helper()
	n := &node{Varve: &proc.Varve{Bin: bin, Dir: dir}, t: t, archive: "file://" + filepath.Join(dir, "archive")}
	n.set(quick...)
	n.set(set...)
	t.Cleanup(func() {
		if n.Started() && !n.Ended() {
			if err := n.Stop(); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Logf("log of the broker in %s:\n%s", dir, n.Output())
		}
	})
	return n
}

// set adds configuration key=value, for the next start; what was set before of the same key is replaced.
func (n *node) set(keys ...string) {
	for _, kv := range keys {
		key, _, _ := strings.Cut(kv, "=")
		n.Args = slices.DeleteFunc(n.Args, func(a string) bool { return strings.HasPrefix(a, "--set="+key+"=") })
		n.Args = append(n.Args, "--set="+kv)
	}
}

// start starts a node in a fresh directory.
func start(t *testing.T, set ...string) *node {
	t.Helper()
	n := prepare(t, set...)
	n.start()
	return n
}

func (n *node) start() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		n.t.Fatal(err)
	}
}

// stop stops the node, which has to end with exit code 0.
func (n *node) stop() {
	n.t.Helper()
	if err := n.Stop(); err != nil {
		n.t.Fatal(err)
	}
}

// varve runs a verb of the binary.
func varve(t *testing.T, args ...string) proc.Result {
	t.Helper()
	return verb(t, nil, args...)
}

func verb(t *testing.T, env []string, args ...string) proc.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := proc.Run(ctx, bin, nil, env, args...)
	if err != nil {
		t.Fatalf("varve %q: %v\n%s%s", args, err, r.Stdout, r.Stderr)
	}
	return r
}

// want fails the test if a verb did not end with the exit code.
func want(t *testing.T, r proc.Result, code int) proc.Result {
	t.Helper()
	if r.Code != code {
		t.Fatalf("exit code %d, want %d\n%s%s", r.Code, code, r.Stdout, r.Stderr)
	}
	return r
}
