package replica

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/meta"
)

func TestQuotaKeepsToItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q quota
		q.set(1000)
		began, moved := time.Now(), 0
		for moved < 100_000 {
			for q.wait() > 0 {
				time.Sleep(q.wait())
			}
			q.charge(2500) // more than a second's worth at once
			moved += 2500
		}
		if d := time.Since(began); d < 95*time.Second || d > 101*time.Second {
			t.Fatalf("100,000 bytes took %s at 1000 bytes a second", d)
		}
		q.set(math.MaxInt64)
		time.Sleep(time.Millisecond)
		if d := q.wait(); d != 0 {
			t.Fatalf("without a limit it waits %s", d)
		}
		q.set(0)
		q.charge(math.MaxInt32)
		if d := q.wait(); d <= 0 || d > time.Second {
			t.Fatalf("a wait of %s: it must see a new rate soon", d)
		}
		time.Sleep(time.Hour)
		q.set(1000)
		q.charge(0)
		time.Sleep(time.Hour)
		if q.left > 1000 {
			t.Fatalf("%f bytes were saved up", q.left)
		}
	})
}

func TestThrottledReplicasAreNamed(t *testing.T) {
	for _, x := range []struct {
		list []string
		want bool
	}{
		{nil, false}, {[]string{"*"}, true}, {[]string{"3:1"}, true}, {[]string{"3:2", "1:1"}, false}, {[]string{"0:1", "3:1"}, true},
	} {
		if got := throttled(x.list, 3, 1); got != x.want {
			t.Errorf("%v names partition 3 of broker 1: %v", x.list, got)
		}
	}
}

func TestThrottleFollowsTheConfiguration(t *testing.T) { // leader.replication.throttled.rate is altered while brokers run
	c := newCluster(t)
	b := c.start()
	b.topic("t", 2)
	rate := func(q *quota) float64 {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.rate
	}
	if got := rate(&b.m.throttles.leader); got < math.MaxInt64 {
		t.Fatalf("%f bytes a second by default", got)
	}
	for _, p := range []int32{0, 1} {
		if p := b.leader("t", p); p.throttledLeader.Load() || p.throttledFollower.Load() {
			t.Fatal("throttled before")
		}
	}
	c.mu.Lock()
	c.throttle, c.throttled = [2]int64{1000, 2000}, []string{"1:1"}
	c.mu.Unlock()
	err := b.store.AlterConfigs(t.Context(), meta.ClusterResource, func(map[string]string) (map[string]string, error) {
		return map[string]string{"leader.replication.throttled.rate": "1000"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the rates are in force", func() bool { return rate(&b.m.throttles.leader) == 1000 && rate(&b.m.throttles.follower) == 2000 })
	until(t, "the replicas are", func() bool {
		return b.leader("t", 1).throttledLeader.Load() && b.leader("t", 1).throttledFollower.Load()
	})
	if b.leader("t", 0).throttledLeader.Load() {
		t.Error("partition 0 is throttled, 1 is named")
	}
}
