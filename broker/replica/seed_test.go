package replica

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
)

// gated holds reads of manifests until they are let through, one by one in their order.
type gated struct {
	objstore.Bucket

	mu   sync.Mutex
	on   bool            // guarded by mu
	held []chan struct{} // guarded by mu
}

func (g *gated) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	g.mu.Lock()
	pass := make(chan struct{})
	if g.on && strings.Contains(key, "/m/") {
		g.held = append(g.held, pass)
	} else {
		close(pass)
	}
	g.mu.Unlock()
	select {
	case <-pass:
		return g.Bucket.Get(ctx, key, off, n)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (g *gated) set(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on = on
}

// next lets the first read through that is held; it tells if there was one.
func (g *gated) next() bool {
	synctest.Wait()
	g.mu.Lock()
	if len(g.held) == 0 {
		g.mu.Unlock()
		return false
	}
	close(g.held[0])
	g.held = g.held[1:]
	g.mu.Unlock()
	synctest.Wait()
	return true
}

// A follower whose log is to start from a slow archive is told so again when its leader is elected anew. Once it has caught up it is in
// sync, and nothing may take its log away any more.
func TestFollowerThatHasCaughtUpDoesNotStartFromTheArchiveAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tieredCluster(t)
		c.fs, c.dir = vfs.NewMem(), "data"
		gate := &gated{Bucket: c.bucket}
		c.bucket = gate
		later := one(t, 500, 1000, 1001, 1002)
		later.SetOffset(500)
		var fresh atomic.Bool // the disk is another one
		var most atomic.Int64
		var asked, epoch atomic.Int32
		s := &scripted{say: func(part FetchPart) *FetchedPart {
			if !fresh.Load() {
				return nil
			}
			if part.Offset < most.Load() {
				t.Errorf("asked from %d after %d", part.Offset, most.Load())
			}
			most.Store(part.Offset)
			asked.Add(1)
			epoch.Store(part.Epoch)
			switch part.Offset {
			case 0:
				return &FetchedPart{Err: ErrInArchive}
			case 500:
				return &FetchedPart{Records: later, HW: 503}
			}
			return nil
		}}
		c.upstream = s
		b := c.start()
		topic, err := b.store.CreateTopic(t.Context(), meta.TopicSpec{Name: "t", Assignment: [][]int32{{2, 1}}})
		if err != nil {
			t.Fatal(err)
		}
		id := topic.Partitions[0].ID
		until(t, "the image has the topic", func() bool { return b.store.Image().TopicsByID[topic.ID] != nil })
		elect := func(leader int32) {
			t.Helper()
			if err := b.store.Elect(t.Context(), []meta.Election{{ID: id, Leader: leader, ISR: []int32{leader}}}); err != nil {
				t.Fatal(err)
			}
		}
		elect(1)
		until(t, "it leads", func() bool { p := b.m.All(); return len(p) == 1 && p[0].Leading() })
		p := b.leader("t", 0)
		fill(t, p, 500)
		until(t, "it is archived", func() bool { return p.Archive() != nil && p.Archive().Through() == 500 })
		elect(2)
		b.stop(false)

		c.fs = vfs.NewMem()
		gate.set(true)
		fresh.Store(true)
		b = c.start()
		until(t, "it asks", func() bool { return asked.Load() > 0 })
		was := epoch.Load()
		elect(2)
		until(t, "it asks in the new epoch", func() bool { return epoch.Load() > was })
		p = b.m.All()[0]
		for {
			n := asked.Load()
			if !gate.next() {
				break
			}
			until(t, "it goes on", func() bool { return p.LEO() == 503 || asked.Load() > n })
		}
		if p.LEO() != 503 {
			t.Fatalf("the log ends at %d, 503 was fetched", p.LEO())
		}
	})
}

// The epoch in which the archive is being read may be over by then, and the same broker elected again, as after a lease that was lost.
func TestLogThatWaitsForTheArchiveIsLedInTheNextEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tieredCluster(t)
		c.fs, c.dir = vfs.NewMem(), "data"
		gate := &gated{Bucket: c.bucket}
		c.bucket = gate
		b := c.start()
		id := b.topic("t", 1).Partitions[0].ID
		p := b.leader("t", 0)
		fill(t, p, 500)
		until(t, "it is archived", func() bool { return p.Archive() != nil && p.Archive().Through() == 500 })
		b.stop(false)

		c.fs = vfs.NewMem()
		gate.set(true)
		b = c.start()
		if !gate.next() {
			t.Fatal("the archive is not read")
		}
		p, _ = b.m.find(TopicPartition{Topic: "t"})
		epoch := p.LeaderEpoch()
		if err := b.store.Elect(t.Context(), []meta.Election{{ID: id, Leader: 1, ISR: []int32{1}}}); err != nil {
			t.Fatal(err)
		}
		until(t, "it is elected again", func() bool { return p.LeaderEpoch() > epoch })
		gate.set(false)
		for gate.next() {
		}
		until(t, "it serves", func() bool {
			_, err := b.m.Leader(TopicPartition{Topic: "t"})
			return err == nil
		})
		if n := readAll(t, p, 0); n != 500 {
			t.Fatalf("%d records, want 500", n)
		}
	})
}
