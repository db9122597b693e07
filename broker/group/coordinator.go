package group

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Coordinator coordinates the groups of the partitions of __consumer_offsets that this broker leads, a shard each. All methods may be
// called concurrently. Between requests nothing runs for a shard: loading and writing take a goroutine while they last, and one
// goroutine keeps the time of all.
type Coordinator struct {
	o       Options
	logs    Logs
	metrics *metrics

	mu       sync.Mutex
	shards   map[int32]*shard            // guarded by mu; of the partitions that are led
	todo     []func(ctx context.Context) // guarded by mu; for Run to start
	dropping []DeletedTopic              // guarded by mu; not yet told to all shards
	stopped  bool                        // guarded by mu
	loads    chan struct{}               // one token a partition that is loaded

	partitions atomic.Int32

	wake   chan struct{} // capacity 1: Run has something to do
	began  time.Time     // zero of the time that cores go by
	ringAt atomic.Int64  // ms of it, until when Run sleeps if nothing wakes it
}

// New makes a coordinator that leads nothing. Lead may be called at once; requests are served while Run runs.
func New(logs Logs, o Options) *Coordinator {
	o.fill()
	c := &Coordinator{
		o: o, logs: logs, shards: map[int32]*shard{},
		loads: make(chan struct{}, o.Loaders),
		wake:  make(chan struct{}, 1),
		began: time.Now(),
	}
	c.partitions.Store(o.Partitions)
	c.metrics = newMetrics(o.Registerer, c.stats)
	c.ringAt.Store(math.MaxInt64)
	return c
}

// Run loads, writes and keeps the time until ctx ends; then it answers what waits with ErrNotAvailable and returns when all has ended.
func (c *Coordinator) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	defer c.stop()

	check := time.NewTicker(c.o.RetentionCheck)
	defer check.Stop()
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		for _, f := range c.take() {
			running.Go(func() { f(ctx) })
		}
		c.dropDeleted()
		alarm.Reset(c.sleep())
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-alarm.C:
			c.each(func(s *shard) {
				s.step(func(core *Core, now int64, out []Effect) []Effect { return core.Tick(now, out) })
			})
		case <-check.C:
			c.each(func(s *shard) {
				s.step(func(core *Core, now int64, out []Effect) []Effect { return core.Expire(now, out) })
			})
		}
	}
}

// start has Run start f; it may be dropped if Run has ended.
func (c *Coordinator) start(f func(context.Context)) {
	c.mu.Lock()
	c.todo = append(c.todo, f)
	c.mu.Unlock()
	c.poke()
}

func (c *Coordinator) take() []func(context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fs := c.todo
	c.todo = nil
	return fs
}

func (c *Coordinator) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// sleep is how long nothing rings. It is stored before the shards are asked, so that an earlier alarm that is set meanwhile pokes.
func (c *Coordinator) sleep() time.Duration {
	c.ringAt.Store(math.MaxInt64)
	first := int64(math.MaxInt64)
	c.each(func(s *shard) {
		if at, ok := s.nextAlarm(); ok {
			first = min(first, at)
		}
	})
	c.ringAt.Store(first)
	wait := time.Duration(first-c.nowMs()) * time.Millisecond
	if first == math.MaxInt64 {
		wait = time.Hour
	}
	return max(wait, 0)
}

// rings is told when a shard has an alarm at ms.
func (c *Coordinator) rings(ms int64) {
	if ms < c.ringAt.Load() {
		c.poke()
	}
}

func (c *Coordinator) each(f func(*shard)) {
	c.mu.Lock()
	all := make([]*shard, 0, len(c.shards))
	for _, s := range c.shards {
		all = append(all, s)
	}
	c.mu.Unlock()
	for _, s := range all {
		f(s)
	}
}

// Lead says that this broker leads a partition in an epoch. It loads the partition, unless it has it in this epoch; until then its
// groups are answered ErrLoading.
func (c *Coordinator) Lead(partition, leaderEpoch int32) {
	c.mu.Lock()
	old := c.shards[partition]
	if c.stopped || old != nil && old.epoch >= leaderEpoch {
		c.mu.Unlock()
		return
	}
	s := newShard(c, partition, leaderEpoch)
	c.shards[partition] = s
	c.mu.Unlock()
	if old != nil {
		old.close(ErrNotCoordinator)
	}
	c.start(s.load)
}

// Resign says that this broker does not lead a partition: its groups are forgotten and answered ErrNotCoordinator.
func (c *Coordinator) Resign(partition int32) {
	c.mu.Lock()
	s := c.shards[partition]
	delete(c.shards, partition)
	c.mu.Unlock()
	if s != nil {
		s.close(ErrNotCoordinator)
	}
}

// reload replaces a shard whose state may not be what its log has.
func (c *Coordinator) reload(old *shard) {
	c.mu.Lock()
	if c.stopped || c.shards[old.partition] != old {
		c.mu.Unlock()
		return
	}
	s := newShard(c, old.partition, old.epoch)
	c.shards[old.partition] = s
	c.mu.Unlock()
	c.start(s.load)
}

func (c *Coordinator) stop() {
	c.mu.Lock()
	c.stopped = true
	all := c.shards
	c.shards = map[int32]*shard{}
	c.mu.Unlock()
	for _, s := range all {
		s.close(ErrNotAvailable)
	}
}

// shardOf finds the shard of a group.
func (c *Coordinator) shardOf(group string) (*shard, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, ErrNotAvailable
	}
	s := c.shards[c.PartitionFor(group)]
	if s == nil {
		return nil, ErrNotCoordinator
	}
	return s, nil
}

// PartitionFor is the partition that holds a group.
func (c *Coordinator) PartitionFor(group string) int32 {
	return PartitionFor(group, c.partitions.Load())
}

// SetPartitions says how many partitions __consumer_offsets has, which may be others than Options.Partitions, of its creation.
func (c *Coordinator) SetPartitions(n int32) { c.partitions.Store(max(n, 1)) }

// TopicsDeleted has the offsets of deleted topics removed; from now on they are not answered any more. It does not block.
func (c *Coordinator) TopicsDeleted(ds []DeletedTopic) {
	if len(ds) == 0 {
		return
	}
	c.mu.Lock()
	c.dropping = append(c.dropping, ds...)
	c.mu.Unlock()
	c.poke()
}

// dropDeleted tells all shards of the deleted topics. A shard that is loading asks Options.Deleted when it is loaded.
func (c *Coordinator) dropDeleted() {
	c.mu.Lock()
	ds := c.dropping
	c.mu.Unlock()
	if len(ds) == 0 {
		return
	}
	c.each(func(s *shard) {
		s.step(func(core *Core, _ int64, out []Effect) []Effect { return core.TopicsDeleted(ds, out) })
	})
	c.mu.Lock()
	c.dropping = c.dropping[len(ds):]
	c.mu.Unlock()
}

// nowMs is the time that cores and alarms go by, which no setting of the clock disturbs.
func (c *Coordinator) nowMs() int64 { return time.Since(c.began).Milliseconds() }
