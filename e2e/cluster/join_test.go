package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/e2e/wire"
)

// joins is how often a follower joins behind a leader that was just elected: VARVE_JOINS, or a few times.
func joins(t *testing.T) int {
	t.Helper()
	given := os.Getenv("VARVE_JOINS")
	if given == "" {
		return 3
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 {
		t.Fatalf("VARVE_JOINS=%s: want a number of rounds", given)
	}
	return n
}

// joinMax is how long one such round may take on a busy machine.
const joinMax = 30 * time.Second

// underWay is how long everything takes to and from who joins; where the network is one of relays what was under way arrives all the same.
const underWay = 50 * time.Millisecond

// A leader that was just elected does not know yet how much of its log is committed. Who joins its ISR needs all of it: the next moment it
// may lead alone (BUG-030).
func TestWhoJoinsANewLeadersISRHasAllThatWasAcknowledged(t *testing.T) {
	w := apart(t)
	w.topic("joined", []int32{1, 2, 3})
	cl := w.client(kgo.ManualFlushing())
	at := map[string]int64{} // what was acknowledged
	for round := range joins(t) {
		began := time.Now()
		w.inSync("joined")
		d, err := w.partition("joined", 0)
		if err != nil {
			t.Fatal(err)
		}
		leader, joiner := d.Leader, d.Leader%3+1
		next := 6 - leader - joiner
		w.stopOne(joiner)
		w.isr("joined", 0, 2)
		// In one batch, whose acknowledgement the second one's next answer would tell it of: there is none any more.
		w.batch(cl, "joined", fmt.Sprintf("r%d-", round), 100, at)
		w.Broker(leader).Kill()
		// What the follower's first requests bring is under way while it is let in on what it had before, if it is.
		w.net.Impair(int(joiner), wire.Poor{Delay: underWay})
		if err := w.Broker(joiner).Begin(); err != nil {
			t.Fatal(err)
		}
		w.joined("joined", joiner, next)
		w.net.Forget(int(next), int(joiner))
		w.Broker(next).Kill()
		if led := w.notLedBy("joined", 0, next); led != joiner {
			t.Fatalf("round %d: broker %d leads, want %d: the others are dead", round, led, joiner)
		}
		w.net.Heal()
		w.startOne(leader)
		w.startOne(next)
		got := w.readAll("joined", 1)[0]
		for v, o := range at {
			if o >= int64(len(got)) || got[o] != v {
				t.Fatalf("round %d: %s was acknowledged at %d and is not there: the log has %d records", round, v, o, len(got))
			}
		}
		if len(got) != len(at) {
			t.Fatalf("round %d: %d records, %d were written", round, len(got), len(at))
		}
		t.Logf("round %d: %s", round, time.Since(began).Round(10*time.Millisecond))
	}
	w.inSync("joined")
	w.sameReplicas("joined", 1)
}

// joined returns as soon as the new leader has the follower in its ISR: it is asked itself, all the time.
func (w *world) joined(topic string, joiner, leader int32) {
	w.t.Helper()
	cl := w.client(kgo.SeedBrokers(w.boot[leader-1]))
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	var seen any
	for began := time.Now(); time.Since(began) < joinMax; {
		resp, err := cl.SeedBrokers()[0].Request(w.ctx, req)
		if err != nil {
			seen = err
			continue
		}
		p := resp.(*kmsg.MetadataResponse).Topics[0].Partitions[0]
		if p.Leader == leader && slices.Contains(p.ISR, joiner) {
			return
		}
		seen = fmt.Sprintf("leader %d, isr %v", p.Leader, p.ISR)
	}
	w.t.Fatalf("broker %d has not joined behind broker %d: %v", joiner, leader, seen)
}

// batch writes n records at once and notes at what offsets they were acknowledged.
func (w *world) batch(cl *kgo.Client, topic, prefix string, n int, at map[string]int64) {
	w.t.Helper()
	errs := make(chan error, n)
	var records []*kgo.Record
	for i := range n {
		r := &kgo.Record{Topic: topic, Value: []byte(prefix + strconv.Itoa(i))}
		records = append(records, r)
		cl.Produce(w.ctx, r, func(_ *kgo.Record, err error) { errs <- err })
	}
	ctx, cancel := context.WithTimeout(w.ctx, joinMax)
	defer cancel()
	if err := cl.Flush(ctx); err != nil {
		w.t.Fatal(err)
	}
	for range n {
		if err := <-errs; err != nil {
			w.t.Fatal(err)
		}
	}
	for _, r := range records {
		at[string(r.Value)] = r.Offset
	}
}
