package localseg

import (
	"runtime"
	"sync/atomic"

	"github.com/varvelog/varve/internal/wallclock"
)

// Clock stamps the appends of a broker's logs, which share it: the system's clock, but never at or before a time that has been passed. The
// zero value is ready. Concurrent.
type Clock struct {
	Wall   wallclock.Clock // set before the first use
	passed atomic.Int64    // ms
}

// Pass makes every append that begins from now on be stamped after ms, also where the system's clock is set back. What is under way may
// have an earlier stamp: Log.AppendedSince tells.
func (c *Clock) Pass(ms int64) {
	for {
		old := c.passed.Load()
		if old >= ms || c.passed.CompareAndSwap(old, ms) {
			return
		}
	}
}

func (c *Clock) nowMs() int64 { return max(c.Wall.Ms(), c.passed.Load()+1) }

// stampUnknown: an append is under way whose stamp is being taken.
const stampUnknown = -1

// AppendedSince is a time, ms, before which nothing was appended of what the log has at offset from and above, an append under way
// included, and the local log alone being looked at; there is false where it has nothing. Called after Clock.Pass it misses nothing that was
// stamped at or before the time passed.
func (l *Log) AppendedSince(from int64) (ms int64, there bool, err error) {
	// The append first: when it is over, the end of the log shows it.
	under := l.stamping.Load()
	for ; under == stampUnknown; under = l.stamping.Load() {
		runtime.Gosched() // it reads a clock
	}
	if from = max(from, l.LocalStart()); from < l.LEO() {
		times, err := l.AppendTimes(from, from+1)
		if err != nil {
			return 0, true, err
		}
		if len(times) > 0 { // else retention has taken it just now
			ms, there = times[0].Ms, true
		}
	}
	if under > 0 && (!there || under < ms) {
		ms, there = under, true
	}
	return ms, there, nil
}
