package cluster

import (
	"strings"
	"testing"
	"time"
)

func TestRollingRestartMakesNoErrorAndLosesNothing(t *testing.T) {
	w := together(t)
	l := w.loaded("rolled")
	g := w.startGroup("followers", "rolled")
	l.longestGap()
	for id := int32(1); id <= 3; id++ {
		began := time.Now()
		w.stopOne(id)
		stopped := time.Since(began)
		l.more(100)
		w.startOne(id)
		w.inSync("rolled")
		l.more(100)
		t.Logf("broker %d: stopped in %s, in sync after %s, longest gap between acknowledgements %s", id, stopped, time.Since(began), l.longestGap())
	}
	l.stop()
	g.stop(w.ends("rolled"))
	w.sameReplicas("rolled", 3)
}

// Nobody is left to hand over to: the last brokers must not wait for it, nor for an etcd that has no majority any more.
func TestAllBrokersStopAtOnceWithoutWaiting(t *testing.T) {
	w := together(t)
	w.topic("all", each...)
	l := w.startLoad("all", 3)
	l.more(100)
	l.stop()
	began := time.Now()
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("three brokers that are stopped at once took %s", took)
	}
	for i, v := range w.Brokers {
		for _, waited := range []string{`msg="hand over leaderships"`, "msg=drain ", "connections were cut"} {
			if strings.Contains(v.Output(), waited) {
				t.Errorf("broker %d waited in vain: %s", i+1, waited)
			}
		}
	}
	w.start()
	w.inSync("all")
	for p, values := range w.readAll("all", 3) {
		if err := l.histories[p].check(values); err != nil {
			t.Errorf("partition %d after the restart: %v", p, err)
		}
	}
}
