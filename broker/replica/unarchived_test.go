package replica

import (
	"math"
	"testing"
	"time"

	"github.com/varvelog/varve/meta"
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
