package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/proc"
)

// quorumLeader waits until an etcd member leads that is not inside the broker given, and returns the id of its broker.
func (w *world) quorumLeader(not int32) (id int32) {
	w.t.Helper()
	proc.Until(w.t, 20*time.Second, "an etcd member leads", func() error {
		i, err := proc.QuorumLeader(w.ctx, w.Etcd)
		if id = int32(i) + 1; err == nil && id == not {
			err = fmt.Errorf("broker %d's still does", id)
		}
		return err
	})
	return id
}

// Each change of etcd's leader ends requests to etcd whose outcome is not known, and watches; with its broker go a leader and a third of
// the replicas, or nobody.
func TestEtcdLeadersThatChangeLoseNothing(t *testing.T) {
	w := together(t)
	l := w.loaded("quorum")
	for _, how := range []struct {
		name string
		away func(id int32) (back func())
	}{
		{"handed over", func(id int32) func() {
			if err := proc.MoveQuorum(w.ctx, w.Etcd, int(id%3)); err != nil {
				t.Fatal(err)
			}
			return nil
		}},
		{"killed", func(id int32) func() {
			w.Broker(id).Kill()
			return func() { w.startOne(id) }
		}},
		{"paused", func(id int32) func() {
			w.sleep(id)
			return w.wake
		}},
	} {
		w.inSync("quorum")
		id := w.quorumLeader(0)
		l.longestGap()
		began := time.Now()
		back := how.away(id)
		if back != nil {
			w.notLedBy("quorum", id-1, id)
		}
		l.more(200)
		next := w.quorumLeader(id)
		gap := l.longestGap()
		t.Logf("etcd's leader, in broker %d, %s: broker %d's leads within %s, longest gap between acknowledgements %s", id, how.name, next, time.Since(began), gap)
		if back == nil {
			if gap > session {
				t.Errorf("%s: no acknowledgement for %s", how.name, gap)
			}
			continue
		}
		back()
		l.more(100)
	}
	// What needs etcd is done, too, and everybody hears of it.
	w.topic("later", each...)
	w.inSync("quorum")
	w.wholeAfter(l)
}
