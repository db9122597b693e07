package replica

import (
	"errors"
	"slices"
	"testing"

	"github.com/varvelog/varve/record"
)

func alone(kind EventKind, epoch int32, leo int64) Event {
	return Event{Kind: kind, Epoch: epoch, LEO: leo, Replicas: []int32{1}, ISR: []int32{1}}
}

func TestCoreWithOneReplica(t *testing.T) {
	type step struct {
		event     Event
		hw        int64
		effect    Effect
		whatItWas string
	}
	for name, steps := range map[string][]step{
		"with one replica everything appended is committed": {
			{alone(Elected, 4, 10), 10, Effect{HWMoved: true}, "what the log had"},
			{alone(Appended, 0, 15), 15, Effect{HWMoved: true}, "more"},
			{alone(Appended, 0, 15), 15, Effect{}, "nothing"},
		},
		"an election of an old epoch changes nothing": {
			{alone(Elected, 4, 10), 10, Effect{HWMoved: true}, "first"},
			{alone(Elected, 4, 3), 10, Effect{}, "repeated"},
			{alone(Elected, 3, 20), 10, Effect{}, "older"},
			{alone(Elected, 5, 10), 10, Effect{Stopped: true}, "newer: who waits must ask again"},
		},
		"who does not lead commits nothing": {
			{alone(Appended, 0, 5), 0, Effect{}, "no election yet"},
			{alone(Elected, 1, 5), 5, Effect{HWMoved: true}, "elected"},
			{alone(Resigned, 0, 0), 5, Effect{Stopped: true}, "resigned"},
			{alone(Appended, 0, 9), 5, Effect{}, "afterwards"},
		},
		"a log started from the archive is committed, also below what it was": {
			{alone(Elected, 1, 50), 50, Effect{HWMoved: true}, "elected"},
			{alone(Restarted, 0, 30), 30, Effect{HWMoved: true}, "restarted"},
			{alone(Appended, 0, 31), 31, Effect{HWMoved: true}, "goes on there"},
		},
		"min.insync.replicas above the number of replicas asks for all of them": {
			{Event{Kind: Configured, MinISR: 3}, 0, Effect{}, "configured"},
			{alone(Elected, 1, 5), 5, Effect{HWMoved: true}, "elected"},
		},
	} {
		c := Core{self: 1}
		for i, s := range steps {
			if got := c.Step(s.event); got != s.effect || c.hw != s.hw {
				t.Errorf("%s: step %d (%s): effect %+v high watermark %d, want %+v, %d", name, i, s.whatItWas, got, c.hw, s.effect, s.hw)
			}
		}
	}
}

func TestCoreComparesEpochs(t *testing.T) { // KIP-320
	c := Core{self: 1}
	if err := c.CheckEpoch(-1, true); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("not elected: %v", err)
	}
	want := map[int32]error{-1: nil, 7: nil, 6: ErrFencedEpoch, 0: ErrFencedEpoch, 8: ErrUnknownEpoch}
	c.Step(alone(Elected, 7, 0))
	for current, want := range want {
		if err := c.CheckEpoch(current, false); !errors.Is(err, want) {
			t.Errorf("leader, epoch %d: %v, want %v", current, err, want)
		}
	}
	c.Step(Event{Kind: Followed, Epoch: 7})
	for current, want := range want {
		if err := c.CheckEpoch(current, true); !errors.Is(err, want) {
			t.Errorf("follower, epoch %d: %v, want %v", current, err, want)
		}
		if err := c.CheckEpoch(current, false); !errors.Is(err, ErrNotLeader) {
			t.Errorf("follower asked as a leader, epoch %d: %v", current, err)
		}
	}
}

