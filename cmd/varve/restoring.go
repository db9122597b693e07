package main

import (
	"context"
	"errors"
	"time"

	"github.com/varvelog/varve/broker"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/open"
	"github.com/varvelog/varve/recovery"
	"github.com/varvelog/varve/tier"
)

// restore carries out one topic's order of `varve restore --into`; it is broker.Options.Restore.
func (n *node) restore(ctx context.Context, topic, plan string, validateOnly bool) (broker.Restored, error) {
	if n.bucket == nil {
		return broker.Restored{}, errors.New("this broker has no archive; set archive.url")
	}
	own, err := tier.OpenBucket(ctx, n.bucket, tier.ReaderOptions{})
	if err != nil {
		return broker.Restored{}, err
	}
	a := recovery.Attacher{
		Store: n.store, Bucket: n.bucket, Info: own.Info(), Incarnation: own.Incarnation(),
		Open: func(ctx context.Context, url string) (objstore.Bucket, error) {
			return open.Open(ctx, url, open.Options{Client: n.c.String("archive.s3.client")})
		},
	}
	made, err := a.Attach(ctx, topic, []byte(plan), validateOnly)
	if err != nil {
		return broker.Restored{}, err
	}
	return broker.Restored{ID: made.ID, Replication: made.Replication, Configs: made.Configs, Pointers: made.Pointers, FirstEpochs: made.FirstEpochs}, nil
}

// keepLease is how an attached archive is held: under the lease that the restore has taken, for good, and if that has lapsed under a new
// one, which is noted for the next start.
func (f *foreign) keepLease(at *meta.Attached) tier.LeaseOptions {
	return tier.LeaseOptions{ID: at.LeaseID, Keep: true, Taken: func(ctx context.Context, id string) error {
		next := *at
		next.LeaseID = id
		return f.n.store.Attach(ctx, next)
	}}
}

// sweepPins takes back, now and then, the pins of restored topics that are no more.
func (n *node) sweepPins(ctx context.Context) error {
	every := time.Duration(n.c.Int("archive.sweep.interval.ms")) * time.Millisecond
	s := recovery.PinSweeper{Store: n.store}
	for {
		sleep(ctx, every)
		if ctx.Err() != nil {
			return nil
		}
		removed, err := s.Sweep(ctx)
		if err != nil {
			n.log.Warn("sweep pins", "err", err)
		} else if removed > 0 {
			n.log.Info("pins of collected topics are taken back", "pins", removed)
		}
	}
}
