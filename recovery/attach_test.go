package recovery

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

func (c *cluster) attacher() *Attacher {
	return &Attacher{Store: c.store, Bucket: c.bucket, Info: c.info, Incarnation: c.inc, Open: c.net.open}
}

// order makes the order of a plan's one topic.
func (c *cluster) order(req Request) (Order, []byte) {
	c.t.Helper()
	p, err := c.plan(req)
	if err != nil {
		c.t.Fatal(err)
	}
	o := p.Order(&p.Topics[0])
	b, err := o.Encode()
	if err != nil {
		c.t.Fatal(err)
	}
	return o, b
}

// ordered makes a topic with records, and the order of its restore.
func (c *cluster) ordered() (*meta.Topic, []byte) {
	c.t.Helper()
	topic := c.topic("orders", 1)
	c.produce(topic, 0, 10)
	c.pass(time.Minute)
	_, order := c.order(latest())
	return topic, order
}

// attach carries an order out and creates the topic, as the broker does.
func (c *cluster) attach(name string, order []byte) (*meta.Topic, error) {
	c.t.Helper()
	made, err := c.attacher().Attach(c.t.Context(), name, order, false)
	if err != nil {
		return nil, err
	}
	spec := meta.TopicSpec{Name: name, ID: made.ID, Configs: made.Configs, Pointers: made.Pointers, FirstEpochs: made.FirstEpochs}
	for range made.Pointers {
		spec.Assignment = append(spec.Assignment, []int32{1})
	}
	topic, err := c.store.CreateTopic(c.t.Context(), spec)
	if err != nil {
		return nil, err
	}
	c.record(topic.ID)
	for _, p := range topic.Partitions {
		c.lead(topic, p.ID)
	}
	return topic, nil
}

// mustAttach is attach without errors.
func (c *cluster) mustAttach(name string, order []byte) *meta.Topic {
	c.t.Helper()
	t, err := c.attach(name, order)
	if err != nil {
		c.t.Fatal(err)
	}
	return t
}

func (c *cluster) pins(t *meta.Topic, n int) []meta.Pin {
	c.t.Helper()
	p, err := c.store.GetPartition(c.t.Context(), manifest.PartitionID{Topic: t.ID, Partition: int32(n)})
	if err != nil {
		c.t.Fatal(err)
	}
	return p.Pointer.Pins
}

// wantCopy checks that a topic has the records [from, to) of another one.
func (c *cluster) wantCopy(name string, origin *cluster, of *meta.Topic, from, to int64) {
	c.t.Helper()
	got := c.values(name, 0)
	for off := from; off < to; off++ {
		if want := origin.value(of, 0, off); got[off] != want {
			c.t.Fatalf("%s at %d: %q, want %q", name, off, got[off], want)
		}
	}
	if int64(len(got)) != to-from {
		c.t.Fatalf("%s has %d records, want %d", name, len(got), to-from)
	}
}

func TestATopicComesBackBesideItself(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1, "max.message.bytes", "99999")
		a.produce(topic, 0, 10)
		a.pass(time.Minute)
		o, order := a.order(atOffsets(t, "7"))
		again := a.mustAttach("again", order)
		a.wantCopy("again", a, topic, 0, 7)
		if again.ID == topic.ID || again.Configs["max.message.bytes"] != "99999" || !o.Made("again", again.ID) || o.Made("other", again.ID) {
			t.Fatalf("topic %+v", again)
		}
		if pins := a.pins(topic, 0); len(pins) != 1 {
			t.Fatalf("pins %v", pins)
		}
		if got := keys(t, a.bucket, manifest.LeasePrefix); len(got) > 0 {
			t.Fatalf("leases %v: the archive is its own", got)
		}
		// Both go their own ways.
		a.produce(again, 0, 3)
		a.produce(topic, 0, 2)
		a.pass(time.Minute)
		a.wantRange(a, "orders", 0, 0, 12)
		if got := a.values("again", 0); len(got) != 10 || got[6] != a.value(topic, 0, 6) || got[7] != a.value(again, 0, 7) {
			t.Fatalf("%d records", len(got))
		}
		report, err := Verify(t.Context(), a.source(), VerifyOptions{Full: true})
		if err != nil || len(report.Findings) > 0 {
			t.Fatalf("%+v, %v", report, err)
		}
	})
}

func TestValidationWritesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a, b := newCluster(t, n, "mem://a"), newCluster(t, n, "mem://b")
		topic, order := a.ordered()
		before := []int{len(keys(t, a.bucket, "")), len(keys(t, b.bucket, ""))}
		for _, c := range []*cluster{a, b} {
			if _, err := c.attacher().Attach(t.Context(), "again", order, true); err != nil {
				t.Fatal(err)
			}
		}
		after := []int{len(keys(t, a.bucket, "")), len(keys(t, b.bucket, ""))}
		if before[0] != after[0] || before[1] != after[1] || len(a.pins(topic, 0)) > 0 || len(b.store.Image().Attached) > 0 {
			t.Fatalf("objects %v became %v", before, after)
		}
	})
}

func TestReplicasAreAsManyAsTheTopicHasWhereItComesFrom(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a, b := newCluster(t, n, "mem://a"), newCluster(t, n, "mem://b")
		topic, order := a.ordered()
		for c, want := range map[*cluster]int16{a: int16(len(topic.Partitions[0].Replicas)), b: 0} {
			made, err := c.attacher().Attach(t.Context(), "again", order, true)
			if err != nil || made.Replication != want {
				t.Fatalf("%d replicas, want %d: %v", made.Replication, want, err)
			}
		}
	})
}

func TestATopicComesFromAnotherClusterUnderALease(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a, b := newCluster(t, n, "mem://a"), newCluster(t, n, "mem://b")
		topic := a.topic("orders", 1)
		a.append(topic, 0, a.batch(topic, 0, 10, record.BatchOptions{ProducerID: 4711, BaseSequence: 0}))
		a.pass(time.Minute)
		_, order := a.order(latest())
		b.mustAttach("orders", order)
		b.wantCopy("orders", a, topic, 0, 10)
		leases := keys(t, a.bucket, manifest.LeasePrefix)
		at := b.store.Image().Attached[a.info.ID]
		if len(leases) != 1 || at == nil || leases[0] != manifest.LeaseKey(at.LeaseID) || at.URL != a.url {
			t.Fatalf("leases %v, attached %+v", leases, at)
		}
		if id, err := b.store.AllocateProducerIDs(t.Context(), 1); err != nil || id <= 4711 {
			t.Fatalf("producer id %d, %v", id, err)
		}
		// A second topic goes on with the lease that is there, while it lives.
		b.mustAttach("more", order)
		if got := keys(t, a.bucket, manifest.LeasePrefix); len(got) != 1 {
			t.Fatalf("leases %v", got)
		}
		b.pass(25 * time.Hour) // nobody renews it here
		if _, err := b.attach("late", order); !errors.Is(err, tier.ErrLeaseLapsed) {
			t.Fatalf("under a lapsed lease: %v", err)
		}
	})
}

func TestWhatWasRestoredElsewhereComesHome(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		a.produce(topic, 0, 5)
		a.produce(topic, 0, 5)
		a.pass(time.Minute)
		b := a.restore("mem://b", atOffsets(t, "8"))
		tb := b.store.Image().Topics["orders"]
		b.produce(tb, 0, 4)
		b.pass(time.Minute)
		_, order := b.order(latest())
		a.mustAttach("home", order)
		got := a.values("home", 0)
		if len(got) != 12 || got[6] != a.value(topic, 0, 6) || got[8] != b.value(tb, 0, 8) {
			t.Fatalf("%d records", len(got))
		}
		if len(a.pins(topic, 0)) != 1 {
			t.Fatalf("pins %v, plan %s", a.pins(topic, 0), order)
		}
		if len(a.store.Image().Attached) != 1 {
			t.Fatalf("attached %v", a.store.Image().Attached)
		}
	})
}

func TestAnOrderIsRepeatedOnlyAfterItsTopicIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		a.produce(topic, 0, 10)
		a.pass(time.Minute)
		o, order := a.order(latest())
		first := a.mustAttach("again", order)
		if _, err := a.attach("again", order); !errors.Is(err, meta.ErrTopicExists) {
			t.Fatalf("twice: %v", err)
		}
		a.drop(first)
		second := a.mustAttach("again", order)
		if second.ID == first.ID || !o.Made("again", second.ID) || !o.Made("again", first.ID) {
			t.Fatalf("ids %s and %s", first.ID, second.ID)
		}
		a.wantCopy("again", a, topic, 0, 10)
	})
}

