package replica

import (
	"testing"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/tier"
)

// A topic may be deleted before an uncleanly elected leader has compared its log, and be brought back after somebody else has committed.
func TestOnlyItsLeaderEndsThatAPartitionRecovers(t *testing.T) {
	for name, deleted := range map[string]bool{"living": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			s := newCluster(t).start().store
			topic, err := s.CreateTopic(ctx, meta.TopicSpec{Name: "t", Assignment: [][]int32{{2, 3}}})
			if err != nil {
				t.Fatal(err)
			}
			id := topic.Partitions[0].ID
			rec, err := s.GetPartition(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			rec.Recovering = true
			if _, err := s.UpdatePartition(ctx, rec); err != nil {
				t.Fatal(err)
			}
			ptrs := Pointers{s}
			commit := ptrs.Commit
			if deleted {
				if err := s.DeleteTopic(ctx, "t"); err != nil {
					t.Fatal(err)
				}
				commit = ptrs.CommitDeleted
			}
			old, err := ptrs.Load(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := commit(ctx, id, old, tier.Pointer{Manifest: "m", N: 1, Through: 10}); err != nil {
				t.Fatal(err)
			}
			if rec, err = s.GetPartition(ctx, id); err != nil || rec.Pointer.Through != 10 || rec.Recovering != deleted {
				t.Fatalf("%+v, %v, want recovering %v", rec, err, deleted)
			}
		})
	}
}
