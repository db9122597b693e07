package cluster

import (
	"testing"
)

// Cut off from etcd, or from all but its clients, a leader is replaced, and acknowledges nothing that its successor lacks.
func TestLeaderCutOffFromEtcdIsReplacedAndLosesNothing(t *testing.T) {
	for name, from := range map[string][]place{"from etcd": {etcd}, "from all but clients": {etcd, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			w := apart(t)
			w.topic("fenced", each...)
			l := w.startLoad("fenced", 3)
			l.more(200)
			d := w.direct(l, "fenced", 0, 1)
			d.send(5)
			d.wait()
			w.inSync("fenced")
			w.net.bothWays(1, from...)
			w.notLedBy("fenced", 0, 1)
			d.send(20)
			l.more(200)
			w.net.heal()
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
}

// Cut off from the other brokers but not from etcd, a leader stays, and takes them out of its ISR; below min.insync.replicas nothing is
// acknowledged. The others' partitions go on without it.
func TestLeaderCutOffFromFollowersAcknowledgesNothingAlone(t *testing.T) {
	w := apart(t)
	w.topic("alone", each[0])
	w.topic("others", each[1], each[2])
	alone, others := w.startLoad("alone", 1), w.startLoad("others", 2)
	alone.more(100)
	w.net.bothWays(1, 2, 3)
	w.isr("others", 0, 2)
	w.isr("alone", 0, 1)
	before := alone.n.Load()
	others.more(300)
	if n := alone.n.Load() - before; n != 0 {
		t.Errorf("%d records were acknowledged while the leader was alone and min.insync.replicas is 2", n)
	}
	w.net.heal()
	w.inSync("alone")
	w.inSync("others")
	alone.more(100)
	alone.stop()
	others.stop()
	w.sameReplicas("others", 2)
}

// What one broker sends does not arrive at another, while the other way is whole.
func TestCutOneWayShrinksWhatDependsOnItAndNothingElse(t *testing.T) {
	w := apart(t)
	w.topic("oneway", each...)
	l := w.startLoad("oneway", 3)
	l.more(200)
	w.net.oneWay(2, 1)
	w.isr("oneway", 0, 2) // 2 cannot ask 1
	w.isr("oneway", 1, 2) // 1 asks 2 and gets no answer
	w.isr("oneway", 2, 3) // 1 and 2 follow 3
	l.more(200)
	w.net.heal()
	w.inSync("oneway")
	l.more(200)
	l.stop()
	w.sameReplicas("oneway", 3)
}
