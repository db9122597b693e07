package recovery

import (
	"context"
	"fmt"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/tier"
)

// DefaultLeaseTTL is how long a restored cluster may stay stopped, from the restore or from its last renewal, before its
// source may delete what it refers to.
const DefaultLeaseTTL = 24 * time.Hour

// takeLease creates a lease in an archive. Nothing of it may have been listed before (PROTOCOLS 2.5).
func takeLease(ctx context.Context, b objstore.Bucket, archive, url, cluster string, ttl time.Duration) (leaseState, error) {
	l := tier.NewLease(b, tier.LeaseOptions{Cluster: cluster, TTL: ttl, Keep: true})
	if err := l.Acquire(ctx); err != nil {
		return leaseState{}, fmt.Errorf("archive %s at %s: %w", archive, url, err)
	}
	return leaseState{archive, url, l.ID()}, nil
}

// dropLeases gives leases back, as far as possible: they would expire by themselves.
func dropLeases(ctx context.Context, open Opener, leases []leaseState) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, l := range leases {
		b, err := open(ctx, l.URL)
		if err == nil {
			err = b.Delete(ctx, manifest.LeaseKey(l.ID))
		}
		if err != nil {
			return fmt.Errorf("give back lease %s: %w", l.ID, err)
		}
	}
	return nil
}
