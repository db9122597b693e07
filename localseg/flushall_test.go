package localseg_test

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/localseg/localsegtest"
	"github.com/varvelog/varve/record"
)

// fleet is many logs of one data directory: each was flushed at 3 records and has 3 more since, of another epoch.
type fleet struct {
	logs []*localseg.Log
	want [][]byte
}

const (
	fleetFlushed = 3
	fleetEnd     = 6
)

func openFleet(t *testing.T, fs vfs.FS, n int, o localseg.Options) []*localseg.Log {
	t.Helper()
	if err := errors.Join(fs.MkdirAll("/data", 0o755), fs.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	o.Config = small
	var logs []*localseg.Log
	for i := range n {
		l, err := localseg.Open(fs, fmt.Sprintf("/data/t-%d", i), o)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	return logs
}

func newFleet(t *testing.T, fs vfs.FS, n int) *fleet {
	t.Helper()
	f := &fleet{logs: openFleet(t, fs, n, localseg.Options{})}
	for i, l := range f.logs {
		add(t, l, 1, localsegtest.Idempotent(t, 7, 0, 0, int64(1000+i), 1, 2))
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		add(t, l, 2, localsegtest.Idempotent(t, 7, 0, 3, int64(2000+i)))
		add(t, l, 2, localsegtest.Transactional(t, 8, 0, 0, 5), localsegtest.Marker(8, 0, 6, false))
		f.want = append(f.want, readAll(t, l, 0, 1<<20))
	}
	return f
}

// check opens all anew: each log has a beginning of what it had, up to a batch, and answers as one that never crashed.
func (f *fleet) check(t *testing.T, name string, logs []*localseg.Log, least int64) {
	t.Helper()
	for i, l := range logs {
		name := fmt.Sprintf("%s, log %d", name, i)
		if l.LEO() < least || l.LEO() > fleetEnd || l.LEO() == 1 || l.LEO() == 2 {
			t.Fatalf("%s: LEO %d, want at least %d", name, l.LEO(), least)
		}
		got := readAll(t, l, 0, 1<<20)
		wantBytes(t, name, got, f.want[i][:len(got)])
		epochs := []localseg.Epoch{{Epoch: 1, Start: 0}}
		if l.LEO() > fleetFlushed {
			epochs = append(epochs, localseg.Epoch{Epoch: 2, Start: fleetFlushed})
		}
		have := slices.DeleteFunc(l.Epochs(), func(e localseg.Epoch) bool { return e.Start >= l.LEO() })
		if !slices.Equal(have, epochs) {
			t.Fatalf("%s: epochs %v at LEO %d", name, have, l.LEO())
		}
		if ps := l.Producers(); len(ps) == 0 || ps[0].ID != 7 || ps[0].LastSequence != min(int32(l.LEO())-1, 3) {
			t.Fatalf("%s: producers %+v at LEO %d", name, ps, l.LEO())
		}
		aborted, err := l.Aborted(0, l.LEO())
		if err != nil || len(aborted) != 1 && l.LEO() == fleetEnd {
			t.Fatalf("%s: aborted %v, %v at LEO %d", name, aborted, err, l.LEO())
		}
	}
}

// without hides that a file system can be synced as a whole, unsupported says that it cannot.
type (
	without     struct{ vfs.FS }
	unsupported struct{ vfs.FS }
)

func (unsupported) SyncFS(string) error { return errors.ErrUnsupported }

var syncWays = map[string]func(*vfs.Mem) vfs.FS{
	"whole":       func(m *vfs.Mem) vfs.FS { return m },
	"without":     func(m *vfs.Mem) vfs.FS { return without{m} },
	"unsupported": func(m *vfs.Mem) vfs.FS { return unsupported{m} },
}

// A crash at any call of a flush of many logs takes nothing that was flushed before, and nothing at all once it is done.
func TestCrashWhileManyLogsAreFlushed(t *testing.T) {
	const n = 17
	for way, wrap := range syncWays {
		step := 5 // each call of a log is hit in one log or another: there are some 30 of each
		if way != "whole" || testing.Short() {
			step = 37
		}
		for k := 0; ; k += step {
			m := vfs.NewMem()
			f := newFleet(t, wrap(m), n)
			m.StopAfter(k)
			err := localseg.CloseAll(f.logs)
			if err != nil && !errors.Is(err, localseg.ErrOffline) && !errors.Is(err, vfs.ErrCrashed) {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%s, crash at call %d", way, k)
			m.Crash(uint64(k))
			least := int64(fleetFlushed)
			if err == nil {
				least = fleetEnd
			}
			// With Clean only if it was: a marker is written after all this.
			logs := openFleet(t, m, n, localseg.Options{Clean: err == nil, DeferSync: true})
			if err := localseg.SyncRecovered(logs); err != nil {
				t.Fatal(err)
			}
			f.check(t, name, logs, least)
			served := make([]int64, n)
			for i, l := range logs {
				served[i] = l.LEO()
			}
			m.Crash(uint64(k) + 1)
			logs = openFleet(t, m, n, localseg.Options{})
			f.check(t, name+", twice", logs, least)
			for i, l := range logs {
				if l.LEO() < served[i] {
					t.Fatalf("%s: log %d ends at %d, %d was served", name, i, l.LEO(), served[i])
				}
			}
			if err == nil {
				break
			}
		}
	}
}

func TestManyLogsAreFlushedWithTwoSyncs(t *testing.T) {
	const n = 20
	m := vfs.NewMem()
	f := newFleet(t, m, n)
	m.StartTrace()
	if err := localseg.FlushAll(f.logs); err != nil {
		t.Fatal(err)
	}
	// The phases, in order, each over all logs; within a log the order is the one below.
	var phases []string
	for _, call := range m.Trace() {
		op, name, _ := strings.Cut(call, " ")
		name = strings.TrimLeft(strings.Fields(name)[0], "0123456789")
		if s := op + " " + name; !slices.Contains(phases, s) || op == "syncfs" {
			phases = append(phases, s)
		}
	}
	at := func(s string) int {
		i := slices.Index(phases, s)
		if i < 0 {
			t.Fatalf("no %q in %q", s, phases)
		}
		return i
	}
	order := []string{"write .index", "syncfs data", "rename leader-epoch-checkpoint", "rename partition.checkpoint", "remove .snapshot"}
	if !slices.IsSortedFunc(order, func(a, b string) int { return at(a) - at(b) }) {
		t.Fatalf("order %q", phases)
	}
	for _, s := range []string{"write .snapshot", "write leader-epoch-checkpoint.tmp", "write partition.checkpoint.tmp", "write .timeindex"} {
		if at(s) > at("syncfs data") {
			t.Fatalf("%q after the sync: %q", s, phases)
		}
	}
	count := func(op string) (n int) {
		for _, c := range m.Trace() {
			if strings.HasPrefix(c, op+" ") {
				n++
			}
		}
		return n
	}
	if count("syncfs") != 2 || count("sync") != 0 || count("syncdir") != 0 {
		t.Fatalf("%d syncs of the file system, %d of files, %d of directories", count("syncfs"), count("sync"), count("syncdir"))
	}
	for i, l := range f.logs {
		if l.RecoveryPoint() != fleetEnd {
			t.Fatalf("log %d: recovery point %d", i, l.RecoveryPoint())
		}
	}
	m.StartTrace()
	if err := localseg.FlushAll(f.logs); err != nil || len(m.Trace()) != 0 {
		t.Fatalf("a second flush: %v, %q", err, m.Trace())
	}
}

func TestFailedSyncTakesManyLogsOffline(t *testing.T) {
	m := vfs.NewMem()
	f := newFleet(t, m, 16)
	m.FailNth(1, "syncfs", "", nil)
	if err := localseg.CloseAll(f.logs); !errors.Is(err, vfs.ErrInjected) || !errors.Is(err, localseg.ErrOffline) {
		t.Fatalf("close: %v", err)
	}
	m.Kill()
	logs := openFleet(t, m, 16, localseg.Options{DeferSync: true})
	m.FailNth(1, "syncfs", "", nil)
	if err := localseg.SyncRecovered(logs); !errors.Is(err, vfs.ErrInjected) {
		t.Fatalf("sync: %v", err)
	}
	if _, err := logs[3].Append([]record.Batch{localsegtest.Plain(t, 1)}, 3, localseg.OriginClient); !errors.Is(err, localseg.ErrOffline) {
		t.Fatalf("append to a log of which nobody knows what the disk holds: %v", err)
	}
}

// One log that cannot be written does not keep the others from being flushed.
func TestOneFailureLeavesTheOtherLogsFlushed(t *testing.T) {
	m := vfs.NewMem()
	f := newFleet(t, m, 18)
	m.FailNth(1, "rename", path.Join("t-5", "partition.checkpoint"), nil)
	if err := localseg.CloseAll(f.logs); !errors.Is(err, localseg.ErrOffline) {
		t.Fatalf("close: %v", err)
	}
	m.Crash(3)
	logs := openFleet(t, m, 18, localseg.Options{})
	f.check(t, "after the failure", logs, fleetFlushed)
	for i, l := range logs {
		if i != 5 && l.LEO() != fleetEnd {
			t.Fatalf("log %d ends at %d", i, l.LEO())
		}
	}
}

// What a start after a crash has recovered survives the next crash, with few logs and with many, and costs no files.
func TestRecoveredLogsAreSyncedBeforeTheyServe(t *testing.T) { // BUG-096
	for way, wrap := range syncWays {
		for _, n := range []int{2, 30} {
			m := vfs.NewMem()
			f := newFleet(t, wrap(m), n)
			m.Kill()
			m.StartTrace()
			logs := openFleet(t, wrap(m), n, localseg.Options{DeferSync: true})
			for _, call := range m.Trace() {
				if op, name, _ := strings.Cut(call, " "); name != "/" && (op == "create" || op == "sync" || op == "syncdir") {
					t.Fatalf("%s, %d logs: %q at the start", way, n, call)
				}
			}
			if err := localseg.SyncRecovered(logs); err != nil {
				t.Fatal(err)
			}
			for seed := range uint64(4) {
				m.Crash(seed)
				f.check(t, fmt.Sprintf("%s, %d logs, seed %d", way, n, seed), openFleet(t, m, n, localseg.Options{}), fleetEnd)
			}
		}
	}
}
