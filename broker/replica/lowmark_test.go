package replica

import (
	"slices"
	"testing"
)

func TestDeletedRecordsWaitForAnOfflineFollowerUntilItIsOutOfTheISR(t *testing.T) {
	c := newCluster(t)
	b := c.start()
	topic := b.topic("t", 1)
	p := b.leader("t", 0)
	fill(t, p, 10)
	rec, err := b.store.GetPartition(t.Context(), topic.Partitions[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	rec.Offline = []int32{2}
	if _, err := b.store.UpdatePartition(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	until(t, "the image has it", func() bool { r := b.m.record(p); return r != nil && slices.Contains(r.Offline, 2) })
	if err := p.log.SetLogStart(5); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		inSync, proposed bool
		want             int64
	}{{true, false, 3}, {false, true, 3}, {false, false, 5}} {
		p.mu.Lock()
		p.core.followers = []follower{{id: 2, inSync: tc.inSync, proposed: tc.proposed, logStart: 3}}
		p.mu.Unlock()
		if low := p.low(); low != tc.want {
			t.Errorf("%+v: low watermark %d", tc, low)
		}
	}
}
