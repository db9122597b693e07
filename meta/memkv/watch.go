package memkv

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/varvelog/varve/meta"
)

// Watch is meta.KV's. A watch reads the shared history at its own pace: one that falls behind by more than the history
// holds gets ErrCompacted.
func (k *KV) Watch(ctx context.Context, prefix string, from int64) <-chan meta.WatchBatch {
	out := make(chan meta.WatchBatch, 16)
	w := &watch{k: k, prefix: prefix, from: from, asked: k.s.askedNow(), out: out}
	go w.run(ctx)
	return out
}

type watch struct {
	k      *KV
	prefix string
	from   int64 // everything up to and with it is delivered
	asked  int64 // Progress calls answered
	out    chan<- meta.WatchBatch
}

func (w *watch) run(ctx context.Context) {
	defer close(w.out)
	for {
		down, closed, turned := w.k.state()
		if closed {
			w.send(ctx, meta.WatchBatch{Rev: w.from, Err: fmt.Errorf("watch: %w", meta.ErrUnavailable)})
			return
		}
		var more <-chan struct{}
		if !down {
			var batches []meta.WatchBatch
			batches, more = w.k.s.after(w)
			for _, b := range batches {
				if !w.send(ctx, b) || b.Err != nil {
					return
				}
				w.from = b.Rev
			}
			if len(batches) > 0 {
				continue
			}
		}
		select {
		case <-more:
		case <-turned:
		case <-ctx.Done():
			return
		}
	}
}

func (w *watch) send(ctx context.Context, b meta.WatchBatch) bool {
	select {
	case w.out <- b:
		return true
	case <-ctx.Done():
		return false
	}
}

// after is what the watch has not seen, at most some hundred revisions, or a channel that closes when there is more.
func (s *store) after(w *watch) ([]meta.WatchBatch, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return []meta.WatchBatch{{Rev: w.from, Err: errClosed("watch")}}, nil
	}
	if w.from < s.compacted {
		return []meta.WatchBatch{{Rev: w.from, Err: fmt.Errorf("watch from revision %d: %w", w.from, meta.ErrCompacted)}}, nil
	}
	var out []meta.WatchBatch
	i := sort.Search(len(s.history), func(i int) bool { return s.history[i].Rev > w.from })
	for ; i < len(s.history) && len(out) < 256; i++ {
		h := s.history[i]
		var events []meta.Event
		for _, e := range h.Events {
			if strings.HasPrefix(e.Key, w.prefix) {
				e.Pair = clone(e.Pair)
				events = append(events, e)
			}
		}
		if len(events) > 0 {
			out = append(out, meta.WatchBatch{Rev: h.Rev, Events: events})
		}
	}
	if i == len(s.history) {
		if len(out) == 0 && w.asked < s.asked {
			w.asked = s.asked
			out = append(out, meta.WatchBatch{Rev: s.rev})
		} else if len(out) == 0 {
			w.from = max(w.from, s.rev)
		}
	}
	return out, s.turn
}

func (s *store) askedNow() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func compare(a, b string) int { return strings.Compare(a, b) }
