package replica

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/tier"
)

// parting is a partition of a deleted topic that was led here, or by nobody while it was in sync here, and has committed records which the
// archive has not. Its log stays until it has them, through any number of restarts, and the broker's mark is held back by them: the topic can be undeleted, and restored as it
// was before the deletion, with what was acknowledged a moment before. It ends, too, when the topic's restore window has passed.
//
// Nobody is elected for a deleted topic: who takes the archive over gives itself the next leader epoch, as long as the topic is deleted.
// In its former one a manifest that was written and not committed could have a higher number than the next one, and readers of the bucket
// alone would take it (PROTOCOLS 2.1). Who collects the topic does the same, and each fences the other: then it is tried again.
//
// A restarted broker takes all of its log for committed: of what was not nobody was told anything, and from the undeletion on the archive is
// what counts (PROTOCOLS 1.6).
type parting struct {
	m         *Manager
	topic     *meta.Topic // as it was last seen
	id        manifest.PartitionID
	log       *localseg.Log
	committed int64
	archive   atomic.Pointer[tier.Partition]

	ctx    context.Context // of what is tried; ends with reclaim
	cancel context.CancelFunc
	turn   chan struct{} // capacity 1; who has it owns what follows
	ended  bool          // the log is closed or gone
	fails  int           // in a row
	next   time.Time     // not before
}

const (
	tailWait    = 5 * time.Second // for one try
	partingLook = time.Second     // between looks at those that have failed
	partingMax  = 30 * time.Second
)

func (m *Manager) newParting(t *meta.Topic, id manifest.PartitionID, log *localseg.Log, committed int64) *parting {
	g := &parting{m: m, topic: t, id: id, log: log, committed: committed, turn: make(chan struct{}, 1)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Log, Committed and SetLogStart implement tier.Source.
func (g *parting) Log() *localseg.Log          { return g.log }
func (g *parting) Committed() int64            { return g.committed }
func (g *parting) SetLogStart(off int64) error { return g.log.SetLogStart(off) }

// through is what is known to be archived; there: the topic can still be undeleted.
func (g *parting) through() (off int64, there bool) {
	t := g.m.store.Image().Deleted[g.id.Topic]
	if a := g.archive.Load(); a != nil {
		off = a.Through()
	}
	if t == nil || t.Collecting || int(g.id.Partition) >= len(t.Partitions) {
		return off, false
	}
	return max(off, t.Partitions[g.id.Partition].Pointer.Through), true
}

// unarchived is since when, ms, there is something in it that is not archived.
func (g *parting) unarchived() (ms int64, pending bool, err error) {
	if through, there := g.through(); there && through < g.committed {
		return g.log.AppendedSince(through)
	}
	return 0, false, nil
}

// keep lets a partition wait for the archive. Called by Start, or by Run's follow.
func (m *Manager) keep(g *parting) {
	m.mu.Lock()
	m.partings[g.id] = g
	m.mu.Unlock()
	select {
	case m.parted <- struct{}{}:
	default:
	}
}

func (m *Manager) allPartings() []*parting {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]*parting, 0, len(m.partings))
	for _, g := range m.partings {
		out = append(out, g)
	}
	return out
}

// part archives what deleted topics have left until ctx ends.
func (m *Manager) part(ctx context.Context) {
	look := time.NewTicker(partingLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.parted:
		case <-look.C:
		}
		if all := m.allPartings(); len(all) > 0 {
			m.tryPartings(ctx, all, false)
		}
	}
}

func (m *Manager) tryPartings(ctx context.Context, all []*parting, now bool) {
	var g errgroup.Group
	g.SetLimit(2 * closers)
	for _, p := range all {
		g.Go(func() error {
			p.try(ctx, now)
			return nil
		})
	}
	g.Wait()
}

// try archives the tail, and deletes the log once nothing of it is missing in the archive; ended says that it is, or that the log is not
// this parting's any more.
func (g *parting) try(ctx context.Context, now bool) (ended bool) {
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return false
	}
	if g.ended || !now && time.Now().Before(g.next) {
		return g.ended
	}
	ctx, cancel := context.WithTimeout(ctx, tailWait)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	err := g.flush(ctx)
	if err == nil {
		g.remove()
		return true
	}
	if g.ctx.Err() != nil {
		return false
	}
	pause := min(firstLeadPause<<min(g.fails, 10), partingMax)
	if g.fails++; g.fails == 1 {
		g.m.o.Logger.Warn("tail of a deleted topic is not archived yet", "topic", g.topic.Name, "partition", g.id.Partition,
			"offset", g.committed, "retry", pause, "err", err)
	}
	g.next = time.Now().Add(pause)
	return false
}

// tryHard tries until it has ended, or tailWait is over: what is in the way of one try, like another's commit, is mostly gone in the next.
func (g *parting) tryHard() {
	ctx, cancel := context.WithTimeout(context.Background(), tailWait)
	defer cancel()
	for !g.try(ctx, true) && wait(ctx, firstLeadPause) == nil {
	}
}

