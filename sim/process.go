package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/varvelog/varve/broker"
	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/broker/control"
	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

const (
	nodeID  = 1
	dataDir = "/data"
)

// process is one life of the broker: the parts that cmd/varve joins, joined the same way.
type process struct {
	w      *World
	disk   *disk
	gate   *gate
	kv     *memkv.KV
	listen *listener

	store    *meta.Store
	archive  *tier.Archive
	chunks   *cache.Cache
	replicas *replica.Manager
	server   *broker.Server

	parts, follow, serve scope // in the order of their start; a drain ends them from the last to the first
}

// scope is goroutines that end together.
type scope struct {
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
}

func (s *scope) begin() { s.ctx, s.stop = context.WithCancel(context.Background()) }

func (s *scope) spawn(f func(context.Context)) { s.wg.Go(func() { f(s.ctx) }) }

func (s *scope) end() {
	s.stop()
	s.wg.Wait()
}

// boot starts a broker over what the former ones left. On an error nothing of it is left running.
func (w *World) boot(ctx context.Context) (*process, error) {
	p := &process{
		w: w, disk: &disk{below: w.mutant.disk(w), ages: w.ages}, gate: &gate{below: w.mutant.bucket(w)}, kv: w.kv.Client(),
	}
	p.parts.begin()
	p.follow.begin()
	p.serve.begin()
	w.faults.client(p.kv)
	w.setRunning(p)
	if err := p.start(ctx); err != nil {
		w.event("start refused: %v", err)
		p.kill()
		return nil, err
	}
	return p, nil
}

func (p *process) start(ctx context.Context) (err error) {
	w := p.w
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if p.store, err = meta.Open(ctx, p.kv, w.cluster, meta.Options{Logger: w.log}); err != nil {
		return fmt.Errorf("open metadata: %w", err)
	}
	if w.cluster == "" { // by the first process, which nothing runs beside
		w.cluster = p.store.Image().Cluster
	}
	p.parts.spawn(func(ctx context.Context) { p.store.Run(ctx) })
	if err := p.register(ctx); err != nil {
		return err
	}
	if err := p.openArchive(ctx); err != nil {
		return err
	}
	p.replicas, err = replica.NewManager(p.disk, p.store, p.archive, replica.Options{
		NodeID: nodeID, Dir: dataDir, TopicConfig: p.topicConfig, RetentionCheck: w.plan.retentionCheck,
		LocalMaxBytes: w.plan.localMax, OpenFiles: 8, Logger: w.log,
	})
	if err != nil {
		return err
	}
	if err := p.replicas.Start(ctx); err != nil {
		return fmt.Errorf("start replicas: %w", err)
	}
	w.history.blur(false)
	w.history.recovered(p)
	firstMark(ctx, p.archive)
	p.server, err = broker.New(p.store, p.replicas, broker.Options{
		NodeID: nodeID, Advertised: advertised, Rules: p.rules, Config: w.config, DefaultPartitions: 2, DefaultReplication: 1, Logger: w.log,
	})
	if err != nil {
		return err
	}
	p.follow.spawn(func(ctx context.Context) { p.replicas.Run(ctx) })
	p.listen = w.network.listen()
	p.serve.spawn(func(ctx context.Context) { p.server.Serve(ctx, p.listen) })
	return nil
}

var advertised = []meta.Listener{{Name: "PLAINTEXT", Host: "sim", Port: 9092}}

// register leases the registration, and anew when the lease is lost.
func (p *process) register(ctx context.Context) error {
	b := meta.Broker{ID: nodeID, Listeners: advertised, Directory: "sim"}
	ttl := p.w.config.Int("broker.session.timeout.ms")
	_, keep, err := p.store.Register(ctx, b, ttl)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	p.parts.spawn(func(ctx context.Context) { // the only broker is the controller, again after each lost lease
		for ctx.Err() == nil {
			if p.store.Image().Controller != nodeID {
				if _, err := p.store.TakeControl(ctx, nodeID); err != nil && ctx.Err() == nil {
					p.w.event("take control: %v", err)
				}
			}
			pause(ctx, time.Second)
		}
	})
	p.parts.spawn(func(ctx context.Context) {
		for ctx.Err() == nil {
			keep(ctx)
			for ctx.Err() == nil {
				if _, again, err := p.store.Register(ctx, b, ttl); err == nil {
					p.w.event("registered again")
					keep = again
					break
				}
				pause(ctx, time.Second)
			}
		}
	})
	return nil
}

func (p *process) openArchive(ctx context.Context) error {
	w := p.w
	var err error
	pointers := w.mutant.pointers(w, replica.Pointers{Store: p.store})
	if p.archive, p.chunks, err = w.openArchive(ctx, p.gate, pointers, tier.Options{Broker: nodeID, Logger: w.log}); err != nil {
		return err
	}
	p.parts.spawn(func(ctx context.Context) { p.archive.Run(ctx) })
	archivist := &control.Archivist{
		NodeID: nodeID, Store: p.store, Archive: p.archive, Pause: w.plan.sweep, Logger: w.log,
		Window: func(t *meta.Topic) int64 { return p.inForce(t).RestoreWindowMs },
	}
	p.parts.spawn(func(ctx context.Context) { archivist.Run(ctx) })
	return nil
}

// firstMark writes the broker's mark before it takes a record, as cmd/varve does.
func firstMark(ctx context.Context, a *tier.Archive) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = a.Mark(ctx)
}

// kill ends the process in the middle of whatever it does. The caller says what becomes of the page cache.
func (p *process) kill() {
	p.gate.dead.Store(true)
	p.disk.kill()
	p.kv.Disconnect()
	if p.listen != nil {
		p.listen.cut()
	}
	p.parts.stop()
	p.follow.stop()
	p.serve.end()
	if p.server != nil {
		cut, cancel := context.WithCancel(context.Background())
		cancel()
		p.server.Shutdown(cut)
	}
	p.follow.wg.Wait()
	p.parts.wg.Wait()
	p.end()
}

// drain ends the process as SIGTERM does.
func (p *process) drain() error {
	p.serve.end()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	p.server.Shutdown(ctx)
	p.follow.end()
	err := p.replicas.Close(ctx)
	p.parts.end()
	p.listen.cut()
	p.gate.dead.Store(true)
	p.disk.kill()
	p.end()
	return err
}

func (p *process) end() {
	p.w.setRunning(nil)
	if p.chunks != nil {
		p.chunks.Close()
	}
	p.kv.Close()
}

func (p *process) inForce(t *meta.Topic) config.Topic { return p.w.inForce(nodeID, p.store, t) }

func (p *process) topicConfig(t *meta.Topic) (localseg.Config, tier.TopicConfig) {
	return p.w.topicConfig(t, p.inForce(t))
}

func (p *process) rules(t *meta.Topic) record.ValidateOptions { return p.w.rules(p.inForce(t)) }

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
