package replica

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
)

func isBelow(err error) bool { return errors.Is(err, localseg.ErrBelowLocal) }

func TestRestartKeepsRecordsAndTakesANewEpoch(t *testing.T) {
	for _, clean := range []bool{true, false} {
		c := newCluster(t)
		b := c.start()
		b.topic("t", 2)
		p := b.leader("t", 0)
		fill(t, p, 100)
		before := p.LeaderEpoch()
		b.stop(clean)
		if _, err := os.Stat(filepath.Join(c.dir, cleanFile)); (err == nil) != clean {
			t.Fatalf("clean %v: marker: %v", clean, err)
		}

		b = c.start()
		if b.m.clean != clean {
			t.Fatalf("clean = %v, want %v", b.m.clean, clean)
		}
		if _, err := os.Stat(filepath.Join(c.dir, cleanFile)); err == nil {
			t.Fatal("the marker of a clean end is still there while the broker runs")
		}
		p = b.leader("t", 0)
		if p.LeaderEpoch() <= before {
			t.Fatalf("epoch %d after the restart, was %d", p.LeaderEpoch(), before)
		}
		if n := readAll(t, p, 0); n != 100 {
			t.Fatalf("%d records, want 100", n)
		}
		fill(t, p, 10)
		if epoch, end := p.EndOffsetForEpoch(before); epoch != before || end != 100 {
			t.Fatalf("end of epoch %d: (%d, %d), want 100", before, epoch, end)
		}
		b.stop(true)
	}
}

func TestDirectoryInUseIsRefused(t *testing.T) {
	c := newCluster(t)
	c.start()
	if _, err := c.tryStart(); err == nil {
		t.Fatal("a second broker runs in the same directory")
	}
}

func TestDeletedTopicLosesItsFilesAndWakesReaders(t *testing.T) {
	c := newCluster(t)
	b := c.start()
	b.topic("t", 1)
	p := b.leader("t", 0)
	fill(t, p, 10)
	w := NewWaiter()
	p.AddWaiter(w)
	if err := b.store.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.C:
	case <-time.After(10 * time.Second):
		t.Fatal("reader was not woken")
	}
	until(t, "the directory is gone", func() bool {
		_, err := os.Stat(filepath.Join(c.dir, "t-0"))
		return os.IsNotExist(err)
	})
	if _, err := p.ReadHot(0, 1, ReadUncommitted); !errors.Is(err, ErrUnknownPartition) {
		t.Fatalf("read: %v", err)
	}
	if _, err := p.Append([]record.Batch{one(t, 0, 1)}, localseg.OriginClient, true); !errors.Is(err, ErrUnknownPartition) {
		t.Fatalf("append: %v", err)
	}
	if _, err := b.m.Leader(TopicPartition{Topic: "t"}); !errors.Is(err, ErrUnknownPartition) {
		t.Fatalf("leader: %v", err)
	}
	// The same name again is another, empty topic.
	b.topic("t", 1)
	if q := b.leader("t", 0); q.LEO() != 0 || q.ID() == p.ID() {
		t.Fatalf("new topic: LEO %d, id %v", q.LEO(), q.ID())
	}
}

