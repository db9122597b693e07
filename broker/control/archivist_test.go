package control

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/tier"
)

// marked is two brokers, of which the first controls, and a bucket with marks that its archivist keeps.
type marked struct {
	*world
	one, two *peer
	bucket   *mem.Bucket
	archive  *tier.Archive
	end      func()
}

func keepMarks(t *testing.T, windowMs int64) *marked {
	t.Helper()
	m := &marked{world: newWorld(t), bucket: mem.New(mem.Options{})}
	m.one = m.start(1, 0)
	m.until("broker 1 is the controller", func() bool { return m.one.image().Controller == 1 })
	m.two = m.start(2, 0)
	m.until("broker 2 is admitted", func() bool { return m.one.image().Known[2] != nil })
	quiet := slog.New(slog.DiscardHandler)
	m.archive = tier.New(m.bucket, manifest.ArchiveInfo{ID: "a", Cluster: "c"}, nil, nil, tier.Options{Cluster: "c", Broker: 1, Logger: quiet, Registerer: prometheus.NewRegistry()})
	a := Archivist{NodeID: 1, Store: m.one.store, Pause: time.Minute, Logger: quiet, Window: func(*meta.Topic) int64 { return windowMs }, Archive: m.archive}
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { a.Run(ctx) })
	m.end = func() {
		cancel()
		run.Wait()
		m.world.end(m.one)
	}
	return m
}

func (m *marked) put(id int32, ms int64) {
	m.t.Helper()
	mark := manifest.Mark{Cluster: "c", Broker: id, TimeMs: ms, Written: ms}
	body, err := mark.Encode()
	if err == nil {
		_, err = m.bucket.Put(m.t.Context(), mark.Key(), objstore.BytesBody(body), objstore.Cond{})
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// wants waits until the archivist has looked, and more than once.
func (m *marked) wants(why string, want ...int32) {
	m.t.Helper()
	time.Sleep(5 * time.Minute)
	if got, err := m.archive.Marks(m.t.Context()); err != nil || !slices.Equal(got, want) {
		m.t.Fatalf("%s: marks of %v, want %v: %v", why, got, want, err)
	}
}

// The window in which can be restored ends at the earliest mark: that of a broker which is gone for good would hold it back for ever.
func TestMarkOfABrokerThatIsGoneIsRemovedAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := keepMarks(t, 1)
		one, two, wants, put := w.one, w.two, w.wants, func(id int32) { w.put(id, 1) }
		for _, id := range []int32{1, 2, 3} {
			put(id)
		}
		wants("3 was never here", 1, 2)
		if _, err := one.store.CreateTopic(t.Context(), meta.TopicSpec{Name: "its", Assignment: [][]int32{{2}}}); err != nil {
			t.Fatal(err)
		}
		two.stop()
		wants("2 is down, and nobody else has what it leads", 1, 2)
		if err := one.store.ForgetBroker(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		wants("2 is unregistered", 1)
		three := w.start(3, 0)
		w.until("broker 3 is admitted", func() bool { return one.image().Known[3] != nil })
		put(3)
		if _, err := one.store.CreateTopic(t.Context(), meta.TopicSpec{Name: "ours", Assignment: [][]int32{{3, 1}}}); err != nil {
			t.Fatal(err)
		}
		wants("3 leads", 1, 3)
		three.stop()
		wants("3 is down, and 1 leads in its place", 1)
		put(3)
		wants("3 was only cut off from the metadata store, and has written it again", 1)
		w.end()
	})
}

// Nobody but the broker that led a deleted topic has its end, which a restore to the moment before wants: where it is away its mark says how
// far everything is archived, until it is back, or has said already that it had archived that.
func TestMarkOfAGoneBrokerThatHasTheEndOfADeletedTopicStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := keepMarks(t, 7*24*3_600_000)
		one, two, wants, put := w.one, w.two, w.wants, func(ms int64) { w.put(2, ms) }
		if _, err := one.store.CreateTopic(t.Context(), meta.TopicSpec{Name: "dropped", Assignment: [][]int32{{2, 1}}}); err != nil {
			t.Fatal(err)
		}
		put(time.Now().UnixMilli())
		if err := one.store.DeleteTopic(t.Context(), "dropped"); err != nil {
			t.Fatal(err)
		}
		two.stop()
		wants("2 led the topic, and its mark is older than the deletion", 2)
		put(time.Now().Add(2 * time.Hour).UnixMilli())
		wants("2 had archived all of it long after the deletion")
		w.end()
	})
}

// A restore to a moment takes what existed then from the topics' records. What was created, or grew, while the store was away, and was
// altered before it came back, would not have existed in between.
func TestATopicThatWasAlteredBeforeItsRecordWasWrittenExistedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one := w.start(1, 0)
		w.until("broker 1 is the controller", func() bool { return one.image().Controller == 1 })
		b := mem.New(mem.Options{})
		quiet := slog.New(slog.DiscardHandler)
		a := Archivist{NodeID: 1, Store: one.store, Logger: quiet,
			Archive: tier.New(b, manifest.ArchiveInfo{ID: "a", Cluster: "c"}, nil, nil, tier.Options{Cluster: "c", Broker: 1, Logger: quiet, Registerer: prometheus.NewRegistry()})}
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		topic, err := one.store.CreateTopic(t.Context(), meta.TopicSpec{Name: "t", Assignment: [][]int32{{1}}})
		do(err)
		alter := func(v string) error {
			return one.store.AlterTopic(t.Context(), "t", func(c map[string]string) (map[string]string, error) { c["retention.ms"] = v; return c, nil })
		}
		do(alter("1"))
		do(a.record(t.Context()))
		grown := time.Now().UnixMilli()
		do(one.store.CreatePartitions(t.Context(), "t", [][]int32{{1}}))
		do(alter("2"))
		do(alter("3"))
		do(a.record(t.Context()))

		var got []manifest.TopicRecord
		for i, err := range b.List(t.Context(), manifest.TopicRecordPrefix(topic.ID), "") {
			body, _, rerr := objstore.ReadAll(t.Context(), b, i.Key, 1<<20)
			if err != nil || rerr != nil {
				t.Fatal(err, rerr)
			}
			r, err := manifest.DecodeTopicRecord(body)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, *r)
		}
		slices.SortFunc(got, func(a, b manifest.TopicRecord) int { return int(a.N) - int(b.N) })
		now := one.image().Topics["t"]
		want := []manifest.TopicRecord{
			{N: 1, Event: manifest.TopicCreated, Time: topic.CreatedMs, Partitions: 1},
			{N: 2, Event: manifest.TopicAltered, Time: topic.CreatedMs + 60_000, Partitions: 1},
			{N: 3, Event: manifest.TopicAltered, Time: grown, Partitions: 2},
			{N: 5, Event: manifest.TopicAltered, Time: now.ChangedMs, Partitions: 2},
		}
		if len(got) != len(want) || now.BehindMs != 0 {
			t.Fatalf("records %+v, behind %d", got, now.BehindMs)
		}
		for i, g := range got {
			if x := want[i]; g.N != x.N || g.Event != x.Event || g.Time != x.Time || g.Partitions != x.Partitions {
				t.Fatalf("record %d is %+v, want %+v", i, g, x)
			}
		}
		w.end(one)
	})
}
