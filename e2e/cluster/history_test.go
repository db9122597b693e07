package cluster

import (
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// history is what clients did to one partition and saw of it.
type history struct {
	mu  sync.Mutex
	ops []porcupine.Operation // guarded by mu
}

// appended is the input of an append, whose output is the offset.
type appended struct{ value string }

// seen is the input of a read: the records from an offset on were these. Its output says nothing more.
type seen struct {
	from   int64
	values []string
	whole  bool // the log ends after them
}

// began is the clock of histories.
var began = time.Now()

func clock() int64 { return int64(time.Since(began)) }

func (h *history) add(call int64, input, output any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{Input: input, Call: call, Output: output, Return: clock()})
}

// wrote is an append that was acknowledged at the offset.
func (h *history) wrote(call int64, value string, offset int64) { h.add(call, appended{value}, offset) }

// maybe is an append whose fate the client does not know: it may take effect at any later time.
func (h *history) maybe(call int64, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{Input: appended{value}, Call: call, Output: int64(-1), Return: math.MaxInt64})
}

// read is what a fetch returned.
func (h *history) read(call int64, from int64, values []string) {
	h.add(call, seen{from, values, false}, nil)
}

// cell is the end of a log: an immutable list, newest first.
type cell struct {
	n      int64 // records up to here
	value  string
	hash   uint64 // of all values up to here
	before *cell
}

var hashSeed = maphash.MakeSeed()

func (c *cell) append(value string) *cell {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	fmt.Fprintf(&h, "%x %s", c.hash, value)
	return &cell{n: c.n + 1, value: value, hash: h.Sum64(), before: c}
}

// has says that the log has these values from an offset on.
func (c *cell) has(s seen) bool {
	end := s.from + int64(len(s.values))
	if c.n < end || s.whole && c.n != end {
		return false
	}
	for c.n > end {
		c = c.before
	}
	for i := len(s.values) - 1; i >= 0; i-- {
		if c.value != s.values[i] {
			return false
		}
		c = c.before
	}
	return true
}

// logModel is a log that grows at its end and never loses or changes a record. A read need not see the end, as a leader that has been
// replaced may answer readers for a while, but what it has seen stays.
var logModel = porcupine.Model{
	Init: func() any { return &cell{} },
	Step: func(state, input, output any) (bool, any) {
		log := state.(*cell)
		switch in := input.(type) {
		case appended:
			if offset := output.(int64); offset >= 0 && offset != log.n {
				return false, nil
			}
			return true, log.append(in.value)
		case seen:
			return log.has(in), log
		}
		panic("unknown operation")
	},
	Equal: func(a, b any) bool { x, y := a.(*cell), b.(*cell); return x.n == y.n && x.hash == y.hash },
	Hash:  func(s any) uint64 { return s.(*cell).hash },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%T%v -> %v", input, input, output)
	},
}

// check holds the history to the model. final is the whole log, read after everything: it decides which of the appends of unknown fate
// took effect, which keeps the search linear.
func (h *history) check(final []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := map[string]int64{}
	for i, v := range final {
		if first, twice := at[v]; twice {
			return fmt.Errorf("%q is at %d and at %d", v, first, i)
		}
		at[v] = int64(i)
	}
	now := clock()
	var ops []porcupine.Operation
	for _, op := range h.ops {
		if a, ok := op.Input.(appended); ok && op.Output.(int64) < 0 {
			offset, ok := at[a.value]
			if !ok {
				continue // it never took effect
			}
			op.Output, op.Return = offset, now
		}
		ops = append(ops, op)
	}
	ops = append(ops, porcupine.Operation{Input: seen{0, final, true}, Call: now + 1, Return: now + 2})
	if err := contradiction(ops, final); err != nil {
		return err
	}
	switch porcupine.CheckOperationsTimeout(logModel, ops, 30*time.Second) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("no verdict on %d operations within 30 s", len(ops))
	}
	return fmt.Errorf("%d operations are no history of a log: the order of calls and answers is impossible", len(ops))
}

// contradiction looks for an answer that the log at the end does not bear out. The model would find it too, but it cannot say which it was, and
// may search long for another explanation.
func contradiction(ops []porcupine.Operation, final []string) error {
	for _, op := range ops {
		switch in := op.Input.(type) {
		case appended:
			offset := op.Output.(int64)
			if offset >= int64(len(final)) {
				return fmt.Errorf("%q was acknowledged at %d; the log ends before %d", in.value, offset, len(final))
			}
			if got := final[offset]; got != in.value {
				return fmt.Errorf("%q was acknowledged at %d, where the log has %q", in.value, offset, got)
			}
		case seen:
			for i, v := range in.values {
				if o := in.from + int64(i); o >= int64(len(final)) || final[o] != v {
					return fmt.Errorf("%q was read at %d, which the log does not have there", v, o)
				}
			}
		}
	}
	return nil
}

func TestModelOfALogAllowsAndRefuses(t *testing.T) {
	type op struct {
		call, ret int64
		in        any
		out       int64
	}
	a := func(call, ret int64, v string, at int64) op { return op{call, ret, appended{v}, at} }
	r := func(call, ret int64, from int64, vs ...string) op {
		return op{call, ret, seen{from: from, values: vs}, 0}
	}
	for _, x := range []struct {
		name  string
		ops   []op
		final []string
		ok    bool
	}{
		{"appends in turn", []op{a(1, 2, "a", 0), a(3, 4, "b", 1)}, []string{"a", "b"}, true},
		{"appends at the same time may take any order", []op{a(1, 4, "a", 1), a(2, 3, "b", 0)}, []string{"b", "a"}, true},
		{"an append that ended before another began is before it", []op{a(1, 2, "a", 1), a(3, 4, "b", 0)}, []string{"b", "a"}, false},
		{"an acknowledged record is lost", []op{a(1, 2, "a", 0), a(3, 4, "b", 1)}, []string{"a"}, false},
		{"an acknowledged record is replaced", []op{a(1, 2, "a", 0), a(3, 4, "b", 0)}, []string{"b"}, false},
		{"a record is there twice", []op{a(1, 2, "a", 0)}, []string{"a", "a"}, false},
		{"a record that nobody wrote", []op{a(1, 2, "a", 0)}, []string{"a", "x"}, false},
		{"an unknown append took effect", []op{a(1, 0, "a", -1), a(3, 4, "b", 1)}, []string{"a", "b"}, true},
		{"an unknown append took no effect", []op{a(1, 0, "a", -1), a(3, 4, "b", 0)}, []string{"b"}, true},
		{"an unknown append takes effect late", []op{a(1, 0, "a", -1), a(3, 4, "b", 0)}, []string{"b", "a"}, true},
		{"a read before the acknowledgement", []op{a(1, 9, "a", 0), r(2, 3, 0, "a")}, []string{"a"}, true},
		{"a read before the append began", []op{r(1, 2, 0, "a"), a(3, 4, "a", 0)}, []string{"a"}, false},
		{"what was read is gone", []op{a(1, 0, "a", -1), r(2, 3, 0, "a"), a(4, 5, "b", 0)}, []string{"b"}, false},
	} {
		h := &history{}
		for _, o := range x.ops {
			ret := o.ret
			if o.out < 0 {
				ret = math.MaxInt64
			}
			h.ops = append(h.ops, porcupine.Operation{Input: o.in, Call: o.call, Output: o.out, Return: ret})
		}
		if err := h.check(x.final); (err == nil) != x.ok {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}
