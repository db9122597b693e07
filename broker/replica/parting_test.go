package replica

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/tier"
)

// awayCluster has an object store that can be taken away.
func awayCluster(t *testing.T) (*cluster, func(away bool)) {
	c := tieredCluster(t)
	f := fault.New(c.bucket, fault.Options{})
	c.bucket = f
	return c, func(away bool) {
		if away {
			f.SetRules(fault.Rule{Op: fault.Put, Prefix: "t/", Effect: fault.Fail})
		} else {
			f.SetRules()
		}
	}
}

// withTail appends records to a new topic of which the store, which is away then, does not get the last ones.
func (b *broker) withTail(away func(bool)) *meta.Topic {
	b.t.Helper()
	topic := b.topic("t", 1)
	p := b.leader("t", 0)
	fill(b.t, p, 100)
	until(b.t, "the records are archived", func() bool { return p.Archive() != nil && p.Archive().Through() == 100 && b.through(topic) == 100 })
	away(true)
	fill(b.t, p, 50)
	return topic
}

// deletedWithTail is withTail, and the topic is deleted.
func (b *broker) deletedWithTail(away func(bool)) *meta.Topic {
	b.t.Helper()
	topic := b.withTail(away)
	if err := b.store.DeleteTopic(context.Background(), "t"); err != nil {
		b.t.Fatal(err)
	}
	until(b.t, "the deletion is noticed", func() bool { return len(b.m.allPartings()) == 1 })
	b.recorded(topic)
	return topic
}

// recorded says that the bucket knows of the deletion.
func (b *broker) recorded(topic *meta.Topic) {
	b.t.Helper()
	if err := b.store.SetTopicArchived(context.Background(), topic.ID, b.store.Image().Deleted[topic.ID].Version); err != nil {
		b.t.Fatal(err)
	}
	until(b.t, "the image has it", func() bool { t := b.store.Image().Deleted[topic.ID]; return t.Archived == t.Version })
}

func (b *broker) through(topic *meta.Topic) int64 {
	b.t.Helper()
	p, err := b.store.GetPartition(context.Background(), topic.Partitions[0].ID)
	if err != nil {
		b.t.Fatal(err)
	}
	return p.Pointer.Through
}

func (c *cluster) noDir() bool {
	_, err := os.Stat(c.dir + "/t-0")
	return os.IsNotExist(err)
}

// mark is what the broker would say now of what was appended up to the present.
func (b *broker) mark() (int64, bool) { return b.m.archivedBy(time.Now().UnixMilli(), false) }

func TestTheTailOfADeletedTopicWaitsForTheStoreAndHoldsTheMarkBack(t *testing.T) {
	c, away := awayCluster(t)
	b := c.start()
	begin := time.Now().UnixMilli()
	topic := b.deletedWithTail(away)
	p := b.m.allPartings()[0]
	since, pending, err := p.unarchived()
	if err != nil || !pending || since < begin {
		t.Fatalf("unarchived since %d, %v, %v", since, pending, err)
	}
	if ms, ok := b.mark(); ok && ms >= since {
		t.Fatalf("mark %d, records of %d are not archived", ms, since)
	}
	away(false)
	until(t, "the tail is archived and the files are gone", func() bool { return b.through(topic) == 150 && c.noDir() && len(b.m.allPartings()) == 0 })
	until(t, "the mark goes on", func() bool { ms, ok := b.mark(); return ok && ms >= since })
}

func TestTheTailOfADeletedTopicIsArchivedByTheNextProcess(t *testing.T) {
	c, away := awayCluster(t)
	b := c.start()
	topic := b.deletedWithTail(away)
	b.stop(false)
	b = c.start()
	since, pending, err := b.m.allPartings()[0].unarchived() // by now it has bounds
	if err != nil || !pending {
		t.Fatalf("pending %v, %v", pending, err)
	}
	if ms, ok := b.mark(); ok && ms >= since {
		t.Fatalf("mark %d, records of %d are not archived", ms, since)
	}
	away(false)
	until(t, "the tail is archived and the files are gone", func() bool { return b.through(topic) == 150 && c.noDir() })
	if err := b.store.UndeleteTopic(t.Context(), topic.ID); err != nil {
		t.Fatal(err)
	}
	if p := b.leader("t", 0); p.LEO() != 150 || readAll(t, p, 0) != 150 {
		t.Fatalf("LEO %d, want 150", p.LEO())
	}
	b.stop(true)
}

