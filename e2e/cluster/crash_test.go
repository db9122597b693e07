package cluster

import (
	"testing"
	"time"
)

func TestKilledLeadersLoseNothing(t *testing.T) {
	w := together(t)
	l := w.loaded("killed")
	for _, victim := range []string{"a leader that does not control the cluster", "the controller"} {
		w.inSync("killed")
		id := w.controller()
		if victim != "the controller" {
			id = id%3 + 1
		}
		l.longestGap()
		w.Broker(id).Kill()
		began := time.Now()
		w.notLedBy("killed", id-1, id)
		led := time.Since(began)
		l.more(200)
		gap := l.longestGap()
		t.Logf("%s, broker %d: killed, its partition led by another after %s, longest gap between acknowledgements %s", victim, id, led, gap)
		if gap > session {
			t.Errorf("%s: no acknowledgement for %s: only the session's end was noticed", victim, gap)
		}
		w.startOne(id)
		l.more(100)
	}
	w.inSync("killed")
	l.stop()
	w.sameReplicas("killed", 3)
}
