package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/proc"
)

// group is two members of a consumer group that read a topic and commit, whatever happens to its coordinator.
type group struct {
	w       *world
	topic   string
	name    string
	members []*kgo.Client
	over    sync.WaitGroup

	mu     sync.Mutex
	got    map[int32]map[int64]bool // guarded by mu; offsets by partition
	failed error                    // guarded by mu; the first
}

func (w *world) startGroup(name, topic string) *group {
	w.t.Helper()
	g := &group{w: w, topic: topic, name: name, got: map[int32]map[int64]bool{}}
	for range 2 {
		cl := w.client(kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.AutoCommitInterval(200*time.Millisecond), kgo.HeartbeatInterval(300*time.Millisecond))
		g.members = append(g.members, cl)
		g.over.Go(func() { g.read(cl) })
	}
	return g
}

func (g *group) read(cl *kgo.Client) {
	for {
		fetches := cl.PollFetches(g.w.ctx)
		if fetches.IsClientClosed() || g.w.ctx.Err() != nil {
			return
		}
		g.mu.Lock()
		fetches.EachError(func(topic string, p int32, err error) {
			if g.failed == nil && !errors.Is(err, context.Canceled) && !stale(err) {
				g.failed = fmt.Errorf("group %s: %s:%d: %w", g.name, topic, p, err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			if g.got[r.Partition] == nil {
				g.got[r.Partition] = map[int64]bool{}
			}
			g.got[r.Partition][r.Offset] = true
		})
		g.mu.Unlock()
	}
}

// stale says that the client asked a broker that it did not know to be stopped, and told of it, before it asked another: it does so where
// it has no coordinator and draws the same broker twice. No broker has said anything then.
func stale(err error) bool {
	var session *kgo.ErrGroupSession
	return errors.As(err, &session) && errors.Is(session.Err, syscall.ECONNREFUSED)
}

// awaitMore waits until the group has read n more records, of whichever partitions.
func (g *group) awaitMore(n int) {
	t := g.w.t
	t.Helper()
	read := func() (sum int, err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, of := range g.got {
			sum += len(of)
		}
		return sum, g.failed
	}
	before, _ := read()
	proc.Until(t, 30*time.Second, "the group reads on", func() error {
		now, err := read()
		if err == nil && now < before+n {
			err = fmt.Errorf("%d of %d records", now-before, n)
		}
		return err
	})
}

// stop waits until the group has every record up to the end and has committed that, and ends it.
func (g *group) stop(ends map[int32]int64) {
	t := g.w.t
	t.Helper()
	proc.Until(t, 30*time.Second, "the group has read all and committed it", func() error {
		ctx, cancel := context.WithTimeout(g.w.ctx, 3*time.Second)
		defer cancel()
		committed, err := g.w.adm.FetchOffsets(ctx, g.name)
		if err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.failed != nil {
			t.Fatal(g.failed)
		}
		for p, end := range ends {
			if n := int64(len(g.got[p])); n != end {
				return fmt.Errorf("partition %d: %d of %d records", p, n, end)
			}
			if o, _ := committed.Lookup(g.topic, p); o.At != end {
				return fmt.Errorf("partition %d: %d of %d are committed", p, o.At, end)
			}
		}
		return nil
	})
	for _, cl := range g.members {
		cl.Close()
	}
	g.over.Wait()
}