// A former process may have written manifests that it did not commit, with numbers that the next one does not come to.
func TestWhatADeletedTopicHasLeftIsArchivedInAnEpochOfItsOwn(t *testing.T) {
	c, away := awayCluster(t)
	b := c.start()
	topic := b.deletedWithTail(away)
	b.stop(false)
	away(false)
	ctx, id := t.Context(), topic.Partitions[0].ID
	r, err := tier.OpenBucket(ctx, c.bucket, tier.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Tip(ctx, id)
	if err != nil || m.Through != 100 {
		t.Fatalf("tip %+v, %v", m, err)
	}
	left := *m
	left.N += 100
	if _, err := c.bucket.Put(ctx, left.Key(), objstore.BytesBody(left.Encode()), objstore.Cond{}); err != nil {
		t.Fatal(err)
	}
	b = c.start()
	until(t, "the tail is archived", func() bool { return b.through(topic) == 150 })
	if m, err = r.Tip(ctx, id); err != nil || m.Through != 150 || m.LeaderEpoch <= left.LeaderEpoch {
		t.Fatalf("who reads the bucket alone finds epoch %d, number %d, through %d, %v", m.LeaderEpoch, m.N, m.Through, err)
	}
	b.stop(true)
}

// The broker was killed before it noticed, or the topic was deleted while it was away.
func TestTheTailOfATopicThatWasDeletedMeanwhileIsArchived(t *testing.T) {
	c, away := awayCluster(t)
	b := c.start()
	topic := b.withTail(away)
	b.stop(false)
	store, err := meta.Open(t.Context(), c.kv, "", meta.Options{})
	if err == nil {
		err = store.DeleteTopic(t.Context(), "t")
	}
	if err != nil {
		t.Fatal(err)
	}
	away(false)
	b = c.start()
	until(t, "the tail is archived and the files are gone", func() bool { return b.through(topic) == 150 && c.noDir() })
	b.stop(true)
}

// A broker is killed, so that nobody leads what it alone was in sync for, and the topic is deleted before it is back.
func TestTheTailOfATopicThatNobodyLedWhenItWasDeletedIsArchived(t *testing.T) {
	c, away := awayCluster(t)
	b := c.start()
	topic := b.withTail(away)
	b.stop(false)
	store, err := meta.Open(t.Context(), c.kv, "", meta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := store.GetPartition(t.Context(), topic.Partitions[0].ID)
	if err == nil {
		p.Leader, p.LeaderEpoch, p.PartitionEpoch = -1, p.LeaderEpoch+1, p.PartitionEpoch+1
		_, err = store.UpdatePartition(t.Context(), p)
	}
	if err == nil {
		err = store.DeleteTopic(t.Context(), "t")
	}
	if err != nil {
		t.Fatal(err)
	}
	b = c.start()
	if ms, ok := b.mark(); ok && len(b.m.allPartings()) == 0 {
		t.Fatalf("mark %d, and the log is not kept", ms)
	}
	away(false)
	until(t, "the tail is archived and the files are gone", func() bool { return b.through(topic) == 150 && c.noDir() })
	b.stop(true)
}

// The same while this broker goes on, such as one that is about to stop.
func TestTheTailOfATopicThatNobodyLeadsIsArchivedWhenItIsDeleted(t *testing.T) {
	c, away := awayCluster(t)
	b := c.start()
	topic := b.withTail(away)
	p := b.leader("t", 0)
	rec, err := b.store.GetPartition(t.Context(), topic.Partitions[0].ID)
	if err == nil {
		rec.Leader, rec.LeaderEpoch, rec.PartitionEpoch = -1, rec.LeaderEpoch+1, rec.PartitionEpoch+1
		_, err = b.store.UpdatePartition(t.Context(), rec)
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it is not led here any more", func() bool { return !p.Leading() })
	if err := b.store.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	until(t, "the deletion is noticed", func() bool { return c.noDir() || len(b.m.allPartings()) == 1 })
	away(false)
	until(t, "the files are gone", c.noDir)
	if through := b.through(topic); through != 150 {
		t.Fatalf("archived through %d, want 150", through)
	}
	b.stop(true)
}

func TestTheLastMarkDoesNotPassAPartitionWhoseArchiveWasNeverTakenOver(t *testing.T) {
	c := tieredCluster(t)
	b := c.start()
	topic := b.topic("t", 1)
	p := b.leader("t", 0)
	if err := b.store.SetTopicArchived(t.Context(), topic.ID, 1); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixMilli()
	if _, ok := b.m.archivedBy(now, true); !ok {
		t.Fatal("no last mark of a broker that has nothing")
	}
	c.kv.Disconnect()
	defer c.kv.Connect()
	fill(t, p, 10)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.m.archiveTail(ctx, p); err == nil {
		t.Fatal("the tail was archived without the metadata")
	}
	if ms, ok := b.m.archivedBy(now, true); ok {
		t.Fatalf("last mark %d", ms)
	}
}

func TestATopicThatIsUndeletedGoesOnWithTheTailThatWasNotArchived(t *testing.T) {
	c, away := awayCluster(t)
	b := c.start()
	topic := b.deletedWithTail(away)
	if err := b.store.UndeleteTopic(t.Context(), topic.ID); err != nil {
		t.Fatal(err)
	}
	p := b.leader("t", 0)
	if p.LEO() != 150 {
		t.Fatalf("LEO %d, want 150", p.LEO())
	}
	away(false)
	fill(t, p, 10)
	until(t, "all is archived", func() bool { return b.through(topic) == 160 })
	if n := readAll(t, p, 0); n != 160 {
		t.Fatalf("%d records, want 160", n)
	}
}

func TestANewTopicOfTheNameTakesTheDirectoryOfADeletedOne(t *testing.T) {
	c, away := awayCluster(t)
	b := c.start()
	b.deletedWithTail(away)
	anew := b.topic("t", 1)
	until(t, "the new one has waited long enough for the old one", func() bool { _, err := b.m.Leader(TopicPartition{ID: anew.ID}); return err == nil })
	p := b.leader("t", 0)
	fill(t, p, 10)
	if p.LEO() != 10 || len(b.m.allPartings()) != 0 {
		t.Fatalf("LEO %d, %d still wait", p.LEO(), len(b.m.allPartings()))
	}
	away(false)
}

func TestATopicThatIsDeletedAndMadeAnewAtOnceLosesNothing(t *testing.T) {
	c := tieredCluster(t)
	f := fault.New(c.bucket, fault.Options{})
	c.bucket = f
	b := c.start()
	old := b.topic("t", 1)
	fill(t, b.leader("t", 0), 50)
	f.SetRules(fault.Rule{Op: fault.Put, Prefix: "t/", Effect: fault.Slow, Latency: 100 * time.Millisecond})
	if err := b.store.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	anew := b.topic("t", 1)
	until(t, "the new one is led", func() bool { _, err := b.m.Leader(TopicPartition{ID: anew.ID}); return err == nil })
	if n := b.through(old); n != 50 {
		t.Fatalf("the deleted topic is archived through %d, want 50", n)
	}
}

// The broker was killed, and the topic deleted and made anew before it was back.
func TestTheTailOfATopicThatWasDeletedAndMadeAnewMeanwhileIsArchived(t *testing.T) {
	c, away := awayCluster(t)
	b := c.start()
	old := b.withTail(away)
	b.stop(false)
	store, err := meta.Open(t.Context(), c.kv, "", meta.Options{})
	if err == nil {
		err = store.DeleteTopic(t.Context(), "t")
	}
	if err == nil {
		_, err = store.CreateTopic(t.Context(), meta.TopicSpec{Name: "t", Assignment: [][]int32{{1}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	away(false)
	b = c.start()
	p := b.leader("t", 0)
	fill(t, p, 10)
	if n := b.through(old); n != 150 || p.LEO() != 10 {
		t.Fatalf("the deleted topic is archived through %d, want 150; the new one has %d, want 10", n, p.LEO())
	}
	b.stop(true)
}

func TestTheLogOfATopicPastItsWindowIsNotKept(t *testing.T) {
	c, away := awayCluster(t)
	b := c.start()
	topic := b.deletedWithTail(away)
	if err := b.store.BeginCollect(t.Context(), topic.ID); err != nil {
		t.Fatal(err)
	}
	until(t, "the files are gone", c.noDir)
}
