package meta

import (
	"context"
	"errors"
	"sync"
)

func isConflict(err error) bool { return errors.Is(err, ErrConflict) }

// inBatches calls f with batches of at most batchMax items, putWorkers at a time, until one fails; it returns the
// first error when all have ended.
func inBatches[T any](ctx context.Context, items []T, f func(context.Context, []T) error) error {
	if len(items) <= batchMax {
		return f(ctx, items)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	work := make(chan []T)
	for range min(putWorkers, (len(items)+batchMax-1)/batchMax) {
		wg.Go(func() {
			for b := range work {
				if ctx.Err() != nil {
					continue
				}
				if err := f(ctx, b); err != nil {
					cancel(err)
				}
			}
		})
	}
	for len(items) > 0 {
		n := min(batchMax, len(items))
		work <- items[:n]
		items = items[n:]
	}
	close(work)
	wg.Wait()
	return context.Cause(ctx)
}
