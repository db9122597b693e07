package replica

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
)

// memCluster has a disk that can crash.
func memCluster(t *testing.T) (*cluster, *vfs.Mem) {
	t.Helper()
	m := vfs.NewMem()
	c := newCluster(t)
	c.fs, c.dir = m, "/varve/data"
	if err := errors.Join(m.MkdirAll(c.dir, 0o755), m.SyncFS("/")); err != nil {
		t.Fatal(err)
	}
	return c, m
}

// fillAll appends ten records to each of n partitions.
func fillAll(t *testing.T, b *broker, n int) {
	t.Helper()
	for i := range n {
		fill(t, b.leader("t", int32(i)), 10)
	}
}

func checkAll(t *testing.T, b *broker, n, least, most int) {
	t.Helper()
	for i := range n {
		if got := readAll(t, b.leader("t", int32(i)), 0); got < least || got > most || got%10 != 0 {
			t.Fatalf("partition %d has %d records, want %d to %d", i, got, least, most)
		}
	}
}

func counts(m *vfs.Mem) map[string]int {
	n := map[string]int{}
	for _, call := range m.Trace() {
		op, _, _ := strings.Cut(call, " ")
		n[op]++
	}
	return n
}

// What a clean stop and a start after a crash make durable is the file system as a whole: their time does not grow by a
// dozen syncs with each partition. The marker comes last.
func TestManyPartitionsStopAndStartWithAFewSyncs(t *testing.T) {
	const n = 60
	c, m := memCluster(t)
	b := c.start()
	b.topic("t", n)
	m.StartTrace()
	fillAll(t, b, n)
	if got := counts(m); got["sync"]+got["syncdir"]+got["syncfs"] > 0 {
		t.Fatalf("first appends sync: %v", got)
	}
	m.StartTrace()
	b.stop(true)
	trace := m.Trace()
	if got := counts(m); got["syncfs"] != 2 || got["sync"] != 1 || got["syncdir"] != 1 {
		t.Fatalf("a clean stop syncs %v", got)
	}
	if marker := slices.Index(trace, "create "+cleanFile); marker < 0 || slices.Contains(trace[marker:], "syncfs data") {
		t.Fatalf("the marker is call %d of %q", marker, trace)
	}
	m.Crash(1)

	b = c.start()
	checkAll(t, b, n, 10, 10)
	fillAll(t, b, n)
	b.stop(false)
	m.Kill()
	m.StartTrace()
	b = c.start()
	if got := counts(m); got["syncfs"] != 1 || got["sync"]+got["syncdir"] > 0 {
		t.Fatalf("a start after a crash syncs %v", got)
	}
	checkAll(t, b, n, 20, 20)
	b.stop(false)
	m.Crash(2) // what was served is not lost with the machine
	checkAll(t, c.start(), n, 20, 20)
}

// A crash at any call of a stop: what was durable before is there, and with the marker all is.
func TestCrashWhileManyPartitionsStop(t *testing.T) {
	const n = 17
	for k := 0; ; k += 23 {
		c, m := memCluster(t)
		b := c.start()
		b.topic("t", n)
		fillAll(t, b, n)
		b.m.flushAll()
		fillAll(t, b, n)
		m.StopAfter(k)
		err := b.m.Close(context.Background())
		b.stop(false)
		m.Crash(uint64(k))
		least := 10
		if _, missing := m.Stat(path.Join(c.dir, cleanFile)); missing == nil {
			least = 20
		} else if !errors.Is(missing, fs.ErrNotExist) || err == nil {
			t.Fatalf("call %d: marker: %v, close: %v", k, missing, err)
		}
		b = c.start()
		checkAll(t, b, n, least, 20)
		b.stop(false)
		if err == nil {
			return
		}
	}
}

func TestWhatWasReadAfterARecoverySurvivesTheMachine(t *testing.T) { // BUG-096
	for seed := range uint64(20) {
		c, m := memCluster(t)
		b := c.start()
		b.topic("t", 1)
		fill(t, b.leader("t", 0), 100)
		b.stop(false)
		m.Kill() // the process alone: the page cache lives
		b = c.start()
		read := readAll(t, b.leader("t", 0), 0)
		b.stop(false)
		m.Crash(seed)
		b = c.start()
		p := b.leader("t", 0)
		if got := readAll(t, p, 0); got < read {
			t.Fatalf("seed %d: %d records, %d were read after the recovery", seed, got, read)
		}
		b.stop(false)
	}
}
