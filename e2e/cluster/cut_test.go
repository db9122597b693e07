package cluster

import (
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/proc"
	"github.com/varvelog/varve/e2e/wire"
)

// Cut off from etcd, or from all but its clients, a leader is replaced, and acknowledges nothing that its successor lacks.
func TestLeaderCutOffFromEtcdIsReplacedAndLosesNothing(t *testing.T) {
	onNetworks(t, func(t *testing.T, apart begin) {
		for name, from := range map[string][]int{"from etcd": {etcd}, "from all but clients": {etcd, 2, 3}} {
			t.Run(name, func(t *testing.T) {
				w := apart(t)
				l := w.loaded("fenced")
				d := w.direct(l, "fenced", 0, 1)
				w.bothWays(1, from...)
				w.notLedBy("fenced", 0, 1)
				d.send(20)
				l.more(200)
				w.net.Heal()
				d.wait()
				w.inSync("fenced")
				l.more(200)
				l.stop()
				if d.acked < 5 || d.refused == 0 {
					t.Errorf("directly to the former leader: %d acknowledged, %d refused", d.acked, d.refused)
				}
				w.sameReplicas("fenced", 3)
			})
		}
	})
}

// Cut off from the other brokers but not from etcd, a leader stays, and takes them out of its ISR; below min.insync.replicas nothing is
// acknowledged. It makes no difference which way is cut: a request that does not arrive and an answer that does not are both silence. The
// others' partitions go on without it.
func TestLeaderCutOffFromFollowersAcknowledgesNothingAlone(t *testing.T) {
	onNetworks(t, func(t *testing.T, apart begin) {
		for name, cut := range map[string]func(w *world){
			"both ways":       func(w *world) { w.bothWays(1, 2, 3) },
			"it cannot speak": func(w *world) { w.oneWay(1, 2, 3) },
			"it cannot hear":  func(w *world) { w.oneWay(2, 1); w.oneWay(3, 1) },
		} {
			t.Run(name, func(t *testing.T) {
				w := apart(t)
				w.topic("alone", each[0])
				w.topic("others", each[1], each[2])
				alone, others := w.startLoad("alone", 1), w.startLoad("others", 2)
				alone.more(100)
				cut(w)
				w.isr("others", 0, 2)
				w.isr("alone", 0, 1)
				before := alone.n.Load()
				others.more(300)
				if n := alone.n.Load() - before; n != 0 {
					t.Errorf("%d records were acknowledged while the leader was alone and min.insync.replicas is 2", n)
				}
				w.healed("alone", "others")
				alone.more(100)
				alone.stop()
				others.stop()
				w.sameReplicas("others", 2)
			})
		}
	})
}

// What one broker sends does not arrive at another, while the other way is whole.
func TestCutOneWayShrinksWhatDependsOnItAndNothingElse(t *testing.T) {
	onNetworks(t, func(t *testing.T, apart begin) {
		w := apart(t)
		l := w.loaded("oneway")
		w.oneWay(2, 1)
		w.isr("oneway", 0, 2) // 2 cannot ask 1
		w.isr("oneway", 1, 2) // 1 asks 2 and gets no answer
		w.isr("oneway", 2, 3) // 1 and 2 follow 3
		l.more(200)
		w.healed("oneway")
		w.wholeAfter(l)
	})
}

// One way to etcd is enough to lose it: what a broker asks and is not answered, and what it is told and does not hear.
func TestBrokerThatEtcdCannotHearOrReachIsReplaced(t *testing.T) {
	onNetworks(t, func(t *testing.T, apart begin) {
		for name, cut := range map[string]func(w *world){
			"etcd cannot hear it": func(w *world) { w.oneWay(1, etcd) },
			"it cannot hear etcd": func(w *world) { w.oneWay(etcd, 1) },
		} {
			t.Run(name, func(t *testing.T) {
				w := apart(t)
				l := w.loaded("deaf")
				cut(w)
				w.notLedBy("deaf", 0, 1)
				l.more(200)
				w.healed("deaf")
				w.wholeAfter(l)
			})
		}
	})
}

// gone is how long a broker is cut off from everything: its session ends, connections to it have backed off, and its own.
const gone = 20 * time.Second

// A broker that nobody hears for a while, clients neither, comes back with its connections half open at both ends.
func TestBrokerCutOffFromEverythingComesBack(t *testing.T) {
	cutOff := func(t *testing.T, w *world, from ...int) {
		l := w.loaded("back")
		g := w.startGroup("readers", "back")
		w.bothWays(1, from...)
		proc.Pause(gone)
		l.more(300)
		w.healed("back")
		l.more(200)
		l.stop()
		g.stop(w.ends("back"))
		w.sameReplicas("back", 3)
	}
	onNetworks(t, func(t *testing.T, apart begin) {
		t.Run("etcd apart", func(t *testing.T) { cutOff(t, apart(t), clients, etcd, 2, 3) })
	})
	if noNamespaces == nil {
		t.Run("etcd member on it", func(t *testing.T) { cutOff(t, togetherOnWire(t), clients, 2, 3) })
	}
}

// Connections between brokers that were there are silent from now on, while new ones work. Neither side's requests end by their own time,
// nor may the leader do without the follower here: only the silence itself, once it is noticed, lets anything be acknowledged again.
func TestSilentConnectionBetweenBrokersIsReplaced(t *testing.T) {
	if noNamespaces != nil {
		t.Logf("not tried: %v", noNamespaces) // relays hold bytes back, but acknowledge them
		return
	}
	w := apartOnWire(t, "replica.socket.timeout.ms=600000", "replica.lag.time.max.ms=600000")
	w.topic("silent", each[0])
	l := w.startLoad("silent", 1)
	l.more(100)
	w.net.Forget(1, 2)
	l.more(300)
	w.healed("silent")
	l.stop()
	w.sameReplicas("silent", 1)
}

// A line that loses a quarter of the packets and delays the others is slow, and correct.
func TestBrokerOnAPoorLineIsSlowAndCorrect(t *testing.T) {
	onNetworks(t, func(t *testing.T, apart begin) {
		w := apart(t)
		l := w.loaded("poor")
		w.net.Impair(2, wire.Poor{Loss: 0.25, Delay: 50 * time.Millisecond})
		l.more(1500)
		t.Logf("longest gap between acknowledgements: %s", l.longestGap())
		w.healed("poor")
		w.wholeAfter(l)
	})
}
