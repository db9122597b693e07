package replica

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/varvelog/varve/meta"
)

// A proposal that was refused, since this broker has registered anew, does not count for the high watermark any more. A worker that is still
// at it must not write it by the new registration: the follower would be in the ISR without what was acknowledged meanwhile.
func TestARefusedProposalIsNotWrittenByALaterRegistration(t *testing.T) {
	c := newCluster(t)
	c.upstream = &scripted{say: func(FetchPart) *FetchedPart { return nil }}
	b := c.start()
	register := func(id int32) int64 {
		t.Helper()
		epoch, _, err := b.store.Register(t.Context(), meta.Broker{ID: id, Directory: "d"}, 60_000)
		if err != nil {
			t.Fatal(err)
		}
		until(t, "it is registered", func() bool { r := b.store.Image().Brokers[id]; return r != nil && r.Epoch == epoch })
		return epoch
	}
	register(1)
	topic, err := b.store.CreateTopic(t.Context(), meta.TopicSpec{Name: "t", Assignment: [][]int32{{1, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	p, joiner := b.leader("t", 0), register(2)
	fill(t, p, 10)
	p.step(Event{Kind: Fetched, Replica: 2, Epoch: p.LeaderEpoch(), BrokerEpoch: joiner, LEO: 10, Eligible: true}) // the test is the worker
	prop, rec := p.proposal(), b.m.record(p)
	if prop == nil {
		t.Fatal("nothing is proposed")
	}
	lost, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.m.tryISR(lost, p, prop, rec); err == nil {
		t.Fatal("the first try was not lost")
	}
	register(1)
	p.step(Event{Kind: Refused, Epoch: prop.Epoch, Version: prop.Version}) // by the other worker
	fill(t, p, 10)
	if hw := p.HighWatermark(); hw != 20 {
		t.Fatalf("high watermark %d, want 20", hw)
	}
	if err := b.m.tryISR(t.Context(), p, prop, rec); !errors.Is(err, meta.ErrConflict) {
		t.Errorf("it is written: %v", err)
	}
	if now, err := b.store.GetPartition(t.Context(), topic.Partitions[0].ID); err != nil || !slices.Equal(now.ISR, []int32{1}) {
		t.Errorf("ISR %v, %v; high watermark 20, and broker 2 has 10 records", now.ISR, err)
	}
}
