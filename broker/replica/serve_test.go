package replica

import (
	"errors"
	"testing"

	"github.com/varvelog/varve/meta"
)

// A fetch that was begun in one leader epoch, and goes on when this broker has followed another and leads anew, says nothing of the log as
// it is now: the follower's may have other records. It must neither move the high watermark, nor let the follower into the ISR, nor be told
// of a high watermark.
func TestAFetchOfAFormerEpochCountsForNothing(t *testing.T) {
	c := newCluster(t)
	c.upstream = &scripted{say: func(FetchPart) *FetchedPart { return nil }}
	b := c.start()
	topic, err := b.store.CreateTopic(t.Context(), meta.TopicSpec{Name: "t", Assignment: [][]int32{{1, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the image has the topic", func() bool { return b.store.Image().TopicsByID[topic.ID] != nil })
	p := b.leader("t", 0)
	fill(t, p, 10)
	epoch, process := p.LeaderEpoch(), int64(5)
	if err := p.Fetched(2, epoch, process, 4, 0); err != nil || p.HighWatermark() != 4 {
		t.Fatalf("a fetch of this epoch: %v, high watermark %d, want 4", err, p.HighWatermark())
	}
	lead := func(leader int32) {
		t.Helper()
		next, err := b.store.GetPartition(t.Context(), topic.Partitions[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		next.Leader = leader
		next.LeaderEpoch++
		next.PartitionEpoch++
		if _, err := b.store.UpdatePartition(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		until(t, "it knows who leads", func() bool { return p.LeaderEpoch() == next.LeaderEpoch && p.Leading() == (leader == 1) })
	}
	lead(2)
	lead(1)
	if err := p.Fetched(2, epoch, process, 10, 0); !errors.Is(err, ErrFencedEpoch) {
		t.Errorf("it is noted: %v", err)
	}
	if s, err := p.ReadReplica(2, epoch, 4, 1<<20); !errors.Is(err, ErrFencedEpoch) {
		t.Errorf("it is answered with %d bytes and high watermark %d: %v", s.Size, s.HighWatermark, err)
		s.Release()
	}
	if hw, f := p.HighWatermark(), p.InSync(); hw != 4 || len(f) != 1 || f[0].LEO != -1 {
		t.Errorf("high watermark %d, followers %v; want 4, and that nothing is known of broker 2", hw, f)
	}
	if err := p.Fetched(2, p.LeaderEpoch(), process, 10, 0); err != nil || p.HighWatermark() != 10 {
		t.Errorf("a fetch of the new epoch: %v, high watermark %d, want 10", err, p.HighWatermark())
	}
}
