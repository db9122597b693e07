package tier

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// Archive is one broker's archive engine. All methods may be called concurrently.
type Archive struct {
	o        Options
	info     manifest.ArchiveInfo
	bucket   objstore.Bucket
	pointers Pointers
	objects  *objects
	clock    storeClock
	gate     *gate
	sched    *scheduler
	ahead    chan aheadJob
	marker   marker
	m        *metrics

	mu      sync.Mutex
	led     map[*Partition]struct{}            // guarded by mu
	deleted map[manifest.TopicID]*deletedTopic // guarded by mu
	owed    map[manifest.PartitionID]owed      // guarded by mu
}

// New starts nothing; Run does. The bucket is the one that OpenArchive checked, with its id. The cache may be nil.
func New(b objstore.Bucket, id manifest.ArchiveInfo, p Pointers, c *cache.Cache, o Options) *Archive {
	o.fill()
	if o.Cluster == "" {
		o.Cluster = id.Cluster
	}
	if o.Incarnation == 0 {
		o.Incarnation = 1
	}
	a := &Archive{
		o: o, info: id, bucket: b, pointers: p,
		sched:   newScheduler(o.Uploads),
		ahead:   make(chan aheadJob, 64),
		led:     make(map[*Partition]struct{}),
		deleted: make(map[manifest.TopicID]*deletedTopic),
		owed:    make(map[manifest.PartitionID]owed),
	}
	a.marker.init()
	a.m = newMetrics(o.Registerer, a.lagSeconds, a.pendingBytes, a.ledPartitions)
	a.objects = newObjects(b, id.ID, c, &o, a.m)
	a.gate = newGate(b, o.Incarnation, &a.clock, o.Logger)
	return a
}

// Run uploads, retains and collects until ctx ends. What is to be archived before that is flushed before; Run's last deed
// is to write the broker's mark.
func (a *Archive) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range aheadWorkers {
		wg.Go(func() { a.runAhead(ctx) })
	}
	wg.Go(func() { a.runMarks(ctx) })
	a.sched.run(ctx)
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (a *Archive) register(p *Partition) {
	a.mu.Lock()
	a.led[p] = struct{}{}
	delete(a.owed, p.id)
	a.mu.Unlock()
}

func (a *Archive) unregister(p *Partition) {
	a.mu.Lock()
	delete(a.led, p)
	a.mu.Unlock()
}

func (a *Archive) partitions() []*Partition {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*Partition, 0, len(a.led))
	for p := range a.led {
		list = append(list, p)
	}
	return list
}

func (a *Archive) lagSeconds() float64 {
	lag := time.Duration(0)
	for _, p := range a.partitions() {
		if since := p.since.Load(); since != nil {
			lag = max(lag, time.Since(*since))
		}
	}
	return lag.Seconds()
}

func (a *Archive) pendingBytes() float64 {
	sum := int64(0)
	for _, p := range a.partitions() {
		sum += p.localAbove(p.Through(), p.src.Committed())
	}
	return float64(sum)
}

func (a *Archive) ledPartitions() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return float64(len(a.led))
}

// jitter is a duration between half of d and d.
func (a *Archive) jitter(d time.Duration) time.Duration {
	half := d / 2
	if half <= 0 {
		return d
	}
	return half + time.Duration(a.o.Rand()%uint64(half))
}

// deathTime is a time by the store's clock, ms, that is not before now: what dies in an edit dies at it. It asks the store
// only if no answer has told the time yet.
func (a *Archive) deathTime(ctx context.Context) (int64, error) {
	if !a.clock.known() {
		if _, err := a.clock.ask(ctx, a.bucket); err != nil {
			return 0, err
		}
	}
	// A Date has whole seconds: the store's clock may be up to a second further.
	return a.clock.guess().Add(time.Second).UnixMilli(), nil
}
