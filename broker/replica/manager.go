package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/wallclock"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/tier"
)

// Options of a Manager. Zero values are defaults.
type Options struct {
	NodeID         int32
	Dir            string                                                  // log.dirs
	TopicConfig    func(t *meta.Topic) (localseg.Config, tier.TopicConfig) // merged topic configs; default: Kafka's defaults
	RetentionCheck time.Duration                                           // log.retention.check.interval.ms, default 5 min
	LocalMaxBytes  int64                                                   // archive.local.max.bytes, 0: no limit
	OpenFiles      int                                                     // open segment files, default 4096

	// Controlled says that a controller elects. Without it this broker elects itself for what has no other replica.
	Controlled bool
	// Former is the metadata from before this process registered: it does not lead in an epoch that this shows. Default: the
	// metadata at Start; with Controlled none, and then Start is to be called only once the controller has dealt with the registration.
	Former *meta.Image
	// Intact says that the directory is known to hold all that the broker's last process left. Default: it may be an older one.
	Intact bool
	// BrokerEpoch is the epoch of this process's registration, -1 while it has none. Default: what the metadata shows.
	BrokerEpoch func() int64
	// MinISR is min.insync.replicas of a topic, default 1.
	MinISR func(t *meta.Topic) int32
	// Throttle is leader.replication.throttled.rate and follower.replication.throttled.rate as they are in force, bytes a second;
	// default: no limit. It is asked again when the configuration of brokers has changed.
	Throttle func() (leader, follower int64)
	// Throttled is leader.replication.throttled.replicas and follower.replication.throttled.replicas of a topic; default: none.
	Throttled func(t *meta.Topic) (leader, follower []string)
	// Upstream reaches the other brokers; nil: there are none.
	Upstream Upstream

	LagMax       time.Duration // replica.lag.time.max.ms, default 30 s
	Fetchers     int           // num.replica.fetchers: connections to each other broker, default 1
	FetchWait    time.Duration // replica.fetch.wait.max.ms, default 500 ms
	FetchMin     int           // replica.fetch.min.bytes, default 1
	FetchMax     int           // replica.fetch.response.max.bytes, default 10 MiB
	FetchPartMax int           // replica.fetch.max.bytes of one partition, default 1 MiB
	FetchBackoff time.Duration // replica.fetch.backoff.ms, default 1 s
	AnswerMax    time.Duration // replica.socket.timeout.ms, default 30 s; at least a second more than FetchWait
	HWCheckpoint time.Duration // replica.high.watermark.checkpoint.interval.ms, default 5 s

	Wall       wallclock.Clock // stamps appends, and retention by time goes by it; nil: the system's
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *Options) fill() {
	if o.TopicConfig == nil {
		o.TopicConfig = func(t *meta.Topic) (localseg.Config, tier.TopicConfig) {
			return localseg.Config{Delete: true}, tier.TopicConfig{Name: t.Name}
		}
	}
	if o.RetentionCheck <= 0 {
		o.RetentionCheck = 5 * time.Minute
	}
	if o.MinISR == nil {
		o.MinISR = func(*meta.Topic) int32 { return 1 }
	}
	if o.Throttle == nil {
		o.Throttle = func() (int64, int64) { return math.MaxInt64, math.MaxInt64 }
	}
	if o.Throttled == nil {
		o.Throttled = func(*meta.Topic) (leader, follower []string) { return nil, nil }
	}
	setDefault(&o.OpenFiles, 4096)
	setDefault(&o.LagMax, 30*time.Second)
	setDefault(&o.Fetchers, 1)
	setDefault(&o.FetchWait, 500*time.Millisecond)
	setDefault(&o.FetchMin, 1)
	setDefault(&o.FetchMax, 10<<20)
	setDefault(&o.FetchPartMax, 1<<20)
	setDefault(&o.FetchBackoff, time.Second)
	setDefault(&o.AnswerMax, 30*time.Second)
	setDefault(&o.HWCheckpoint, 5*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Manager owns every partition that this broker hosts.
type Manager struct {
	fs      vfs.FS
	store   *meta.Store
	tiers   *tier.Archive // nil: no tiering
	o       Options
	files   *localseg.FileCache
	clock   localseg.Clock
	metrics *metrics

	leader    workQueue // partitions whose archive is to be led
	flusher   workQueue // partitions with a segment to be made durable
	isr       workQueue // partitions with a change of the ISR to be written
	seeder    workQueue // partitions whose log is to begin where the archive ends
	offliner  workQueue // partitions whose log has failed and is to be named in the metadata
	fetchers  *fetchers // of what is followed
	throttles throttles
	cutters   chan struct{} // one of them is held while a log is cut back
	backlog   atomic.Int64  // bytes of tiered partitions that are not archived, about
	began     time.Time     // zero of the clock that cores go by

	changed chan struct{} // buffered 1: the image has changed

	draining bool // this broker is about to stop; owned by Start, then by Run's follow

	flushed time.Time // owned by keepHouse; when the active segments were last flushed

	// Owned by Start, then by Run.
	lock    vfs.File
	clean   bool                           // the last process ended cleanly
	former  map[manifest.PartitionID]int32 // epochs of before this process, which it must not lead in
	configs string                         // fingerprint of the configuration that topics inherit
	marks   map[hwKey]int64                // high watermarks as the last process left them; not changed after Start

	parted chan struct{} // buffered 1: partings has grown
	owing  atomic.Bool   // something is led here whose archive could not be taken over before the end: there is no last mark
	swept  atomic.Bool   // the data directory has been looked through

	marked map[hwKey]int64 // high watermarks as the file has them; owned by Start, then by keepMarks, then by Close

	mu       sync.RWMutex
	byName   map[string]*hosted                // guarded by mu
	byID     map[manifest.TopicID]*hosted      // guarded by mu
	going    map[*Partition]struct{}           // guarded by mu; of topics that are being dropped
	partings map[manifest.PartitionID]*parting // guarded by mu; of deleted topics, what is to be archived
	hosts    chan struct{}                     // guarded by mu; closed and replaced when a partition becomes ready or goes
}

// hosted is a topic of which this broker hosts partitions.
type hosted struct {
	id    manifest.TopicID
	name  string
	seen  *meta.Topic  // owned by Start, then by Run
	parts []*Partition // guarded by Manager.mu; nil: not hosted here
}

// NewManager makes a manager; it starts nothing and touches no file. archive may be nil (no tiering).
func NewManager(fs vfs.FS, store *meta.Store, archive *tier.Archive, o Options) (*Manager, error) {
	o.fill()
	if o.Dir == "" {
		return nil, errors.New("replica options: no data directory")
	}
	if o.BrokerEpoch == nil {
		o.BrokerEpoch = func() int64 {
			if b := store.Image().Brokers[o.NodeID]; b != nil {
				return b.Epoch
			}
			return -1
		}
	}
	m := &Manager{
		fs: fs, store: store, tiers: archive, o: o,
		files:    localseg.NewFileCache(o.OpenFiles),
		changed:  make(chan struct{}, 1),
		parted:   make(chan struct{}, 1),
		going:    map[*Partition]struct{}{},
		partings: map[manifest.PartitionID]*parting{},
		began:    time.Now(),
		former:   map[manifest.PartitionID]int32{},
		byName:   map[string]*hosted{},
		byID:     map[manifest.TopicID]*hosted{},
		hosts:    make(chan struct{}),
		flushed:  time.Now(),
		cutters:  make(chan struct{}, cutters),
	}
	m.clock.Wall = o.Wall
	m.metrics = newMetrics(o.Registerer, m)
	m.leader.init(func(p *Partition) *atomic.Bool { return &p.queued })
	m.flusher.init(func(p *Partition) *atomic.Bool { return &p.flushing })
	m.isr.init(func(p *Partition) *atomic.Bool { return &p.proposing })
	m.seeder.init(func(p *Partition) *atomic.Bool { return &p.seedQueued })
	m.offliner.init(func(p *Partition) *atomic.Bool { return &p.reporting })
	m.fetchers = newFetchers(m)
	m.setThrottle()
	if archive != nil {
		archive.MarkBy(m.archivedBy)
	}
	store.Subscribe(func(_, _ *meta.Image) {
		select {
		case m.changed <- struct{}{}:
		default:
		}
	})
	return m, nil
}

// Start takes the data directory, elects this broker for what no other can lead (unless Controlled) and recovers the logs; it returns
// when partitions can be served. Those whose records are in the archive alone follow as soon as it can be read. meta.Store.Run must be running.
func (m *Manager) Start(ctx context.Context) error {
	if err := m.takeDir(); err != nil {
		return err
	}
	m.marks = m.readMarks()
	m.marked = m.marks
	if err := m.electAll(ctx); err != nil {
		m.releaseDir()
		return err
	}
	if err := m.sweepDir(m.store.Image()); err != nil {
		m.releaseDir()
		return err
	}
	m.swept.Store(true)
	m.apply(ctx, m.store.Image())
	return ctx.Err()
}

// Run follows the metadata (new, changed, deleted topics) and the leaders of what is followed, keeps the ISR of what is led, leads
// archives, applies retention, checkpoints; until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	var g errgroup.Group
	for range leaders {
		g.Go(func() error { m.lead(ctx); return nil })
	}
	g.Go(func() error { m.flush(ctx); return nil })
	g.Go(func() error { m.keepHouse(ctx); return nil })
	for range isrWriters {
		g.Go(func() error { m.writeISRs(ctx); return nil })
	}
	for range seeders {
		g.Go(func() error { m.seed(ctx); return nil })
	}
	for range reporters {
		g.Go(func() error { m.reportOffline(ctx); return nil })
	}
	g.Go(func() error { m.watchLag(ctx); return nil })
	g.Go(func() error { m.watchMissing(ctx); return nil })
	g.Go(func() error { m.keepMarks(ctx); return nil })
	g.Go(func() error { m.part(ctx); return nil })
	g.Go(func() error { m.fetchers.run(ctx); return nil })
	g.Go(func() error { m.follow(ctx); return nil })
	return g.Wait()
}

// closers bounds the logs that are opened or closed at once.
const closers = 8

// Close drains; Run must have ended, the archive must still run. An error of the archive does not keep the logs from being closed.
//  1. archive tails, within ctx
//  2. let nobody append, flush all logs together (localseg.FlushAll), close them
//  3. if every log is durable: write the clean-shutdown marker
func (m *Manager) Close(ctx context.Context) error {
	parts := m.All()
	var g errgroup.Group
	g.SetLimit(2 * closers)
	for _, p := range parts {
		if !p.Leading() || p.Offline() != nil || !p.tiered.Load() || p.archive.Load() == nil && p.log.LEO() == p.log.LogStart() {
			continue
		}
		g.Go(func() error {
			if err := m.archiveTail(ctx, p); err != nil {
				return fmt.Errorf("archive the tail of %s-%d: %w", p.name, p.id.Partition, err)
			}
			return nil
		})
	}
	tail := g.Wait()
	m.tryPartings(ctx, m.allPartings(), true)
	for _, g := range m.allPartings() { // the next process goes on with them
		m.owing.Store(true)
		tail = errors.Join(tail, g.close())
	}

	logs := make([]*localseg.Log, len(parts))
	for i, p := range parts {
		p.stop(ErrNotLeader)
		p.appendMu.Lock() // an append that was under way ends first; none begins
		logs[i] = p.log
		p.appendMu.Unlock()
	}
	err := errors.Join(localseg.CloseAll(logs), m.writeMarks(parts))
	if err == nil {
		err = m.markClean()
	}
	m.releaseDir()
	return errors.Join(err, tail)
}

// Abandon gives the data directory up without a word, as the end of the process does. Run must have ended.
func (m *Manager) Abandon() {
	m.releaseDir()
}

// archiveTail uploads what is committed, taking the archive over first where that has not been done yet.
func (m *Manager) archiveTail(ctx context.Context, p *Partition) error {
	if p.archive.Load() == nil {
		if err := m.leadOne(ctx, p); err != nil {
			m.owing.Store(true) // the archive does not know of it
			return err
		}
	}
	if a := p.archive.Load(); a != nil {
		return a.Flush(ctx)
	}
	return nil
}

// justCreated is how long Leader waits for a partition that the metadata has given to this broker.
const justCreated = 2 * time.Second

// Leader returns the partition if this broker leads it. It waits briefly for one that was just created, or just elected.
func (m *Manager) Leader(tp TopicPartition) (*Partition, error) {
	var patience Patience
	return m.LeaderWithin(tp, &patience)
}

// LeaderWithin is Leader for one of several partitions of a request, which share the patience.
func (m *Manager) LeaderWithin(tp TopicPartition, patience *Patience) (*Partition, error) {
	p, _ := m.find(tp)
	if p != nil && p.ready.Load() && p.gone.Load() == nil {
		return p, nil
	}
	return m.await(tp, patience)
}

// LeaderNow is Leader without waiting: a follower asks again anyway.
func (m *Manager) LeaderNow(tp TopicPartition) (*Partition, error) {
	p, _ := m.find(tp)
	switch {
	case p != nil && p.ready.Load() && p.gone.Load() == nil:
		return p, nil
	case p == nil && tp.ID != (manifest.TopicID{}):
		return nil, ErrUnknownTopicID
	case p == nil:
		return nil, ErrUnknownPartition
	}
	return nil, ErrNotLeader
}

// Replica returns the partition if this broker leads or follows it, so that committed records can be read from it.
func (m *Manager) Replica(tp TopicPartition) (*Partition, error) {
	p, _ := m.find(tp)
	if p != nil && p.ready.Load() && p.unreadable() == nil {
		return p, nil
	}
	var patience Patience
	return m.await(tp, &patience)
}

// find looks tp up, and returns what is closed when the answer may have changed.
func (m *Manager) find(tp TopicPartition) (*Partition, <-chan struct{}) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var h *hosted
	if tp.ID != (manifest.TopicID{}) {
		h = m.byID[tp.ID]
	} else {
		h = m.byName[tp.Topic]
	}
	if h == nil || tp.Partition < 0 || int(tp.Partition) >= len(h.parts) {
		return nil, m.hosts
	}
	return h.parts[tp.Partition], m.hosts
}

