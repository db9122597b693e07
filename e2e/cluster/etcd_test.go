package cluster

import (
	"syscall"
	"testing"

	"github.com/varvelog/varve/e2e/proc"
)

func TestProduceAndFetchGoOnWithoutEtcd(t *testing.T) {
	w := apart(t)
	w.topic("long", each...)
	l := w.startLoad("long", 3)
	l.more(200)
	l.longestGap()
	if err := w.etcd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		proc.Pause(session)
		l.more(100)
	}
	if err := w.etcd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.more(200)
	t.Logf("longest gap between acknowledgements: %s", l.longestGap())
	w.inSync("long")
	l.stop()
	w.sameReplicas("long", 3)
}

// Two of three members of the embedded etcd sleep. What needs nobody else goes on, and when they wake up so does everything.
func TestABrokerAloneServesItsOwnWithoutAMajority(t *testing.T) {
	w := together(t)
	w.topic("own", []int32{1})
	w.topic("shared", each...)
	shared, own := w.startLoad("shared", 3), w.startLoad("own", 1)
	shared.more(100)
	own.more(100)
	w.sleep(2, 3)
	for range 2 {
		proc.Pause(session)
		own.more(100)
	}
	w.wake()
	w.inSync("shared")
	own.more(100)
	shared.more(100)
	own.stop()
	shared.stop()
	w.sameReplicas("shared", 3)
}
