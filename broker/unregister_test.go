package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/vfs"
)

func (c *trio) unregister(to, id int32) int16 {
	c.t.Helper()
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = id
	return c.dial(to).do(req).(*kmsg.UnregisterBrokerResponse).ErrorCode
}

// A broker was unregistered, and another one comes by its id, with an empty disk. It was taken for one that had never had anything, so that it
// stayed in sync, and led when the last broker that had the records was away: that one cut them off its own log.
func TestWhoComesByTheIDOfAnUnregisteredBrokerIsNotInSync(t *testing.T) {
	for _, minISR := range []int32{1, 2} {
		t.Run(fmt.Sprintf("min.insync.replicas=%d", minISR), func(t *testing.T) {
			inBubble(t, 2, func(c *trio) { c.control, c.minISR = true, minISR }, func(c *trio) {
				tp := c.topic("t", 1, 2)
				c.mustProduce(1, tp, "a", "b")
				c.brokers[2].stop(false)
				c.until("broker 2 is gone", func() bool { return c.brokers[1].store.Image().Brokers[2] == nil })
				c.until("it is forgotten", func() bool { return c.unregister(1, 2) == 0 })
				c.isr(tp, 1)
				if minISR > 1 {
					if p := c.produce(1, tp, -1, "x"); p.ErrorCode != kerr.NotEnoughReplicas.Code {
						t.Fatalf("code %d with one of two", p.ErrorCode)
					}
				}
				c.brokers[2].fs = vfs.NewMem()
				c.brokers[1].stop(false)
				c.start(2)
				time.Sleep(time.Minute)
				if p := c.record(tp); p.Leader == 2 || c.hosted(2, tp).Leading() {
					t.Fatalf("who has nothing leads: %+v", p)
				}
				c.start(1)
				c.isr(tp, 1, 2)
				c.mustProduce(c.record(tp).Leader, tp, "c")
				if got := c.same(tp, 1, 2); fmt.Sprint(got) != "[a b c]" {
					t.Fatalf("the logs are %q", got)
				}
			})
		})
	}
}
