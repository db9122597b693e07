package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/e2e/proc"
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

// Who waits for followers that are gone is told so, however long the leader would wait for them, and whatever the client's own patience.
func TestBelowTheMinimumClientsAreTold(t *testing.T) {
	w := apart(t, "replica.lag.time.max.ms=600000")
	w.topic("few", each[0])
	w.Broker(2).Kill()
	w.Broker(3).Kill()
	to := w.client(kgo.SeedBrokers(w.boot[0]), kgo.RequestTimeoutOverhead(time.Minute)).SeedBrokers()[0]
	send := func() error {
		resp, err := to.Request(w.ctx, version{w.one("few", 0, "v", 10*time.Minute), 12})
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
	}
	if err := send(); !errors.Is(err, kerr.NotEnoughReplicas) && !errors.Is(err, kerr.NotEnoughReplicasAfterAppend) {
		t.Errorf("with both followers gone: %v", err)
	}
	ask := kmsg.NewPtrDescribeTopicPartitionsRequest()
	about := kmsg.NewDescribeTopicPartitionsRequestTopic()
	about.Topic = "few"
	ask.Topics, ask.ResponsePartitionLimit = append(ask.Topics, about), 1
	resp, err := ask.RequestWith(w.ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	if p := resp.Topics[0].Partitions[0]; len(p.ISR) != 1 || len(p.EligibleLeaderReplicas) == 0 { // whether it was one or both the controller knew of first
		t.Errorf("in sync %v, eligible %v: who has all that is committed must not leave", p.ISR, p.EligibleLeaderReplicas)
	}
	w.startOne(2)
	proc.Until(t, 30*time.Second, "it is taken again with a follower", send)
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
}
