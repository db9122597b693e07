package cluster

import (
	"bytes"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/proc"
)

// outage is how long etcd is away: VARVE_OUTAGE, or long enough for every session to end and connections to back off.
func outage(t *testing.T) time.Duration {
	t.Helper()
	given := os.Getenv("VARVE_OUTAGE")
	if given == "" {
		return 3 * session
	}
	d, err := time.ParseDuration(given)
	if err != nil || d < session {
		t.Fatalf("VARVE_OUTAGE=%s: want a duration of %s or more", given, session)
	}
	return d
}

// slow is the time between two records of an outage that is long.
const slow = 50 * time.Millisecond

// What the brokers may cost while etcd is away.
const (
	outageLines = 2        // log lines of a broker in a second
	outageGrows = 96 << 20 // bytes of a broker's memory
)

// returns is how soon after etcd is back everything can be done again, on a busy machine.
const returns = 20 * time.Second

// lines counts the lines of a log.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.n.Add(int64(bytes.Count(p, []byte("\n"))))
	return len(p), nil
}

// Without etcd nothing can change, and nothing has to: whoever leads goes on, and a group that knows its coordinator does too.
func TestProduceAndFetchGoOnWithoutEtcd(t *testing.T) {
	onNetworks(t, func(t *testing.T, apart begin) {
		for name, away := range map[string]func(w *world) (back func()){
			"it sleeps": func(w *world) func() {
				w.signalEtcd(syscall.SIGSTOP)
				return func() { w.signalEtcd(syscall.SIGCONT) }
			},
			"it is cut off": func(w *world) func() {
				w.bothWays(etcd, 1, 2, 3)
				return w.net.Heal
			},
		} {
			t.Run(name, func(t *testing.T) { w := apart(t); w.withoutEtcd(away) })
		}
	})
}

func (w *world) signalEtcd(s syscall.Signal) {
	w.t.Helper()
	if err := w.etcd.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) withoutEtcd(away func(*world) (back func())) {
	t := w.t
	t.Helper()
	lasts := outage(t)
	w.topic("long", each...)
	l := w.startLoad("long", 3)
	g := w.startGroup("long-readers", "long")
	l.more(200)
	if lasts > time.Minute {
		l.pace(slow)
	}
	g.awaitMore(10)
	l.longestGap()
	before := w.costs()
	back := away(w)
	for began := time.Now(); time.Since(began) < lasts; {
		proc.Pause(session / 2)
		l.more(10)
		g.awaitMore(10)
	}
	t.Logf("longest gap between acknowledgements in %s without etcd: %s", lasts, l.longestGap())
	for i, now := range w.costs() {
		was := before[i]
		lines, grown, cpu := now.lines-was.lines, now.bytes-was.bytes, now.cpu-was.cpu
		t.Logf("broker %d: %d log lines, memory %+d KiB to %d KiB, %.1f %% of a core", i+1, lines, grown>>10, now.bytes>>10, 100*cpu.Seconds()/lasts.Seconds())
		if limit := outageLines*int64(lasts.Seconds()) + 50; lines > limit {
			t.Errorf("broker %d wrote %d log lines without etcd, want at most %d", i+1, lines, limit)
		}
		if grown > outageGrows {
			t.Errorf("broker %d has grown by %d bytes without etcd, want at most %d", i+1, grown, outageGrows)
		}
	}
	back()
	began := time.Now()
	proc.Until(t, time.Minute, "a topic is made", func() error { return w.tryTopic("new", each...) })
	took := time.Since(began)
	t.Logf("a topic is made %s after etcd was back", took.Round(10*time.Millisecond))
	if took > returns {
		t.Errorf("it took the brokers %s to notice that etcd was back, want at most %s", took, returns)
	}
	w.inSync("new")
	w.inSync("long")
	l.more(200)
	t.Logf("longest gap between acknowledgements since: %s", l.longestGap())
	l.stop()
	g.stop(w.ends("long"))
	w.sameReplicas("long", 3)
}

// cost is what a broker has used.
type cost struct {
	lines, bytes int64
	cpu          time.Duration
}

func (w *world) costs() []cost {
	w.t.Helper()
	var all []cost
	for i, v := range w.Brokers {
		c := cost{lines: w.logged[i].n.Load()}
		var err error
		if c.bytes, err = v.ResidentBytes(); err == nil {
			c.cpu, err = v.CPU()
		}
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}
