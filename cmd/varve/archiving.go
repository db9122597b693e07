package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/varvelog/varve/broker/control"
	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/open"
	"github.com/varvelog/varve/tier"
)

// openArchive opens the bucket, makes sure that it is safe and ours, and starts the archive engine. A store that is away at the start
// does not keep the broker from serving what is local once it has been here before; what is wrong for good does.
func (n *node) openArchive(ctx context.Context, spawn func(string, func(context.Context) error)) error {
	address := n.c.String("archive.url")
	if address == "" {
		n.log.Warn("archive.url is empty: nothing is archived, and nothing can be restored")
		return nil
	}
	bucket, err := open.Open(ctx, address, open.Options{Client: n.c.String("archive.s3.client"), Registerer: n.reg})
	if err != nil {
		return fmt.Errorf("archive.url: %w", err)
	}
	info, later, err := n.checkedArchive(ctx, bucket, address)
	if err != nil {
		return err
	}
	if later != nil {
		spawn("archive", later)
	}
	img := n.store.Image()
	chunks, err := n.newCache()
	if err != nil {
		return fmt.Errorf("archive cache: %w", err)
	}
	n.bucket = bucket
	n.foreign = newForeign(n)
	ms := func(key string) time.Duration { return time.Duration(n.c.Int(key)) * time.Millisecond }
	n.archive = tier.New(bucket, info, replica.Pointers{Store: n.store}, chunks, tier.Options{
		Cluster: img.Cluster, Incarnation: img.Incarnation, Broker: n.id, Uploads: int(n.c.Int("archive.upload.threads")), MaxLag: ms("archive.max.lag.ms"),
		RestoreWindow: max(ms("archive.restore.window.ms"), time.Millisecond), SweepInterval: ms("archive.sweep.interval.ms"),
		Foreign: n.foreign.bucket, Lease: n.foreign.lease, Logger: n.log, Registerer: n.reg,
	})
	spawn("archive", func(ctx context.Context) error {
		defer chunks.Close()
		return n.archive.Run(ctx)
	})
	spawn("attached archives", n.foreign.Run)
	n.foreign.settle(ctx, attachedWait)
	archivist := &control.Archivist{
		NodeID: n.id, Store: n.store, Archive: n.archive, Pause: ms("archive.sweep.interval.ms"), Logger: n.log,
		Window: func(t *meta.Topic) int64 { return n.inForce(t).RestoreWindowMs },
	}
	spawn("topic records", archivist.Run)
	spawn("pins", n.sweepPins)
	return nil
}

// firstMarkWait bounds what a start spends on the mark; a store that is away does not keep the broker from serving.
const firstMarkWait = 2 * time.Second

// firstMark writes this broker's mark before it takes a record: a restore asks those that have one up to when all is archived.
func (n *node) firstMark(ctx context.Context) {
	if n.archive == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, firstMarkWait)
	defer cancel()
	if err := n.archive.Mark(ctx); err != nil {
		n.log.Warn("no mark yet: until there is one a restore may not ask for what this broker holds", "err", err)
	}
}

// markAgain writes the mark anew when the broker has been away without ending: it may have been removed, and the broker may soon lead again.
func (n *node) markAgain(ctx context.Context) {
	if n.archive == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, firstMarkWait)
	defer cancel()
	if err := n.archive.Remark(ctx); err != nil {
		n.log.Warn("mark after the registration was replaced", "err", err)
	}
}

// redact leaves out what a URL has beside scheme, host and path, where something private could stand.
func redact(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(unreadable)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// foreign is the archives of other clusters that this one reads, each under a lease of its own that Run keeps.
type foreign struct {
	n       *node
	changed chan struct{}

	mu   sync.Mutex
	open map[string]*attached // guarded by mu; by archive id
}

type attached struct {
	bucket objstore.Bucket
	lease  *tier.Lease
	stop   context.CancelFunc
}

func newForeign(n *node) *foreign {
	f := &foreign{n: n, changed: make(chan struct{}, 1), open: map[string]*attached{}}
	n.store.Subscribe(func(old, next *meta.Image) {
		if len(old.Attached) != len(next.Attached) {
			select {
			case f.changed <- struct{}{}:
			default:
			}
		}
	})
	f.follow(context.Background())
	return f
}

var errNotAttached = errors.New("archive is not attached to this cluster")

func (f *foreign) get(archive string) *attached {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[archive]
}

func (f *foreign) bucket(archive string) (objstore.Bucket, error) {
	if a := f.get(archive); a != nil {
		return a.bucket, nil
	}
	f.follow(context.Background()) // it may have been attached a moment ago
	if a := f.get(archive); a != nil {
		return a.bucket, nil
	}
	return nil, fmt.Errorf("%w: %s", errNotAttached, archive)
}

func (f *foreign) lease(archive string) *tier.Lease {
	if a := f.get(archive); a != nil {
		return a.lease
	}
	return nil
}

// follow opens what the image has and this does not.
func (f *foreign) follow(ctx context.Context) {
	img := f.n.store.Image()
	for id, at := range img.Attached {
		if f.get(id) != nil {
			continue
		}
		b, err := open.Open(ctx, at.URL, open.Options{Client: f.n.c.String("archive.s3.client")})
		if err != nil {
			f.n.log.Error("attached archive", "archive", id, "url", redact(at.URL), "err", err)
			continue
		}
		ttl := time.Duration(at.TTLMs) * time.Millisecond
		lo := f.keepLease(at)
		lo.Cluster, lo.TTL, lo.Logger = img.Cluster, ttl, f.n.log
		a := &attached{bucket: b, lease: tier.NewLease(b, lo)}
		f.mu.Lock()
		f.open[id] = a
		f.mu.Unlock()
	}
}

// Run keeps a lease on each attached archive until ctx ends.
func (f *foreign) Run(ctx context.Context) error {
	var leases sync.WaitGroup
	defer leases.Wait()
	for {
		f.follow(ctx)
		f.mu.Lock()
		for _, a := range f.open {
			if a.stop == nil {
				var lctx context.Context
				lctx, a.stop = context.WithCancel(ctx)
				leases.Go(func() { a.lease.Run(lctx) })
			}
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
		}
	}
}

// attachedWait is how long a start waits for the leases of attached archives, so that what a restore made is readable at once. An
// archive that is away then does not keep the rest from being served.
const attachedWait = 10 * time.Second

// settle waits until each attached archive's lease is live, or for at most the given time.
func (f *foreign) settle(ctx context.Context, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for id := range f.n.store.Image().Attached {
		for ctx.Err() == nil && (f.get(id) == nil || !f.get(id).lease.Live()) {
			sleep(ctx, 2*time.Millisecond)
		}
		if ctx.Err() != nil {
			f.n.log.Warn("no lease on an attached archive yet; its records are not readable until there is one", "archive", id)
		}
	}
}
