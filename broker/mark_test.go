package broker

import (
	"testing"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/mem"
)

// mark is up to when broker id says that all is archived, ms; 0: it says nothing.
func (c *trio) mark(id int32) int64 {
	c.t.Helper()
	b, _, err := objstore.ReadAll(c.t.Context(), c.bucket, manifest.MarkKey(c.brokers[id].store.Image().Cluster, id), 1<<20)
	if err != nil {
		return 0
	}
	m, err := manifest.DecodeMark(b)
	if err != nil {
		c.t.Fatal(err)
	}
	return m.TimeMs
}

// recorded enters that the bucket has the topic's record, as the archivist does.
func (c *trio) recorded(name string) {
	c.t.Helper()
	t := c.brokers[1].store.Image().Topics[name]
	if err := c.brokers[1].store.SetTopicArchived(c.t.Context(), t.ID, t.Version); err != nil {
		c.t.Fatal(err)
	}
}

// A restore to a time goes by the earliest mark. None may be later than a record that is not archived, whichever replicas have it and
// whoever comes to lead it.
func TestMarksStayBelowWhatAnyReplicaHasAndTheArchiveHasNot(t *testing.T) {
	var store *fault.Bucket
	inBubble(t, 3, func(c *trio) {
		store = fault.New(mem.New(mem.Options{}), fault.Options{})
		c.bucket, c.minISR = store, 2
	}, func(c *trio) {
		tp := c.topic("t", 1, 2, 3)
		c.recorded("t")
		c.mustProduce(1, tp, "a")
		c.until("archived", func() bool { return c.record(tp).Pointer.Through == 1 })
		idle := time.Now().UnixMilli()
		for id := int32(1); id <= 3; id++ {
			c.until("the mark follows the clock where nothing is pending", func() bool { return c.mark(id) > idle })
		}
		// Segments cannot be stored, marks can.
		store.SetRules(fault.Rule{Op: fault.Put, Prefix: "t/", Effect: fault.Fail})
		time.Sleep(10 * time.Second)
		at := time.Now().UnixMilli()
		c.mustProduce(1, tp, "b")
		stays := func(when string, ids ...int32) {
			t.Helper()
			for range 50 {
				time.Sleep(time.Second)
				for _, id := range ids {
					if m := c.mark(id); m >= at {
						t.Fatalf("%s: broker %d says that all up to %d is archived, what was appended at %d is not", when, id, m, at)
					}
				}
			}
		}
		stays("1 leads", 1, 2, 3)
		c.brokers[1].stop(false)
		c.elect(tp, 2)
		stays("2 leads, 1 is gone", 1, 2, 3)
		c.start(1)
		stays("1 is back", 1, 2, 3)
		store.SetRules()
		for id := int32(1); id <= 3; id++ {
			c.until("all is archived", func() bool { return c.mark(id) > at })
		}
	})
}
