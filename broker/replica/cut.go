package replica

import "context"

// cutters bounds the logs that are cut back at once.
const cutters = 8

// cut takes an answer that says that a log has other records than the leader's, beside the lane: cutting a log costs syncs of the disk,
// one after the other for each partition, and the acknowledgements of all others that this lane fetches would wait for them. The
// partition is fetched again when it is done.
func (l *lane) cut(ctx context.Context, pl *pull, a *FetchedPart) {
	part := *a
	part.Records, part.Appended = nil, nil // they do not outlive the answer
	l.mu.Lock()
	pl.cutting = true
	l.mu.Unlock()
	l.cuts.Go(func() {
		select {
		case l.m.cutters <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err := pl.take(l.m, &part)
		<-l.m.cutters
		l.done(pl, err)
		l.mu.Lock()
		pl.cutting = false
		l.mu.Unlock()
		select {
		case l.signal <- struct{}{}:
		default:
		}
	})
}