// flush returns nil when there is nothing that the archive could still take.
func (g *parting) flush(ctx context.Context) error {
	through, there := g.through()
	if !there && g.m.store.Image().TopicsByID[g.id.Topic] != nil {
		return errors.New("its topic lives again") // reclaim comes
	}
	if !there || through >= g.committed {
		return nil
	}
	a := g.archive.Load()
	if a == nil || a.Err() != nil {
		epoch, err := g.elect(ctx)
		if err != nil {
			return err
		}
		_, tcfg := g.m.o.TopicConfig(g.topic)
		a, err = g.m.tiers.Lead(ctx, g.id, epoch, g, tcfg)
		if d, ok := errors.AsType[*tier.DivergedError](err); ok {
			g.m.o.Logger.Warn("log of a deleted topic is not what the archive has", "topic", g.topic.Name, "partition", g.id.Partition, "reason", d.Reason)
			return nil
		}
		if err != nil {
			return err
		}
		g.archive.Store(a)
	}
	return a.Flush(ctx)
}

// elect takes the next leader epoch.
func (g *parting) elect(ctx context.Context) (int32, error) {
	p, err := g.m.store.GetPartition(ctx, g.id)
	if err != nil {
		return 0, err
	}
	if !g.m.endsHere(p) {
		return 0, fmt.Errorf("broker %d leads the deleted partition: %w", p.Leader, ErrNotLeader)
	}
	s := Pointers{g.m.store}
	ptr, err := s.ElectDeleted(ctx, g.id, s.pointer(p))
	return ptr.LeaderEpoch, err
}

// remove deletes the log. With the turn.
func (g *parting) remove() {
	if a := g.archive.Load(); a != nil {
		a.Resign()
	}
	g.ended = true
	g.cancel()
	err := g.log.Remove()
	g.m.mu.Lock()
	delete(g.m.partings, g.id)
	g.m.mu.Unlock()
	if err != nil {
		g.m.o.Logger.Error("remove log", "topic", g.topic.Name, "partition", g.id.Partition, "err", err)
		return
	}
	g.m.o.Logger.Info("partition removed", "topic", g.topic.Name, "partition", g.id.Partition)
}

// reclaim ends the wait, and leaves the log to be opened by a partition of that name: that of the topic itself, undeleted, goes on with
// it. One of another topic takes its place: what cannot be archived within tailWait is lost then.
func (m *Manager) reclaim(name string, id manifest.PartitionID) {
	for _, g := range m.allPartings() {
		if g.topic.Name != name || g.id.Partition != id.Partition {
			continue
		}
		if g.id != id {
			g.tryHard() // deleted and made anew at once is usual: it has the time that a tail takes
		}
		g.cancel()
		g.turn <- struct{}{}
		if !g.ended {
			if _, pending, _ := g.unarchived(); pending && g.id != id {
				m.o.Logger.Error("a topic was made under the name of one whose tail is not archived: it is lost", "topic", name, "id", g.id.Topic.String(), "partition", id.Partition)
			}
			if err := g.close(); err != nil {
				m.o.Logger.Error("close log", "topic", name, "partition", id.Partition, "err", err)
			}
		}
		<-g.turn
	}
}

// close ends it and keeps the log's files. With the turn.
func (g *parting) close() error {
	if a := g.archive.Load(); a != nil {
		a.Resign()
	}
	g.ended = true
	g.cancel()
	g.m.mu.Lock()
	delete(g.m.partings, g.id)
	g.m.mu.Unlock()
	return g.log.CloseClean()
}

// endsHere says that this broker is to archive what a deleted partition has left: it led it, or, where nobody did, it is the first of those
// that have all that was acknowledged.
func (m *Manager) endsHere(mp *meta.Partition) bool {
	return mp.Leader == m.o.NodeID || mp.Leader < 0 && len(mp.ISR) > 0 && mp.ISR[0] == m.o.NodeID
}

// inherit opens the directory that a deleted topic has left, if its end is here and the archive lacks something of it; not kept: nothing of
// it is needed.
func (m *Manager) inherit(img *meta.Image, name string, partition int) (kept bool, err error) {
	for _, t := range img.Deleted {
		if t.Name != name || partition >= len(t.Partitions) || t.Collecting || m.tiers == nil {
			continue
		}
		mp := t.Partitions[partition]
		cfg, tcfg := m.o.TopicConfig(t)
		if !m.endsHere(mp) || !cfg.Tiered || tcfg.CopyDisabled {
			continue
		}
		log, err := m.openDir(t, mp.ID, nil, func(error) {})
		if errors.Is(err, errOtherTopic) {
			continue
		}
		if err != nil {
			return true, fmt.Errorf("open log %s of a deleted topic: %w", path.Join(m.o.Dir, fmt.Sprintf("%s-%d", name, partition)), err)
		}
		if err := localseg.SyncRecovered([]*localseg.Log{log}); err != nil {
			return true, errors.Join(err, log.Close())
		}
		committed := log.FirstUnstable()
		if committed <= mp.Pointer.Through {
			return false, log.Close()
		}
		m.o.Logger.Info("a deleted topic has records to archive", "topic", name, "partition", partition, "offset", committed, "through", mp.Pointer.Through)
		m.keep(m.newParting(t, mp.ID, log, committed))
		return true, nil
	}
	return false, nil
}
