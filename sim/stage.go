package sim

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/objstore/retry"
	"github.com/varvelog/varve/tier"
)

// stage is what clients and checkers see of a world, whether it has one broker or several.
type stage struct {
	journal
	plan    plan
	config  *config.Broker
	bucket  *mem.Bucket   // the truth
	store   *fault.Bucket // what brokers see of it
	kv      *memkv.KV
	cluster string // written before the first process serves
	history *History
	moments *moments
	late    bool // a write to the object store may have landed when nobody waited for it any more; owned by the nemesis

	// caller makes a client. leader is the partition where it is led, nil if it is not. undelete brings a topic back as an operator does.
	// told looks at where that ends which a reader was given, or was told is committed; nil: there is nothing to compare it with.
	caller   func(rng *rand.Rand) caller
	told     func(p *part, end int64)
	leader   func(p *part) *replica.Partition
	undelete func(ctx context.Context, id manifest.TopicID) error
}

// caller sends requests to whoever is to answer them, one at a time. For one goroutine.
type caller interface {
	// do sends a request about a partition, nil: about none, and waits for the answer. Any error leaves the outcome unknown.
	do(ctx context.Context, p *part, req kmsg.Request) (kmsg.Response, error)
	// send is do for a request that is not answered.
	send(ctx context.Context, p *part, req kmsg.Request) error
	// certain says that the last answer came from who led the partition all the while, and in which epoch: what it says of its bounds binds.
	certain() (epoch int32, ok bool)
	close()
}

// setUp fills what all worlds have. The keys are of the brokers' configuration, beside those that all worlds have.
func (s *stage) setUp(seed uint64, world string, o Options, p plan, keys map[string]string) {
	s.seed, s.world, s.log, s.plan = seed, world, o.Logger, p
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	all := map[string]string{
		"node.id": "1", "auto.create.topics.enable": "false", "offsets.topic.num.partitions": "2",
		"archive.max.lag.ms": strconv.FormatInt(p.maxLagMs, 10), "archive.restore.window.ms": strconv.FormatInt(p.windowMs, 10),
	}
	maps.Copy(all, keys)
	var err error
	if s.config, _, err = config.New(all); err != nil {
		panic(err) // the keys are ours
	}
	s.bucket, s.kv, s.moments = mem.New(mem.Options{PageKeys: 50}), memkv.New(), &moments{}
	s.store = fault.New(newLedger(s.bucket, s.violate), fault.Options{Seed: seed})
	s.history = newHistory(s)
}

// openArchive opens a broker's archive as cmd/varve does, with small caches. The broker, its clock and its logger are o's.
func (s *stage) openArchive(ctx context.Context, below objstore.Bucket, pointers tier.Pointers, o tier.Options) (*tier.Archive, *cache.Cache, error) {
	bucket := retry.New(below, retry.Options{Attempts: 4, Elapsed: 10 * time.Second, Max: 2 * time.Second, AttemptTimeout: 5 * time.Second})
	info, inc, err := tier.OpenArchive(ctx, bucket, s.cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("open archive: %w", err)
	}
	chunks, err := cache.New(cache.Options{MemoryBytes: 1 << 20, FillBytes: 1 << 20})
	if err != nil {
		return nil, nil, err
	}
	ms := func(key string) time.Duration { return time.Duration(s.config.Int(key)) * time.Millisecond }
	o.Cluster, o.Incarnation, o.Registerer = s.cluster, inc, prometheus.NewRegistry()
	o.MaxLag, o.RestoreWindow = ms("archive.max.lag.ms"), ms("archive.restore.window.ms")
	o.SupersededGrace, o.SweepInterval, o.ChunkBytes, o.ReadAheadBytes = s.plan.supersededGrace, s.plan.sweep, 1<<10, 8<<10
	return tier.New(bucket, info, pointers, chunks, o), chunks, nil
}

// image reads the metadata as it is, past all faults.
func (s *stage) image() (*meta.Image, error) {
	st, err := meta.Open(context.Background(), s.kv, s.cluster, meta.Options{Logger: s.log})
	if err != nil {
		return nil, err
	}
	return st.Image(), nil
}

// archivedThrough is what is committed, of deleted topics too.
func (s *stage) archivedThrough() map[manifest.PartitionID]int64 {
	out := map[manifest.PartitionID]int64{}
	img, err := s.image()
	if err != nil {
		return out
	}
	for _, topics := range []map[manifest.TopicID]*meta.Topic{img.TopicsByID, img.Deleted} {
		for _, t := range topics {
			for _, p := range t.Partitions {
				out[p.ID] = p.Pointer.Through
			}
		}
	}
	return out
}

// parts lists the partitions of living topics.
func (s *stage) parts() []*part {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return s.history.living()
}
