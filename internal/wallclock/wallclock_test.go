package wallclock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/wallclock"
)

func TestZeroClockIsTheSystems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c wallclock.Clock
		if got := c.Ms(); got != time.Now().UnixMilli() || !c.Now().Equal(time.Now()) {
			t.Fatalf("it is %d, want %d", got, time.Now().UnixMilli())
		}
	})
}

func TestClockThatIsSetIsWhatItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := wallclock.Clock(func() time.Time { return time.Now().Add(time.Hour) })
		began := c.Now()
		if got := began.UnixMilli(); got != c.Ms() || got != time.Now().Add(time.Hour).UnixMilli() {
			t.Fatalf("it is %d", got)
		}
		if began != began.Round(0) {
			t.Fatal("a time of day has a reading of the clock of durations")
		}
	})
}
