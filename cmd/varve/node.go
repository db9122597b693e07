package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/broker"
	"github.com/varvelog/varve/broker/config"
	"github.com/varvelog/varve/broker/control"
	"github.com/varvelog/varve/broker/peer"
	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/tier"
)

// node is one broker with all its parts, joined here because no part knows the others.
type node struct {
	c   *config.Broker
	id  int32
	log *slog.Logger
	reg *prometheus.Registry

	admin    *adminServer
	data     *dataDir
	etcd     *metadata
	store    *meta.Store
	member   *control.Membership
	leave    chan struct{} // closed to end the registration
	left     chan struct{} // closed when it has ended
	detector *control.Detector
	bucket   objstore.Bucket // nil: no archive
	archive  *tier.Archive   // nil: no archive
	foreign  *foreign
	replicas *replica.Manager
	server   *broker.Server

	peers *peer.Pool
}

// runNode runs a broker until ctx ends, then drains it. Parts stop in the order opposite to their start: clients first, then the logs,
// while the archive and the metadata still work, then those.
func runNode(ctx context.Context, c *config.Broker, inert []string) error {
	n := &node{c: c, id: int32(c.Int("node.id")), reg: prometheus.NewRegistry()}
	n.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: logLevel()}))
	for _, key := range inert {
		n.log.Info("accepted for Kafka's sake, without effect", "key", key)
	}
	registerProcess(n.reg)
	err := n.run(ctx)
	if err != nil {
		n.log.Error("stopped", "err", err)
		return quiet(exitFailed)
	}
	return nil
}

func logLevel() slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(os.Getenv("VARVE_LOG_LEVEL"))); err != nil {
		return slog.LevelInfo
	}
	return l
}

func (n *node) run(ctx context.Context) (err error) {
	// parts is the context of what clients do not see: it outlives ctx until the drain is over.
	parts, stopParts := context.WithCancel(context.WithoutCancel(ctx))
	defer stopParts()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var background errgroup.Group
	// spawn runs a part until the drain is over; its failure stops the node.
	spawn := func(what string, f func(context.Context) error) {
		background.Go(func() error {
			if err := f(parts); err != nil && parts.Err() == nil {
				err = fmt.Errorf("%s: %w", what, err)
				stop(err)
				return err
			}
			return nil
		})
	}
	defer func() {
		stopParts()
		err = errors.Join(err, background.Wait())
		if n.etcd != nil {
			err = errors.Join(err, n.etcd.Close())
		}
		n.data.release()
	}()

	listeners, advertised, err := n.listen()
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	if n.data, err = takeDataDir(n.c.Dir()); err != nil {
		return err
	}
	if n.admin, err = listenAdmin(n.c.String("admin.listen"), n.reg); err != nil {
		return err
	}
	spawn("admin", n.admin.Run)
	if n.etcd, err = openMetadata(ctx, n.c, n.id, n.log); err != nil {
		return err
	}
	spawn("etcd", n.etcd.Watch)
	if n.store, err = meta.Open(ctx, n.etcd.kv, n.c.String("cluster.id"), meta.Options{Logger: n.log}); err != nil {
		return fmt.Errorf("open metadata: %w", err)
	}
	spawn("metadata", n.store.Run)
	if err := n.openArchive(ctx, spawn); err != nil {
		return err
	}
	if err := n.join(ctx, advertised, spawn); err != nil {
		return err
	}
	if err := n.startReplicas(ctx); err != nil {
		return err
	}
	n.firstMark(ctx)
	return n.serve(ctx, listeners, advertised, spawn)
}

