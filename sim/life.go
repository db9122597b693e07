package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/broker"
	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/broker/control"
	"github.com/varvelog/varve/broker/peer"
	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

const startPause = time.Second

// life is one process of a node: the parts that cmd/varve joins, joined the same way.
type life struct {
	n    *node
	c    *Cluster
	log  *slog.Logger
	disk *disk
	gate *gate
	meta *metaLink
	port *port

	store    *meta.Store
	member   *control.Membership
	detector *control.Detector
	archive  *tier.Archive
	chunks   *cache.Cache
	peers    *peer.Pool
	server   *broker.Server
	manager  atomic.Pointer[replica.Manager] // read by checkers
	serving  atomic.Bool

	parts, follow, serve scope // in the order of their start; a drain ends them from the last to the first
}

func newLife(n *node) *life {
	c := n.c
	l := &life{n: n, c: c, log: c.log.With("self", n.id), disk: &disk{below: n.files}, gate: &gate{below: c.store, away: &n.storeAway}, meta: newMetaLink(c.kv, c.metaFaults)}
	if c.cutOff(n.id) {
		l.meta.Disconnect()
	}
	l.parts.begin()
	l.follow.begin()
	l.serve.begin()
	return l
}

func (l *life) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	l.port = l.c.fabric.listen(l.n.id)
	if l.store, err = meta.Open(ctx, (&witness{KV: l.c.mutant.kv(l.meta), c: l.c}), l.c.cluster, meta.Options{Logger: l.log, Wall: l.n.wall}); err != nil {
		return fmt.Errorf("open metadata: %w", err)
	}
	l.parts.spawn(func(ctx context.Context) { l.store.Run(ctx) })
	if err := l.openArchive(ctx); err != nil {
		return err
	}
	if err := l.join(ctx); err != nil {
		return err
	}
	if err := l.startReplicas(ctx); err != nil {
		return err
	}
	l.serving.Store(true)
	return nil
}

// join registers, stands for control, watches the others, and waits for the controller to deal with the registration.
func (l *life) join(ctx context.Context) error {
	previous, line, err := replica.CleanEpoch(l.disk, dataDir)
	if err != nil {
		return err
	}
	id, session := l.n.id, l.c.shape.session
	minISR := func(t *meta.Topic) int32 { return l.inForce(t).MinInsyncReplicas }
	l.member = &control.Membership{
		Store: l.store, TTL: session, Logger: l.log, Rules: control.Rules{MinISR: minISR},
		Again: func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_ = l.archive.Remark(ctx) // or the next mark does
		},
		Broker: meta.Broker{ID: id, Rack: fmt.Sprint("rack", id), Listeners: l.advertised(), Directory: l.n.dir, Previous: previous, Continues: line},
	}
	controller := control.New(l.store, control.Options{
		NodeID: id, Rebalance: l.c.shape.rebalance, Logger: l.log,
		Unclean: func(t *meta.Topic) bool { return l.inForce(t).UncleanLeaderElection }, MinISR: minISR,
	})
	l.detector = control.NewDetector(l.store, control.DetectorOptions{
		NodeID: id, Session: session, Logger: l.log,
		Dial: func(ctx context.Context, b *meta.Broker) (net.Conn, error) { return l.c.fabric.dial(ctx, id, b.ID) },
	})
	if err := l.member.Join(ctx); err != nil {
		return fmt.Errorf("register broker %d: %w", id, err)
	}
	l.parts.spawn(func(ctx context.Context) { l.member.Run(ctx) })
	l.parts.spawn(func(ctx context.Context) { controller.Run(ctx) })
	l.parts.spawn(func(ctx context.Context) { l.detector.Run(ctx) })
	return l.member.AwaitAdmission(ctx)
}

func (l *life) advertised() []meta.Listener {
	return []meta.Listener{{Name: "PLAINTEXT", Host: fmt.Sprint("broker", l.n.id), Port: 9092}}
}

func (l *life) openArchive(ctx context.Context) error {
	c := l.c
	var err error
	l.archive, l.chunks, err = c.openArchive(ctx, l.gate, replica.Pointers{Store: l.store}, tier.Options{Broker: l.n.id, Wall: l.n.wall, Logger: l.log})
	if err != nil {
		return err
	}
	l.parts.spawn(func(ctx context.Context) { l.archive.Run(ctx) })
	archivist := &control.Archivist{
		NodeID: l.n.id, Store: l.store, Archive: l.archive, Pause: c.plan.sweep, Wall: l.n.wall, Logger: l.log,
		Window: func(t *meta.Topic) int64 { return l.inForce(t).RestoreWindowMs },
	}
	l.parts.spawn(func(ctx context.Context) { archivist.Run(ctx) })
	return nil
}

