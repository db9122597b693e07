package group

import (
	"context"
	"errors"
	"time"

	"github.com/varvelog/varve/manifest"
)

// load reads the partition and lets the shard serve, trying until it can or the shard is closed.
func (s *shard) load(ctx context.Context) {
	ctx, cancel, ok := s.begin(ctx)
	defer cancel()
	if !ok {
		return
	}
	const firstPause, lastPause = 50 * time.Millisecond, 5 * time.Second
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := s.loadOnce(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		s.c.o.Logger.Warn("load groups", "partition", s.partition, "epoch", s.epoch, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// loadOnce reads all that the log had when it was opened, once all of that is committed: nothing above the high watermark is acted
// on, and nothing that a former leader may have answered from is missed. That may take as long as a broker in sync is away: only who reads
// keeps others from it.
func (s *shard) loadOnce(ctx context.Context) error {
	begun := time.Now()
	log, err := s.c.logs.Open(ctx, s.partition, s.epoch)
	if err != nil {
		return err
	}
	start, end := log.Bounds()
	if end > start {
		if err := log.WaitCommitted(ctx, end-1); err != nil {
			return err
		}
	}
	select {
	case s.c.loads <- struct{}{}:
		defer func() { <-s.c.loads }()
	case <-ctx.Done():
		return ctx.Err()
	}
	start, _ = log.Bounds() // it may have risen meanwhile
	core := NewCore(s.c.o.Config)
	l := loader{core: core, s: s}
	for off := start; off < end; {
		next, err := log.Read(ctx, off, l.entry)
		if err != nil {
			return err
		}
		if next <= off {
			return errors.New("log ends before its end offset")
		}
		off = next
	}
	s.mu.Lock()
	if s.closed != nil {
		s.mu.Unlock()
		return s.closed
	}
	s.log, s.core = log, core
	s.effects = s.core.Loaded(s.now(), s.effects[:0])
	todo := s.apply(s.effects)
	stats := core.Stats()
	s.unlock(todo)
	// Asked after the shard serves: what is deleted later reaches it by Coordinator.TopicsDeleted.
	_ = s.step(func(core *Core, _ int64, out []Effect) []Effect {
		return core.TopicsDeleted(core.deletedTopics(s.c.o.Deleted), out)
	}) // if it was closed, the next one asks
	s.c.metrics.loadSeconds.Observe(time.Since(begun).Seconds())
	if l.records > 0 {
		s.c.o.Logger.Info("groups loaded", "partition", s.partition, "epoch", s.epoch, "groups", stats.Groups, "offsets", stats.Offsets,
			"records", l.records, "ms", time.Since(begun).Milliseconds())
	}
	return nil
}

// loader replays entries into a core.
type loader struct {
	core    *Core
	s       *shard
	records int64
}

// entry passes over a record that cannot be read: its group falls back to what it said before, which is reported. To serve nothing at
// all would be worse.
func (l *loader) entry(e Entry) {
	l.records++
	if e.Marker != NoMarker {
		l.core.EndTransaction(e.Producer, e.Marker == CommitMarker)
		return
	}
	if err := l.core.Replay(e.Record, e.Offset, e.Producer); err != nil {
		l.s.c.metrics.corrupt.Inc()
		l.s.c.o.Logger.Error("read group state", "partition", l.s.partition, "offset", e.Offset, "err", err)
	}
}

// deletedTopics lists the topics of offsets that are known to be deleted.
func (c *Core) deletedTopics(deleted func(manifest.TopicID) bool) []DeletedTopic {
	seen := map[manifest.TopicID]string{}
	for _, g := range c.groups {
		for topic, ps := range g.offsets {
			for _, o := range ps {
				seen[o.id] = topic
			}
		}
	}
	delete(seen, manifest.TopicID{})
	var ds []DeletedTopic
	for id, topic := range seen {
		if deleted(id) {
			ds = append(ds, DeletedTopic{topic, id})
		}
	}
	return ds
}
