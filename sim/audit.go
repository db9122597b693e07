package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/tier"
)

// moments are the times to which a restore is tried at the end.
type moments struct {
	mu   sync.Mutex
	list []moment // guarded by mu
}

// moment is a time, and what may have been deleted by then, of each partition.
type moment struct {
	ms   int64
	gone map[*part]int64
}

func (h *History) moment() moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := moment{ms: time.Now().UnixMilli(), gone: map[*part]int64{}}
	for _, p := range h.living() {
		if p.topic.deleting {
			continue
		}
		gone := p.maxGone
		if p.topic.expires || p.topic.retainMs > 0 {
			gone = math.MaxInt64
		}
		m.gone[p] = gone
	}
	return m
}

// auditAll looks at the bucket now and then, and remembers moments.
func (w *stage) auditAll(ctx context.Context) {
	rng := w.rand("audit")
	for ctx.Err() == nil {
		pause(ctx, time.Duration(1+rng.IntN(6000))*time.Millisecond)
		w.audit()
		w.moments.mu.Lock()
		past := w.moments.list
		w.moments.list = append(w.moments.list, w.history.moment())
		w.moments.mu.Unlock()
		w.window(ctx, rng, past)
	}
}

// audit checks that every object that a committed manifest lists is there, unless it is doomed, and that nothing local is gone
// that is not archived.
func (w *stage) audit() {
	img, err := w.image()
	if err != nil {
		return // there is no cluster yet
	}
	ctx := context.Background()
	r, err := tier.OpenBucket(ctx, w.bucket, tier.ReaderOptions{})
	if err != nil {
		return // nor an archive
	}
	for _, topics := range []map[manifest.TopicID]*meta.Topic{img.TopicsByID, img.Deleted} {
		for _, t := range topics {
			if t.DeletedMs > 0 && time.Now().UnixMilli() >= t.DeletedMs+w.plan.windowMs {
				continue // it is being collected
			}
			for _, p := range t.Partitions {
				w.auditPartition(ctx, r, t, p)
			}
		}
	}
}

func (w *stage) auditPartition(ctx context.Context, r *tier.Reader, t *meta.Topic, p *meta.Partition) {
	for range 5 {
		if p.Pointer.Manifest == "" {
			return
		}
		err := w.auditManifest(ctx, r, p.Pointer)
		if err == nil {
			return
		}
		// The broker may have moved on meanwhile: only what the record still says counts.
		img, ierr := w.image()
		if ierr != nil {
			return
		}
		now := img.TopicsByID[t.ID]
		if now == nil {
			now = img.Deleted[t.ID]
		}
		if now == nil {
			return // collected
		}
		next := now.Partitions[p.ID.Partition]
		if next.Pointer.Manifest == p.Pointer.Manifest {
			w.violate("nothing that is referenced is missing", fmt.Sprintf("%s-%d (%s): %v", t.Name, p.ID.Partition, t.ID, err))
			return
		}
		p = next
	}
}

func (w *stage) auditManifest(ctx context.Context, r *tier.Reader, ptr meta.Pointer) error {
	m, err := r.Manifest(ctx, ptr.Manifest)
	if err != nil {
		return fmt.Errorf("manifest %s: %w", ptr.Manifest, err)
	}
	if m.Through != ptr.Through || m.N != ptr.N {
		return fmt.Errorf("manifest %s is number %d through %d, the pointer says %d and %d", ptr.Manifest, m.N, m.Through, ptr.N, ptr.Through)
	}
	for e, err := range r.Entries(ctx, m) {
		if err != nil {
			return fmt.Errorf("entries of %s: %w", ptr.Manifest, err)
		}
		if e.State == manifest.Doomed {
			continue
		}
		if _, err := w.bucket.Head(ctx, e.Object); errors.Is(err, objstore.ErrNotFound) {
			return fmt.Errorf("%s lists %s, %s, which is not there", ptr.Manifest, e.Object, e.State)
		}
	}
	return nil
}