// Resuming counts partitions whose records are in the archive alone and whose log does not begin there yet.
func (m *Manager) Resuming() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := 0
	for _, h := range m.byID {
		for _, p := range h.parts {
			if p != nil && p.resuming.Load() {
				n++
			}
		}
	}
	return n
}

// All lists the partitions that are hosted and can be used, led or not.
func (m *Manager) All() []*Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var out []*Partition
	for _, h := range m.byID {
		for _, p := range h.parts {
			if p != nil && p.ready.Load() {
				out = append(out, p)
			}
		}
	}
	return out
}

// Led lists the partitions that this broker leads now.
func (m *Manager) Led() []*Partition {
	all := m.All()
	led := all[:0]
	for _, p := range all {
		if p.Leading() {
			led = append(led, p)
		}
	}
	return led
}

// nowMs is a clock that never goes back.
func (m *Manager) nowMs() int64 { return time.Since(m.began).Milliseconds() }

// room refuses appends to an archived partition while too much waits for the archive.
func (m *Manager) room(p *Partition) error {
	if m.o.LocalMaxBytes <= 0 || !p.tiered.Load() {
		return nil
	}
	if n := m.backlog.Load(); n > m.o.LocalMaxBytes {
		m.metrics.refused.Inc()
		return fmt.Errorf("%d bytes are not archived, limit %d: %w", n, m.o.LocalMaxBytes, ErrArchiveBehind)
	}
	return nil
}

// announce wakes who waits in Leader.
func (m *Manager) announce() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.hosts)
	m.hosts = make(chan struct{})
}
