package objstore

import (
	"context"
	"time"
)

// Sweeper is implemented by buckets that leave something behind when a writer dies in the middle of a Put.
type Sweeper interface {
	// SweepUploads aborts the multipart uploads of keys below prefix that were begun before the given instant of the
	// store's clock and are not in progress in this process, and returns how many. A caller takes an instant that is
	// older than any upload of another living process below prefix can be: an aborted upload fails, it loses nothing.
	SweepUploads(ctx context.Context, prefix string, begunBefore time.Time) (int, error)
}

// SweepUploads sweeps b, or the bucket below its decorators. A bucket without leftovers has nothing to sweep.
func SweepUploads(ctx context.Context, b Bucket, prefix string, begunBefore time.Time) (int, error) {
	for {
		if s, ok := b.(Sweeper); ok {
			return s.SweepUploads(ctx, prefix, begunBefore)
		}
		u, ok := b.(interface{ Unwrap() Bucket })
		if !ok {
			return 0, nil
		}
		b = u.Unwrap()
	}
}
