package replica

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
)

func TestNeitherDoesTheLastMarkOfABroker(t *testing.T) {
	c := newCluster(t)
	b := c.start()
	before := time.Now().UnixMilli()
	b.topic("t", 1)
	b.leader("t", 0)
	after := time.Now().Add(time.Minute).UnixMilli()
	for _, last := range []bool{false, true} {
		if through, ok := b.m.archivedBy(after, last); !ok || through >= after || through < before-1 {
			t.Errorf("last %t: through %d, %t; the topic of [%d, %d) is not in the bucket", last, through, ok, before, after)
		}
	}
}

func TestAMarkDoesNotPassATopicWhoseRecordIsNotInTheBucket(t *testing.T) {
	for _, c := range []struct {
		rule string
		t    meta.Topic
		want int64
	}{
		{"all is there", meta.Topic{Version: 3, Archived: 3, ChangedMs: 50}, math.MaxInt64},
		{"a change is missing", meta.Topic{Version: 3, Archived: 2, ChangedMs: 50, BehindMs: 50}, 49},
		{"the oldest that is missing counts", meta.Topic{Version: 5, Archived: 2, ChangedMs: 50, BehindMs: 20}, 19},
		{"the record is of before that was noted", meta.Topic{Version: 3, Archived: 2, ChangedMs: 50}, 49},
	} {
		if got := recorded(&c.t); got != c.want {
			t.Errorf("%s: %d, want %d", c.rule, got, c.want)
		}
	}
}

// While nobody leads a partition those that are in sync answer for it. The marks of all brokers passed what was acknowledged on one whose
// log was offline: the others had lost their logs' ends with their machines, or stopped.
func TestAMarkDoesNotPassWhatIsInSyncHereAndLedByNobody(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		rule     string
		leader   int32
		isr      []int32
		offline  bool
		last     bool
		passes   bool
		appended bool
	}{
		{rule: "log offline, led by nobody", leader: -1, isr: []int32{1}, offline: true},
		{rule: "log offline, led by nobody, others in sync", leader: -1, isr: []int32{2}, offline: true, passes: true},
		{rule: "log offline, led by another", leader: 2, isr: []int32{1, 2}, offline: true, passes: true},
		{rule: "last mark, led by nobody", leader: -1, isr: []int32{1}, last: true, appended: true},
		{rule: "last mark, led by nobody, all is archived", leader: -1, isr: []int32{1}, last: true, passes: true},
		{rule: "last mark, led by nobody, others in sync", leader: -1, isr: []int32{2}, last: true, appended: true, passes: true},
		{rule: "last mark, led by another", leader: 2, isr: []int32{1, 2}, last: true, appended: true, passes: true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			cl := newCluster(t)
			b := cl.start()
			made, err := b.store.CreateTopic(ctx, meta.TopicSpec{Name: "t", Assignment: [][]int32{{1, 2}}})
			if err != nil {
				t.Fatal(err)
			}
			id := made.Partitions[0].ID
			if err := b.store.SetTopicArchived(ctx, made.ID, made.Version); err != nil {
				t.Fatal(err)
			}
			until(t, "the image has the topic", func() bool { return b.store.Image().Partition(id) != nil })
			p := b.leader("t", 0)
			if c.appended {
				if _, err := p.Append([]record.Batch{one(t, 0, 1)}, localseg.OriginClient, false); err != nil {
					t.Fatal(err)
				}
			}
			if c.offline {
				p.fail(errors.New("disk"))
			}
			if err := b.store.Elect(ctx, []meta.Election{{ID: id, Leader: c.leader, ISR: c.isr}}); err != nil {
				t.Fatal(err)
			}
			until(t, "the image shows the election, and the broker has stopped to lead", func() bool {
				mp := b.store.Image().Partition(id)
				return mp.Leader == c.leader && !p.Leading()
			})
			p.tiered.Store(true)
			upTo := time.Now().Add(time.Minute).UnixMilli()
			through, ok := b.m.archivedBy(upTo, c.last)
			if passes := ok && through == upTo; passes != c.passes {
				t.Errorf("through %d of %d, %t", through, upTo, ok)
			}
		})
	}
}