func TestTopicMadeAnewWhileTheBrokerWasDownIsEmpty(t *testing.T) {
	c := newCluster(t)
	b := c.start()
	b.topic("t", 1)
	b.topic("gone", 1)
	fill(t, b.leader("t", 0), 10)
	fill(t, b.leader("gone", 0), 10)
	b.stop(true)

	store, err := meta.Open(t.Context(), c.kv, "", meta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"t", "gone"} {
		if err := store.DeleteTopic(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.CreateTopic(t.Context(), meta.TopicSpec{Name: "t", Assignment: [][]int32{{1}}}); err != nil {
		t.Fatal(err)
	}
	b = c.start()
	p := b.leader("t", 0)
	if p.LEO() != 0 {
		t.Fatalf("the new topic has the old one's %d records", p.LEO())
	}
	fill(t, p, 10)
	if _, err := os.Stat(filepath.Join(c.dir, "gone-0")); !os.IsNotExist(err) {
		t.Fatalf("log of the deleted topic: %v", err)
	}
	b.stop(true)
	c.start()
	if left, _ := filepath.Glob(filepath.Join(c.dir, "*"+asideExt)); len(left) != 0 {
		t.Fatalf("left over: %v", left)
	}
}

func TestChangedConfigsReachTheLog(t *testing.T) {
	c := newCluster(t)
	b := c.start()
	b.topic("t", 1)
	p := b.leader("t", 0)
	was := p.Metadata()
	c.mu.Lock()
	c.config.RetentionMs = 12345
	c.mu.Unlock()
	err := b.store.AlterTopic(t.Context(), "t", func(map[string]string) (map[string]string, error) {
		return map[string]string{"retention.ms": "12345"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the log has it", func() bool { return p.Log().Config().RetentionMs == 12345 })
	if p.Metadata() == was || p.Metadata().Configs["retention.ms"] != "12345" {
		t.Fatal("the topic's record did not change")
	}
	c.mu.Lock()
	c.config.RetentionMs = 777
	c.mu.Unlock()
	was = p.Metadata()
	err = b.store.AlterConfigs(t.Context(), "broker/", func(map[string]string) (map[string]string, error) {
		return map[string]string{"log.retention.ms": "777"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the log has what its topic inherits", func() bool { return p.Log().Config().RetentionMs == 777 })
	if p.Metadata() == was {
		t.Fatal("who caches by the record's pointer would not see the change")
	}
}

func TestPartitionsAreAddedToATopic(t *testing.T) {
	b := newCluster(t).start()
	b.topic("t", 1)
	if _, err := b.m.Leader(TopicPartition{Topic: "t", Partition: 1}); !errors.Is(err, ErrUnknownPartition) {
		t.Fatalf("before: %v", err)
	}
	if err := b.store.CreatePartitions(t.Context(), "t", [][]int32{{1}, {2}}); err != nil {
		t.Fatal(err)
	}
	until(t, "the image has them", func() bool { return len(b.store.Image().Topics["t"].Partitions) == 3 })
	fill(t, b.leader("t", 1), 10)
}

func TestWaiterMissesNoAppend(t *testing.T) {
	b := newCluster(t).start()
	b.topic("t", 1)
	p := b.leader("t", 0)
	const n = 2000
	go func() {
		for range n {
			p.Append([]record.Batch{one(t, 0, 1)}, localseg.OriginClient, true)
		}
	}()
	w := NewWaiter()
	for next := int64(0); next < n; {
		p.AddWaiter(w)
		if p.HighWatermark() <= next {
			select {
			case <-w.C:
			case <-time.After(10 * time.Second):
				t.Fatalf("not woken at %d, high watermark %d", next, p.HighWatermark())
			}
		}
		p.RemoveWaiter(w)
		next = p.HighWatermark()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.readers.list) != 0 || p.readers.n.Load() != 0 {
		t.Fatalf("%d waiters left", len(p.readers.list))
	}
}

func TestWaitCommittedEndsWhenTheTopicGoes(t *testing.T) {
	b := newCluster(t).start()
	b.topic("t", 1)
	p := b.leader("t", 0)
	fill(t, p, 10)
	if err := p.WaitCommitted(t.Context(), 9, p.LeaderEpoch()); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := p.WaitCommitted(short, 10, p.LeaderEpoch()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("not appended yet: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- p.WaitCommitted(context.Background(), 10, p.LeaderEpoch()) }()
	if err := b.store.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, ErrNotLeader) {
		t.Fatalf("err = %v", err)
	}
}

// BenchmarkStart opens a broker that leads 2,000 partitions, a tenth of which have records.
func BenchmarkStart(b *testing.B) {
	c := newCluster(b)
	n := c.start()
	n.topic("t", 2000)
	for i := range 200 {
		fill(b, n.leader("t", int32(i*10)), 100)
	}
	n.stop(true)
	for b.Loop() {
		n := c.start()
		b.StopTimer()
		if got := len(n.m.All()); got != 2000 {
			b.Fatalf("%d partitions are served", got)
		}
		n.stop(true)
		b.StartTimer()
	}
}

// BenchmarkAppend is one 16 KiB batch into one partition.
func BenchmarkAppend(b *testing.B) {
	c := newCluster(b)
	c.config = localseg.Config{Delete: true, SegmentBytes: 64 << 20, RetentionBytes: 64 << 20}
	c.retain = 100 * time.Millisecond
	n := c.start()
	n.topic("t", 1)
	p := n.leader("t", 0)
	raw, err := record.Build(nil, record.BatchOptions{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]record.Record{{Timestamp: 1, Value: make([]byte, 16<<10)}})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	one := []record.Batch{raw}
	for b.Loop() {
		if _, err := p.Append(one, localseg.OriginClient, true); err != nil {
			b.Fatal(err)
		}
	}
}
