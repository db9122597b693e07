package tier

import (
	"context"
	"sync"

	"github.com/varvelog/varve/manifest"
)

const (
	aheadWorkers  = 2
	readersKnown  = 16 // sequential readers remembered per partition
	windowInitial = 4 << 20
)

// sequence recognises sequential readers of a partition by where their last read ended.
type sequence struct {
	mu   sync.Mutex
	list []position // guarded by mu; newest first, at most readersKnown
}

type position struct {
	next   int64 // where the reader goes on
	window int64 // bytes to have ahead of it
	unread int64 // bytes asked for ahead that it has not reached
}

// note records a read [off, next) of size bytes, and returns how many bytes to fetch from next on: 0 for a reader that is
// not sequential, or that has enough ahead of it. The window doubles with each request for more, up to limit.
func (s *sequence) note(off, next, size, limit int64) int64 {
	if limit <= 0 || next <= off {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pos := position{next: next}
	want := int64(0)
	for i, old := range s.list {
		if old.next != off {
			continue
		}
		s.list = append(s.list[:i], s.list[i+1:]...)
		pos.window, pos.unread = old.window, max(old.unread-size, 0)
		if pos.unread <= pos.window/2 {
			pos.window = min(max(2*pos.window, windowInitial), limit)
			pos.unread = pos.window
			want = pos.window
		}
		break
	}
	if len(s.list) >= readersKnown {
		s.list = s.list[:readersKnown-1]
	}
	s.list = append(s.list, position{})
	copy(s.list[1:], s.list)
	s.list[0] = pos
	return want
}

// aheadJob asks for bytes of chunks from offset on.
type aheadJob struct {
	man   *manifest.Manifest
	from  int64
	bytes int64
}

// readAhead starts fetching what a sequential reader, that has just read d, will want next. It never blocks: with too much to do it is
// skipped.
func (a *Archive) readAhead(seq *sequence, m *manifest.Manifest, off int64, d Data) {
	if a.objects.cache == nil || d.size == 0 {
		return
	}
	want := seq.note(off, d.Next, int64(d.size), a.o.ReadAheadBytes)
	if want == 0 || d.Next >= m.Through {
		return
	}
	select {
	case a.ahead <- aheadJob{m, d.Next, want}:
	default:
		a.m.ahead.WithLabelValues("skipped").Inc()
	}
}

func (a *Archive) runAhead(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-a.ahead:
			if err := a.fetchAhead(ctx, j); err != nil && ctx.Err() == nil {
				a.o.Logger.Debug("read ahead", "offset", j.from, "err", err)
			}
		}
	}
}

// fetchAhead prefetches chunks over segment borders until the bytes are used up or the cache's budget is.
func (a *Archive) fetchAhead(ctx context.Context, j aheadJob) error {
	for e, err := range a.objects.live(ctx, j.man, j.from, nil) {
		if err != nil || j.bytes <= 0 {
			return err
		}
		f, err := a.objects.footer(ctx, e)
		if err != nil {
			return err
		}
		for i := f.ChunkAt(max(j.from, e.Base)); i < len(f.Chunks) && f.Chunks[i].First < e.End && j.bytes > 0; i++ {
			c := f.Chunks[i]
			outcome := "skipped"
			if a.objects.cache.Prefetch(a.objects.chunkKey(e, i), c.Size, a.objects.fill(e.Archive, e.Object, int32(i), c)) {
				outcome = "started"
			}
			a.m.ahead.WithLabelValues(outcome).Inc()
			j.bytes -= c.Size
		}
	}
	return nil
}
