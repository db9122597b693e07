package replica

import (
	"errors"
	"testing"
)

func TestCore(t *testing.T) {
	type step struct {
		event     Event
		hw        int64
		effect    Effect
		whatItWas string
	}
	for name, steps := range map[string][]step{
		"with one replica everything appended is committed": {
			{Event{Elected, 4, 10}, 10, Effect{HWMoved: true}, "what the log had"},
			{Event{Appended, 0, 15}, 15, Effect{HWMoved: true}, "more"},
			{Event{Appended, 0, 15}, 15, Effect{}, "nothing"},
		},
		"an election of an old epoch changes nothing": {
			{Event{Elected, 4, 10}, 10, Effect{HWMoved: true}, "first"},
			{Event{Elected, 4, 3}, 10, Effect{}, "repeated"},
			{Event{Elected, 3, 20}, 10, Effect{}, "older"},
			{Event{Elected, 5, 10}, 10, Effect{Stopped: true}, "newer: who waits must ask again"},
		},
		"who does not lead commits nothing": {
			{Event{Appended, 0, 5}, 0, Effect{}, "no election yet"},
			{Event{Elected, 1, 5}, 5, Effect{HWMoved: true}, "elected"},
			{Event{Resigned, 0, 0}, 5, Effect{Stopped: true}, "resigned"},
			{Event{Appended, 0, 9}, 5, Effect{}, "afterwards"},
		},
		"a log started from the archive is committed, also below what it was": {
			{Event{Elected, 1, 50}, 50, Effect{HWMoved: true}, "elected"},
			{Event{Restarted, 0, 30}, 30, Effect{HWMoved: true}, "restarted"},
			{Event{Appended, 0, 31}, 31, Effect{HWMoved: true}, "goes on there"},
		},
	} {
		var c Core
		for i, s := range steps {
			if got := c.Step(s.event); got != s.effect || c.hw != s.hw {
				t.Errorf("%s: step %d (%s): effect %+v high watermark %d, want %+v, %d", name, i, s.whatItWas, got, c.hw, s.effect, s.hw)
			}
		}
	}
}

func TestCoreComparesEpochs(t *testing.T) { // KIP-320
	var c Core
	if err := c.CheckEpoch(-1); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("not elected: %v", err)
	}
	c.Step(Event{Elected, 7, 0})
	for current, want := range map[int32]error{-1: nil, 7: nil, 6: ErrFencedEpoch, 0: ErrFencedEpoch, 8: ErrUnknownEpoch} {
		if err := c.CheckEpoch(current); !errors.Is(err, want) {
			t.Errorf("epoch %d: %v, want %v", current, err, want)
		}
	}
}