// startReplicas opens the logs and serves.
func (l *life) startReplicas(ctx context.Context) (err error) {
	c, id := l.c, l.n.id
	l.peers = peer.New(peer.Options{
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			var to int32
			if _, err := fmt.Sscanf(address, "broker%d", &to); err != nil {
				return nil, fmt.Errorf("address %q: %w", address, err)
			}
			return c.fabric.dial(ctx, id, to)
		},
		Address: func(id int32) (string, int64, bool) {
			b := l.store.Image().Brokers[id]
			if b == nil {
				return "", 0, false
			}
			return b.Listeners[0].Host, b.Epoch, true
		},
		OnDown: func(id int32) { l.detector.Suspect(id) },
	})
	m, err := replica.NewManager(l.disk, l.store, l.archive, replica.Options{
		NodeID: id, Dir: dataDir, TopicConfig: l.topicConfig, RetentionCheck: c.plan.retentionCheck,
		LocalMaxBytes: c.plan.localMax, OpenFiles: 8, Wall: l.n.wall, Logger: l.log,
		Controlled: true, Intact: l.member.Intact(), BrokerEpoch: l.brokerEpoch, MinISR: func(t *meta.Topic) int32 { return l.inForce(t).MinInsyncReplicas },
		Upstream: c.mutant.upstream(c, id, &broker.Upstream{NodeID: id, Peers: l.peers}),
		LagMax:   c.shape.lagMax, Fetchers: c.shape.fetchers, HWCheckpoint: c.plan.retentionCheck,
	})
	if err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("start replicas: %w", err)
	}
	firstMark(ctx, l.archive)
	l.server, err = broker.New(l.store, m, broker.Options{
		NodeID: id, Rack: fmt.Sprint("rack", id), Advertised: l.advertised(), Rules: l.rules, Config: c.config, DefaultPartitions: 2, DefaultReplication: 3,
		Wall: l.n.wall, Logger: l.log,
	})
	if err != nil {
		m.Abandon()
		return err
	}
	l.manager.Store(m)
	l.follow.spawn(func(ctx context.Context) { m.Run(ctx) })
	l.serve.spawn(func(ctx context.Context) { l.server.Serve(ctx, l.port) })
	return nil
}

func (l *life) brokerEpoch() int64 {
	if r := l.store.Registration(); r.Epoch != 0 {
		return r.Epoch
	}
	return -1
}

func (l *life) inForce(t *meta.Topic) config.Topic { return l.c.inForce(l.n.id, l.store, t) }

func (l *life) topicConfig(t *meta.Topic) (localseg.Config, tier.TopicConfig) {
	return l.c.topicConfig(t, l.inForce(t))
}

func (l *life) rules(t *meta.Topic) record.ValidateOptions { return l.c.rules(l.inForce(t)) }

// kill ends the process in the middle of whatever it does. Its connections are the fabric's.
func (l *life) kill() {
	l.serving.Store(false)
	l.gate.dead.Store(true)
	l.disk.kill()
	l.meta.Disconnect()
	l.parts.stop()
	l.follow.stop()
	l.serve.end()
	if l.server != nil {
		cut, cancel := context.WithCancel(context.Background())
		cancel()
		l.server.Shutdown(cut)
	}
	if l.peers != nil {
		l.peers.Close()
	}
	l.follow.wg.Wait()
	l.parts.wg.Wait()
	if m := l.manager.Load(); m != nil {
		m.Abandon()
	}
	l.end()
}

// Bounds of a drain, as cmd/varve has them.
const (
	handOverMax = 5 * time.Second
	drainMax    = 10 * time.Second
)

// drain ends the process as SIGTERM does.
func (l *life) drain() error {
	over, cancel := context.WithTimeout(context.Background(), handOverMax)
	defer cancel()
	handed := l.member.Drain(over)
	l.serving.Store(false)
	l.serve.end()
	ctx, stop := context.WithTimeout(context.Background(), drainMax)
	defer stop()
	l.server.Shutdown(ctx)
	l.follow.end()
	l.peers.Close()
	err := l.manager.Load().Close(ctx)
	l.parts.end()
	l.c.fabric.killed(l.n.id)
	l.gate.dead.Store(true)
	l.disk.kill()
	l.end()
	return errors.Join(handed, err)
}

func (l *life) end() {
	if l.chunks != nil {
		l.chunks.Close()
	}
	l.meta.Disconnect()
	l.meta.late.Wait()
	l.meta.Close()
}
