package broker

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
)

// holdISR keeps the next transaction by which a broker changes an ISR on its way to the metadata store, and returns once it is under
// way. land lets it arrive, whatever has become of that broker.
func (c *trio) holdISR(id int32, cause func()) (land func()) {
	c.t.Helper()
	var held atomic.Bool
	arrive := make(chan struct{})
	c.brokers[id].kv.Hook(func(call memkv.Call) memkv.Outcome {
		if call.Kind == "txn" && len(call.Keys) == 1 && strings.Contains(call.Keys[0], "/partition/") && held.CompareAndSwap(false, true) {
			<-arrive
		}
		return memkv.OK
	})
	cause()
	c.until("an ISR is being changed", held.Load)
	return func() { close(arrive) }
}

// isrStays sees that the ISR is that for a while, in any order.
func (c *trio) isrStays(tp *meta.Topic, want ...int32) {
	c.t.Helper()
	for range 300 {
		if got := slices.Sorted(slices.Values(c.record(tp).ISR)); !slices.Equal(got, want) {
			c.t.Fatalf("ISR %v, want %v", got, want)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestJoinerThatRestartsMeanwhileIsNotInSyncBeforeItShowsItsLog(t *testing.T) { // PROTOCOLS 7.2, KIP-903
	inBubble(t, 3, func(c *trio) { c.minISR = 2 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a")
		c.net.cut(1, 3)
		c.produce(1, tp, 1, "b") // only so that the follower lags
		c.isr(tp, 1, 2)
		c.mustProduce(1, tp, "c", "d")
		land := c.holdISR(1, c.net.heal)
		if leo := c.hosted(3, tp).LEO(); leo != 4 {
			t.Fatalf("broker 3 joins with %d of 4 records", leo)
		}
		c.net.cut(1, 3)
		c.brokers[3].stop(false)
		c.brokers[3].fs = vfs.NewMem() // the new process has lost its log
		c.start(3)
		c.until("its log is open", func() bool { return c.hosted(3, tp) != nil })
		land()
		c.isrStays(tp, 1, 2)
		c.mustProduce(1, tp, "e") // the high watermark does not wait for who is not going to join
		c.net.heal()
		c.isr(tp, 1, 2, 3)
		if got := c.same(tp, 1, 2, 3); strings.Join(got, "") != "abcde" {
			t.Fatalf("records %q", got)
		}
	})
}

func TestISRChangeOfALeaderThatHasRestartedIsVoid(t *testing.T) { // PROTOCOLS 7.3
	inBubble(t, 3, func(c *trio) { c.minISR = 1 }, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.mustProduce(1, tp, "a", "b")
		former := c.brokers[1]
		land := c.holdISR(1, func() {
			c.net.cut(1, 2)
			c.net.cut(1, 3)
			c.produce(1, tp, 1, "x") // so that the followers lag
		})
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			former.stop(false) // it waits for what is under way
		}()
		time.Sleep(5 * time.Second)
		c.brokers[1] = &member{id: 1, fs: vfs.NewMem()} // the new process has lost its log
		c.start(1)
		c.until("its log is open", func() bool { return c.hosted(1, tp) != nil })
		land()
		<-gone
		c.isrStays(tp, 1, 2, 3)
		if p := c.produce(1, tp, 1, "y"); p.ErrorCode != kerr.NotLeaderForPartition.Code && p.ErrorCode != kerr.LeaderNotAvailable.Code {
			t.Fatalf("code %d from a leader that has restarted", p.ErrorCode)
		}
		c.net.heal()
		c.elect(tp, 2, 2, 3)
		c.isr(tp, 1, 2, 3)
		c.mustProduce(2, tp, "c")
		if got := c.same(tp, 1, 2, 3); strings.Join(got, "") != "abc" {
			t.Fatalf("records %q", got)
		}
	})
}