func TestAnOrderThatTheArchiveHasOutgrownIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		a.produce(topic, 0, 10)
		a.roll(topic, 0)
		a.produce(topic, 0, 10)
		a.roll(topic, 0)
		a.pass(time.Minute)
		o, order := a.order(latest())
		ahead := o
		ahead.Partitions = []OrderPartition{{Start: 0, End: 30}}
		body, err := ahead.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.attach("again", body); err == nil || !strings.Contains(err.Error(), "archived up to offset 20") {
			t.Fatalf("ahead of the archive: %v", err)
		}
		// The first object is released for deletion.
		p := a.part(topic, 0)
		if err := p.log.SetLogStart(10); err != nil {
			t.Fatal(err)
		}
		p.tier.SetConfig(tier.TopicConfig{Name: "orders", RestoreWindowMs: 1000})
		p.tier.DeleteBefore(10)
		a.pass(10 * time.Minute)
		if _, err := a.attach("again", order); err == nil || !strings.Contains(err.Error(), "plan again") {
			t.Fatalf("doomed: %v", err)
		}
		if pins := a.pins(topic, 0); len(pins) > 0 {
			t.Fatalf("pins %v after a refusal", pins)
		}
	})
}

func TestPinsGoWithTheirTopic(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic, order := a.ordered()
		if _, err := a.attacher().Attach(t.Context(), "never", order, false); err != nil {
			t.Fatal(err)
		}
		again := a.mustAttach("again", order)
		sweeper := PinSweeper{Store: a.store}
		sweep := func(want int) {
			t.Helper()
			synctest.Wait()
			if _, err := sweeper.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if pins := a.pins(topic, 0); len(pins) != want {
				t.Fatalf("pins %v, want %d", pins, want)
			}
		}
		sweep(2) // the first may be a restore under way
		a.pass(2 * time.Hour)
		sweep(1)
		a.drop(again)
		sweep(1) // it can be undeleted
		if err := a.store.ForgetTopic(t.Context(), again.ID); err != nil {
			t.Fatal(err)
		}
		sweep(1)
		a.pass(2 * time.Hour)
		sweep(0)
	})
}

// The broker that restores has a clock that is two hours behind that of the one that sweeps.
func TestAPinOfARestoreUnderWayStaysWhateverItsClockSays(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic, _ := a.ordered()
		p, err := a.store.GetPartition(t.Context(), topic.Partitions[0].ID)
		if err == nil {
			p.Pointer.Pins = append(p.Pointer.Pins, meta.Pin{ID: pinID(manifest.TopicID{1}, time.Now().Add(-2*time.Hour)), Reason: "a restore under way"})
			_, err = a.store.UpdatePartition(t.Context(), p)
		}
		if err != nil {
			t.Fatal(err)
		}
		sweeper := PinSweeper{Store: a.store}
		for range 2 {
			synctest.Wait()
			removed, err := sweeper.Sweep(t.Context())
			if pins := a.pins(topic, 0); err != nil || removed > 0 || len(pins) != 1 {
				t.Fatalf("%d removed, pins %v, %v", removed, pins, err)
			}
			a.pass(time.Minute)
		}
		a.pass(2 * time.Hour)
		if removed, err := sweeper.Sweep(t.Context()); err != nil || removed != 1 {
			t.Fatalf("%d removed, %v", removed, err)
		}
	})
}

func TestAPinnedPartitionKeepsWhatTheCopyNeeds(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		a.produce(topic, 0, 10)
		a.roll(topic, 0)
		a.pass(time.Minute)
		_, order := a.order(latest())
		a.mustAttach("again", order)
		p := a.part(topic, 0)
		if err := p.log.SetLogStart(10); err != nil {
			t.Fatal(err)
		}
		p.tier.SetConfig(tier.TopicConfig{Name: "orders", RestoreWindowMs: 1000})
		p.tier.DeleteBefore(10)
		a.pass(3 * time.Hour)
		a.wantCopy("again", a, topic, 0, 10)
	})
}
