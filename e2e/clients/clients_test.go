//go:build clients

package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/proc"
)

// env wants a variable that run sets; without it the tests were not started by `make test-clients`.
func env(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set; start these tests by `make test-clients`", name)
	}
	return v
}

// start runs a broker with a small archive for one test.
func start(t *testing.T, set ...string) *proc.Varve {
	t.Helper()
	v := &proc.Varve{Bin: env(t, "VARVE_BIN"), Dir: filepath.Join(t.TempDir(), "data")}
	for _, s := range append([]string{"group.initial.rebalance.delay.ms=0", "log.retention.check.interval.ms=200", "archive.max.lag.ms=500"}, set...) {
		v.Args = append(v.Args, "--set", s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := v.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("broker's log:\n%s", v.Output())
		}
		if err := v.Stop(); err != nil {
			t.Error(err)
		}
	})
	return v
}

// sh runs a command with stdin and returns what it printed on stdout; it fails the test when the command fails.
func sh(t *testing.T, stdin string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

func lines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "key-%d:value-%d\n", i, i)
	}
	return b.String()
}

// sameLines holds got to be want's lines in any order.
func sameLines(t *testing.T, what, want, got string) {
	t.Helper()
	count := map[string]int{}
	for _, l := range strings.Split(strings.TrimSpace(want), "\n") {
		count[l]++
	}
	n := 0
	for _, l := range strings.Split(strings.TrimSpace(got), "\n") {
		if count[l]--; count[l] < 0 {
			t.Fatalf("%s: line %q was not written, or is there twice", what, l)
		}
		n++
	}
	if want := strings.Count(strings.TrimSpace(want), "\n") + 1; n != want {
		t.Fatalf("%s: %d lines, want %d", what, n, want)
	}
}

func TestKcat(t *testing.T) {
	v := start(t, "num.partitions=3")
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		topic := "kcat-" + codec
		want := lines(0, 500)
		sh(t, want, "kcat", "-b", v.Listen, "-P", "-t", topic, "-K", ":", "-z", codec, "-X", "enable.idempotence=true")
		sameLines(t, topic, want, sh(t, "", "kcat", "-b", v.Listen, "-C", "-t", topic, "-e", "-q", "-f", "%k:%s\n"))
	}
	if meta := sh(t, "", "kcat", "-b", v.Listen, "-L"); !strings.Contains(meta, `topic "kcat-zstd" with 3 partitions`) {
		t.Fatalf("metadata:\n%s", meta)
	}
	if q := sh(t, "", "kcat", "-b", v.Listen, "-Q", "-t", "kcat-none:0:0"); !strings.Contains(q, "offset 0") {
		t.Fatalf("offset by time: %s", q)
	}
	got := sh(t, "", "kcat", "-b", v.Listen, "-G", "kcat-group", "-e", "-q", "-f", "%k:%s\n", "-X", "auto.offset.reset=earliest", "kcat-lz4")
	sameLines(t, "group", lines(0, 500), got)
}

func TestAiokafka(t *testing.T) {
	v := start(t)
	sh(t, "", env(t, "VARVE_PYTHON"), "aio.py", v.Listen, "aio")
}

func TestConfluentKafka(t *testing.T) {
	v := start(t)
	sh(t, "", env(t, "VARVE_PYTHON"), "confluent.py", v.Listen, "confluent")
}

func TestKafkajs(t *testing.T) {
	v := start(t)
	sh(t, "", "node", "kafka.js", v.Listen, "js")
}
