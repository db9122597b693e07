package etcdkv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/varvelog/varve/meta"
)

// watchBuffer is the batches that wait for a reader; etcd's client buffers more behind them.
const watchBuffer = 64

// Watch is meta.KV's. The client resumes by itself after a lost connection.
func (k *KV) Watch(ctx context.Context, prefix string, from int64) <-chan meta.WatchBatch {
	out := make(chan meta.WatchBatch, watchBuffer)
	k.watches.Add(1)
	go k.watch(ctx, prefix, from, out)
	return out
}

func (k *KV) watch(ctx context.Context, prefix string, from int64, out chan<- meta.WatchBatch) {
	defer k.watches.Done()
	defer close(out)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	send := func(b meta.WatchBatch) bool {
		select {
		case out <- b:
			return b.Err == nil
		case <-k.closed:
		case <-ctx.Done():
		}
		return false
	}
	ch := k.stream(ctx, prefix, from)
	for {
		var r clientv3.WatchResponse
		var ok bool
		select {
		case r, ok = <-ch:
		case <-k.closed:
			ok = false
		}
		switch {
		case !ok:
			if ctx.Err() == nil {
				final(out, meta.WatchBatch{Rev: from, Err: fmt.Errorf("watch ended: %w", meta.ErrUnavailable)})
			}
			return
		case r.CompactRevision != 0:
			send(meta.WatchBatch{Rev: from, Err: fmt.Errorf("watch from revision %d: %w", from, meta.ErrCompacted)})
			return
		case r.Canceled && errors.Is(classify(ctx, r.Err()), meta.ErrUnavailable):
			// A member that stops or has lost its cluster ends its watches: gone on with from the next one.
			select {
			case <-time.After(watchPause):
				ch = k.stream(ctx, prefix, from)
			case <-k.closed:
			case <-ctx.Done():
			}
			continue
		case r.Err() != nil:
			send(meta.WatchBatch{Rev: from, Err: fmt.Errorf("watch: %w", classify(ctx, r.Err()))})
			return
		case r.IsProgressNotify():
			if rev := r.Header.GetRevision(); rev >= from {
				from = rev
				if !send(meta.WatchBatch{Rev: rev}) {
					return
				}
			}
			continue
		}
		for _, b := range split(r.Events) {
			from = b.Rev
			if !send(b) {
				return
			}
		}
	}
}

// watchPause is between a watch that a member has ended and the next.
const watchPause = 100 * time.Millisecond

// stream is etcd's watch of what comes after revision from. With a leader required, a member cut off from its cluster ends it.
func (k *KV) stream(ctx context.Context, prefix string, from int64) clientv3.WatchChan {
	return k.c.Watch(clientv3.WithRequireLeader(ctx), prefix, clientv3.WithPrefix(), clientv3.WithRev(from+1), clientv3.WithProgressNotify())
}

// final leaves a last word if there is room for it; a reader that sees only the closed channel knows enough.
func final(out chan<- meta.WatchBatch, b meta.WatchBatch) {
	select {
	case out <- b:
	default:
	}
}

// split makes one batch of each revision: a response may hold several whole ones.
func split(events []*clientv3.Event) []meta.WatchBatch {
	var out []meta.WatchBatch
	for _, e := range events {
		rev := e.Kv.ModRevision
		if n := len(out); n == 0 || out[n-1].Rev != rev {
			out = append(out, meta.WatchBatch{Rev: rev})
		}
		b := &out[len(out)-1]
		b.Events = append(b.Events, meta.Event{Pair: pair(e.Kv), Deleted: e.Type == clientv3.EventTypeDelete})
	}
	return out
}

// Progress is meta.Progresser's.
func (k *KV) Progress(ctx context.Context) error {
	rctx, cancel, err := k.request(ctx)
	if err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	defer cancel()
	// The request goes to the stream of the same metadata as the watches'.
	if err := k.c.RequestProgress(clientv3.WithRequireLeader(rctx)); err != nil {
		return fmt.Errorf("progress: %w", classify(ctx, err))
	}
	return nil
}

func pair(kv *mvccpb.KeyValue) meta.Pair {
	return meta.Pair{
		Key: string(kv.Key), Value: kv.Value, CreateRev: kv.CreateRevision, ModRev: kv.ModRevision,
		Lease: meta.LeaseID(kv.Lease),
	}
}