func TestEpochEnds(t *testing.T) { // BUG-021
	history := []record.Epoch{{Epoch: 2, Start: 5}, {Epoch: 3, Start: 10}, {Epoch: 6, Start: 20}}
	for _, x := range []struct{ ask, epoch, end int64 }{
		{-1, -1, -1}, {7, -1, -1}, {6, 6, 25}, {3, 3, 20}, {5, 3, 20}, {2, 2, 10}, {1, 1, 5}, {0, 0, 5},
	} {
		if epoch, end := epochEnd(history, 25, int32(x.ask)); int64(epoch) != x.epoch || end != x.end {
			t.Errorf("end of %d: (%d, %d), want (%d, %d)", x.ask, epoch, end, x.epoch, x.end)
		}
	}
	if epoch, end := epochEnd(nil, 25, 0); epoch != -1 || end != -1 {
		t.Errorf("empty history: (%d, %d)", epoch, end)
	}
}

func TestTruncationEndsWhereTwoLogsAgree(t *testing.T) { // KIP-101, KIP-279: every pair of short histories
	var logs [][]int32
	var grow func(l []int32)
	grow = func(l []int32) {
		logs = append(logs, slices.Clone(l))
		if len(l) == 5 {
			return
		}
		last := int32(0)
		if len(l) > 0 {
			last = l[len(l)-1]
		}
		for e := last; e <= 3; e++ {
			grow(append(l, e))
		}
	}
	grow(nil)
	for _, leader := range logs {
		for _, follower := range logs {
			// Epoch 4 leads; a log that agrees at an offset by epoch agrees below it: so a record's epoch names it.
			if !possible(leader, follower) {
				continue
			}
			log := slices.Clone(follower)
			for round := 0; ; round++ {
				leo := int64(len(log))
				asked := fetchedEpoch(historyOf(log), leo)
				if asked < 0 {
					break
				}
				lh := append(historyOf(leader), record.Epoch{Epoch: 4, Start: int64(len(leader))})
				epoch, end := epochEnd(lh, int64(len(leader)), asked)
				if epoch == asked && end >= leo {
					break
				}
				to := truncateTo(historyOf(log), leo, epoch, end)
				if to >= leo || round > 10 {
					t.Fatalf("leader %v follower %v: at %v told (%d, %d), truncates to %d", leader, follower, log, epoch, end, to)
				}
				log = log[:to]
			}
			if n := common(leader, follower); len(log) != n {
				t.Fatalf("leader %v follower %v: follower keeps %v, agrees up to %d", leader, follower, log, n)
			}
		}
	}
}

func historyOf(log []int32) []record.Epoch {
	var h []record.Epoch
	for i, e := range log {
		if len(h) == 0 || h[len(h)-1].Epoch != e {
			h = append(h, record.Epoch{Epoch: e, Start: int64(i)})
		}
	}
	return h
}

func common(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// possible says that two logs may stand beside each other: an epoch has one leader, so its records begin at one offset, and where two
// logs have the same epoch at the same offset they agree below.
func possible(a, b []int32) bool {
	n := common(a, b)
	for i := n; i < min(len(a), len(b)); i++ {
		if a[i] == b[i] {
			return false
		}
	}
	for _, x := range historyOf(a) {
		for _, y := range historyOf(b) {
			if x.Epoch == y.Epoch && x.Start != y.Start {
				return false
			}
		}
	}
	return true
}

func FuzzDecodeMarks(f *testing.F) {
	f.Add([]byte("0\n2\nt 0 5\nu-1 7 0\n"))
	f.Add([]byte("0\n0\n"))
	f.Add([]byte("1\n0\n"))
	f.Add([]byte("0\n1\nt 0 -5\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		marks, err := decodeMarks(b)
		if err != nil {
			return
		}
		again, err := decodeMarks(encodeMarks(marks))
		if err != nil || len(again) != len(marks) {
			t.Fatalf("encoded again: %v, %v", again, err)
		}
		for k, hw := range marks {
			if again[k] != hw {
				t.Fatalf("%v is %d, was %d", k, again[k], hw)
			}
		}
	})
}
