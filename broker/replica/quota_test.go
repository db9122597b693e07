package replica

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
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
