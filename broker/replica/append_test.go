package replica

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
)

// An append that has waited for another leader, who did not come, may find this broker elected anew. What rests on the former epoch must not
// be written behind what the next one has acknowledged.
func TestAppendOfAFormerEpochIsNotWritten(t *testing.T) {
	synctest.Test(t, appendOfAFormerEpoch)
}

func appendOfAFormerEpoch(t *testing.T) {
	c := newCluster(t)
	c.fs, c.dir = vfs.NewMem(), "data"
	b := c.start()
	id := b.topic("t", 1).Partitions[0].ID
	p := b.leader("t", 0)
	fill(t, p, 10)
	epoch := p.LeaderEpoch()
	add := func(epoch int32) error {
		_, err := p.AppendIn(epoch, []record.Batch{one(t, 0, 1)}, localseg.OriginInternal)
		return err
	}
	if err := add(epoch); err != nil || p.LEO() != 11 {
		t.Fatalf("in its own epoch: %v, log ends at %d", err, p.LEO())
	}
	p.holdAppends()
	waited := make(chan error)
	go func() { waited <- add(epoch) }()
	if err := b.store.Elect(t.Context(), []meta.Election{{ID: id, Leader: 1, ISR: []int32{1}}}); err != nil {
		t.Fatal(err)
	}
	until(t, "it is elected again", func() bool { return p.LeaderEpoch() > epoch })
	for _, err := range []error{<-waited, add(epoch), add(epoch + 2)} {
		if !errors.Is(err, ErrNotLeader) {
			t.Errorf("in another epoch: %v", err)
		}
	}
	if err := add(epoch + 1); err != nil || p.LEO() != 12 {
		t.Fatalf("in the new epoch: %v, log ends at %d, want 12", err, p.LEO())
	}
}