// listen opens the listeners first: a port in use is told before anything is written.
func (n *node) listen() ([]net.Listener, []meta.Listener, error) {
	bind, advertised, err := n.c.Listeners()
	if err != nil {
		return nil, nil, usagef("%v", err)
	}
	var out []net.Listener
	ports := map[string]int32{}
	for _, a := range bind {
		l, err := net.Listen("tcp", net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port))))
		if err != nil {
			return out, nil, fmt.Errorf("listener %s://%s:%d: %w", a.Name, a.Host, a.Port, err)
		}
		out = append(out, l)
		ports[a.Name] = int32(l.Addr().(*net.TCPAddr).Port)
	}
	var told []meta.Listener // in the order of the listeners
	for _, b := range bind {
		at := slices.IndexFunc(advertised, func(a config.Address) bool { return a.Name == b.Name })
		a := b
		if at >= 0 {
			a = advertised[at]
		}
		if a.Host == "" || a.Host == "0.0.0.0" || a.Host == "::" {
			if a.Host, err = os.Hostname(); err != nil || n.c.Bool("etcd.embedded") {
				a.Host = "localhost"
			}
		}
		if a.Port == 0 {
			a.Port = ports[a.Name]
		}
		told = append(told, meta.Listener{Name: a.Name, Host: a.Host, Port: a.Port})
	}
	return out, told, nil
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// startReplicas elects, opens the logs and follows the metadata.
func (n *node) startReplicas(ctx context.Context) (err error) {
	n.peers = peer.New(peer.Options{Address: n.peerAddress, OnDown: n.peerDown})
	n.replicas, err = replica.NewManager(vfs.OS{}, n.store, n.archive, n.replicaOptions())
	if err != nil {
		return err
	}
	return n.replicas.Start(ctx)
}

// serve answers clients until ctx ends, then drains.
func (n *node) serve(ctx context.Context, listeners []net.Listener, advertised []meta.Listener, spawn func(string, func(context.Context) error)) error {
	var err error
	if n.server, err = broker.New(n.store, n.replicas, n.brokerOptions(advertised)); err != nil {
		return err
	}
	follow, stopFollowing := context.WithCancel(context.WithoutCancel(ctx))
	var followers errgroup.Group
	followers.Go(func() error { return n.replicas.Run(follow) })
	n.awaitResumed(ctx, attachedWait)
	n.admin.setReady(true)
	n.log.Info("serving", "listener", listeners[0].Addr().String(), "admin", n.admin.addr(), "cluster", n.store.Image().Cluster, "node", n.id,
		"archive", redact(n.c.String("archive.url")), "version", version)

	err = n.serveUntilDrained(ctx, listeners)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(err, cause)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(n.c.Int("shutdown.timeout.ms"))*time.Millisecond)
	defer cancel()
	if cut := n.server.Shutdown(drain); cut != nil {
		n.log.Warn("connections were cut", "err", cut)
	}
	stopFollowing()
	err = errors.Join(err, followers.Wait(), n.peers.Close())
	if closed := n.replicas.Close(drain); closed != nil {
		n.log.Warn("drain", "err", closed)
	}
	n.deregister(drain)
	n.log.Info("stopped")
	return err
}

// serveUntilDrained serves until ctx ends and then until others lead what they can lead.
func (n *node) serveUntilDrained(ctx context.Context, listeners []net.Listener) error {
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	failed := make(chan error, 1)
	go func() { failed <- n.server.Serve(serving, listeners...) }()
	select {
	case err := <-failed:
		n.admin.setReady(false)
		return err
	case <-ctx.Done():
	}
	n.admin.setReady(false)
	n.log.Info("draining")
	if n.c.Bool("controlled.shutdown.enable") {
		n.handOver(serving)
	}
	stopServing()
	return <-failed
}

// awaitResumed waits for partitions whose records are in an archive alone, at most so long: who sees the broker ready can read them.
func (n *node) awaitResumed(ctx context.Context, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for ctx.Err() == nil && n.replicas.Resuming() > 0 {
		sleep(ctx, 2*time.Millisecond)
	}
	if left := n.replicas.Resuming(); left > 0 {
		n.log.Warn("partitions wait for their archive", "partitions", left)
	}
}

// newCache holds archived chunks, in memory and, if asked for, on disk below the data directory.
func (n *node) newCache() (*cache.Cache, error) {
	o := cache.Options{MemoryBytes: n.c.Int("archive.cache.memory.bytes"), FillBytes: n.c.Int("archive.cache.memory.bytes"), Registerer: n.reg}
	if disk := n.c.Int("archive.cache.disk.bytes"); disk > 0 {
		o.Dir, o.DiskBytes = filepath.Join(n.c.Dir(), "cache"), disk
	}
	return cache.New(o)
}
