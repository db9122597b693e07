package vfs

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
)

// Errors of a Mem that was told to fail.
var (
	ErrInjected = errors.New("injected disk error")
	ErrCrashed  = errors.New("the machine has crashed") // the file was opened before Crash, or StopAfter has been reached
)

const sector = 512 // bytes that a disk writes whole or not at all

// faults decides which calls fail and remembers what was called.
type faults struct {
	calls  int
	stopAt int // every call from this number on fails; 0: never
	rules  []*rule
	trace  []string
	traced bool
}

type rule struct {
	op, suffix string
	left       int
	err        error
}

func (f *faults) step(op, name string) error {
	f.calls++
	if f.stopAt > 0 && f.calls >= f.stopAt {
		return ErrCrashed
	}
	for _, r := range f.rules {
		if (r.op == "" || r.op == op) && strings.HasSuffix(name, r.suffix) && r.left > 0 {
			if r.left--; r.left == 0 {
				return r.err
			}
		}
	}
	return nil
}

func (f *faults) record(op, name string, n int) {
	if !f.traced || op == "read" || op == "size" {
		return
	}
	s := op + " " + path.Base(name)
	if op == "write" || op == "truncate" {
		s += fmt.Sprintf(" %d", n)
	}
	f.trace = append(f.trace, s)
}

// FailNth makes the n-th coming call (from 1) of op on a path that ends in suffix fail with err, ErrInjected if nil.
// Ops: open read write size truncate sync rename remove removeall mkdir readdir stat syncdir; "" is any.
func (m *Mem) FailNth(n int, op, suffix string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		err = ErrInjected
	}
	m.faults.rules = append(m.faults.rules, &rule{op: op, suffix: suffix, left: n, err: err})
}

// StopAfter lets n more calls pass; all later ones fail with ErrCrashed, a write leaving its first half, until Crash.
func (m *Mem) StopAfter(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults.stopAt = m.faults.calls + n + 1
}

// Calls counts all calls so far.
func (m *Mem) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faults.calls
}

// SetSpace says how many bytes may still be added before the disk is full; -1 is no limit.
func (m *Mem) SetSpace(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.space = n
}

// StartTrace begins, or begins anew, to record changing calls: "write 0.log 61", "sync 0.log", "syncdir d".
func (m *Mem) StartTrace() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults.trace, m.faults.traced = nil, true
}

// Trace returns what was recorded since StartTrace.
func (m *Mem) Trace() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.faults.trace)
}

// Crash is a power cut: of what was not synced each 512-byte sector, each file's growth and a suffix of each directory's
// changes is kept or lost as seed says. What is left is durable. Open files are dead, faults are cleared.
func (m *Mem) Crash(seed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	for _, dir := range slices.Sorted(maps.Keys(m.journal)) {
		ops := m.journal[dir]
		for _, o := range ops[:rng.IntN(len(ops)+1)] {
			o.apply(m.durable)
		}
	}
	m.dropOrphans()
	torn := map[*inode]bool{}
	for _, p := range slices.Sorted(maps.Keys(m.durable)) {
		if n := m.durable[p]; !n.dir && !torn[n] {
			n.tear(rng)
			torn[n] = true
		}
	}
	m.restart()
}

// Kill is a crash of the process alone: open files are dead and faults are cleared, but the page cache lives.
func (m *Mem) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boot++
	m.faults = faults{calls: m.faults.calls, trace: m.faults.trace, traced: m.faults.traced}
	m.space = -1
}

func (m *Mem) restart() {
	m.live = maps.Clone(m.durable)
	m.journal = map[string][]entryOp{}
	m.boot++
	m.faults = faults{calls: m.faults.calls, trace: m.faults.trace, traced: m.faults.traced}
	m.space = -1
}

// dropOrphans removes entries whose directory did not survive.
func (m *Mem) dropOrphans() {
	for _, p := range slices.Sorted(maps.Keys(m.durable)) {
		if d := m.durable[path.Dir(p)]; d == nil || !d.dir {
			delete(m.durable, p)
		}
	}
}

func (n *inode) tear(rng *rand.Rand) {
	if n.clean {
		return
	}
	old, cur := n.synced, n.data
	size := len(old) + rng.IntN(2)*(len(cur)-len(old))
	if grown := len(cur) - len(old); grown > 0 && rng.IntN(3) == 0 {
		size = len(old) + rng.IntN(grown+1)
	}
	out := make([]byte, size)
	for at := 0; at < size; at += sector {
		from := old
		if rng.IntN(2) == 0 {
			from = cur
		}
		if at < len(from) {
			copy(out[at:min(at+sector, size)], from[at:])
		}
	}
	n.data, n.synced, n.clean = out, slices.Clone(out), true
}
