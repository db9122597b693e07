package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/broker/group"
	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

// offsetsTopic holds committed offsets and groups.
const offsetsTopic = "__consumer_offsets"

// groups is the group coordinator as the server knows it: it tells it what is led here, and makes its topic.
type groups struct {
	s     *Server
	coord *group.Coordinator

	creating chan struct{} // holds one token: who has it creates the topic

	mu   sync.Mutex
	rev  int64       // guarded by mu; of the newest image that was told
	told *meta.Topic // guarded by mu; the topic as it was told
}

// newGroups subscribes to the metadata; it starts nothing.
func newGroups(s *Server) *groups {
	g := &groups{s: s, creating: make(chan struct{}, 1)}
	conf := s.config()
	g.coord = group.New(groupLogs{s.Replicas}, group.Options{
		Config: group.Config{
			MinSessionMs:   int32(conf.Int("group.min.session.timeout.ms")),
			MaxSessionMs:   int32(conf.Int("group.max.session.timeout.ms")),
			MaxSize:        int(conf.Int("group.max.size")),
			InitialDelayMs: zero(conf.Int("group.initial.rebalance.delay.ms")),
			RetentionMs:    conf.Int("offsets.retention.minutes") * 60_000,
			MetadataMax:    int(zero(conf.Int("offset.metadata.max.bytes"))),
		},
		Partitions:     int32(conf.Int("offsets.topic.num.partitions")),
		RetentionCheck: time.Duration(conf.Int("offsets.retention.check.interval.ms")) * time.Millisecond,
		CommitTimeout:  time.Duration(conf.Int("offsets.commit.timeout.ms")) * time.Millisecond,
		Deleted:        func(id manifest.TopicID) bool { return s.Store.Image().Deleted[id] != nil },
		Wall:           s.Options.Wall,
		Logger:         s.Options.Logger,
		Registerer:     s.Options.Registerer,
	})
	s.Store.Subscribe(g.changed)
	g.follow(s.Store.Image())
	return g
}

// zero says 0 where an option takes 0 for its default.
func zero(v int64) int64 {
	if v == 0 {
		return -1
	}
	return v
}

// run serves until ctx ends.
func (g *groups) run(ctx context.Context) error { return g.coord.Run(ctx) }

// changed is told of each image, in order. It must not block.
func (g *groups) changed(old, img *meta.Image) {
	var gone []group.DeletedTopic
	for id, t := range img.Deleted {
		if old.Deleted[id] == nil {
			gone = append(gone, group.DeletedTopic{Name: t.Name, ID: id})
		}
	}
	g.coord.TopicsDeleted(gone)
	g.follow(img)
}

// follow tells the coordinator which partitions are led here.
func (g *groups) follow(img *meta.Image) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := img.Topics[offsetsTopic]
	if img.Rev < g.rev || t == g.told {
		return
	}
	was := 0
	if g.told != nil {
		was = len(g.told.Partitions)
	}
	g.rev, g.told = img.Rev, t
	if t == nil {
		for p := range was {
			g.coord.Resign(int32(p))
		}
		return
	}
	g.coord.SetPartitions(int32(len(t.Partitions)))
	for i, p := range t.Partitions {
		if p.Leader == g.s.Options.NodeID {
			g.coord.Lead(int32(i), p.LeaderEpoch)
		} else {
			g.coord.Resign(int32(i))
		}
	}
}

// topic returns __consumer_offsets, creating it at first use.
func (g *groups) topic(ctx context.Context) (*meta.Topic, error) {
	if t := g.s.Store.Image().Topics[offsetsTopic]; t != nil {
		return t, nil
	}
	select {
	case g.creating <- struct{}{}:
		defer func() { <-g.creating }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	img := g.s.Store.Image()
	if t := img.Topics[offsetsTopic]; t != nil {
		return t, nil
	}
	conf := g.s.config()
	spec, err := g.s.spec(img, newTopic{
		name:        offsetsTopic,
		partitions:  int32(conf.Int("offsets.topic.num.partitions")),
		replication: offsetsReplication(conf, img),
		configs: map[string]string{
			"cleanup.policy":   "compact",
			"compression.type": "producer",
			"segment.bytes":    fmt.Sprint(conf.Int("offsets.topic.segment.bytes")),
		},
		internal: true,
	})
	if err != nil {
		return nil, err
	}
	return g.s.createTopic(ctx, spec)
}

// offsetsReplication is offsets.topic.replication.factor, but no more than the brokers that the cluster is meant to have: those that it
// has had, or that etcd.initial.cluster names; one where etcd is in this process alone. With external etcd nobody knows how many are to
// come, and the key holds as it does with Kafka: until so many brokers have come there is no coordinator. A cluster whose first broker was
// asked first would have one replica of its offsets for good.
func offsetsReplication(conf *config.Broker, img *meta.Image) int16 {
	want := conf.Int("offsets.topic.replication.factor")
	named := len(conf.List("etcd.initial.cluster"))
	if named == 0 && !conf.Bool("etcd.embedded") {
		return int16(want)
	}
	return int16(min(want, int64(max(members(img), named, 1))))
}

// members counts the brokers of the cluster, also those that are away for a while: the topic is not made for good with fewer replicas
// because one of them is.
func members(img *meta.Image) int {
	n := len(img.Known)
	for id := range img.Brokers {
		if img.Known[id] == nil {
			n++
		}
	}
	return n
}

// coordinator finds the broker that leads the group's partition.
func (g *groups) coordinator(c *conn, id string) (node, error) {
	ctx, cancel := context.WithTimeout(c.ctx, createOffsetsTimeout)
	defer cancel()
	t, err := g.topic(ctx)
	if err != nil {
		g.s.Options.Logger.Warn("create topic", "topic", offsetsTopic, "err", err)
		return node{}, refuse(kerr.CoordinatorNotAvailable, "topic %s is not there yet", offsetsTopic)
	}
	leader := t.Partitions[group.PartitionFor(id, int32(len(t.Partitions)))].Leader
	for _, n := range c.nodes() {
		if n.id == leader {
			return n, nil
		}
	}
	return node{}, refuse(kerr.CoordinatorNotAvailable, "no broker leads the partition of the group")
}

const createOffsetsTimeout = 5 * time.Second

// groupLogs opens what the broker leads of __consumer_offsets.
type groupLogs struct{ parts *replica.Manager }

// Open waits for a leader that has begun to serve: before, its log may still be replaced by what is archived, and what is read of it then
// would be too little.
func (l groupLogs) Open(_ context.Context, partition, epoch int32) (group.Log, error) {
	p, err := l.parts.Leader(replica.TopicPartition{Topic: offsetsTopic, Partition: partition})
	if err != nil {
		return nil, notCoordinator(err)
	}
	if got := p.LeaderEpoch(); got != epoch {
		return nil, fmt.Errorf("%s-%d is led in epoch %d, not %d: %w", offsetsTopic, partition, got, epoch, group.ErrNotCoordinator)
	}
	if err := p.CheckEpoch(epoch); err != nil {
		return nil, notCoordinator(err)
	}
	return &groupLog{p: p, epoch: epoch}, nil
}
