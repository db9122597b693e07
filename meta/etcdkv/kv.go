// Package etcdkv is meta.KV on etcd: a client of external endpoints, and an embedded server whose own client makes no
// detour through sockets. It is the only importer of etcd, and the only place where its errors are classified.
package etcdkv

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/varvelog/varve/meta"
)

// Options of a client.
type Options struct {
	Endpoints      []string      // host:port, with or without http:// or https://; at least one
	TLS            *tls.Config   // nil: plain
	User, Password string        // "": no authentication
	RequestTimeout time.Duration // after which a request is ErrUnavailable; 0: 5 s
	Logger         *slog.Logger  // nil: slog.Default()
}

const defaultRequestTimeout = 5 * time.Second

// KV is a client of etcd. All methods may be called concurrently.
type KV struct {
	c       *clientv3.Client
	timeout time.Duration

	closeOnce sync.Once
	closed    chan struct{}
	closeErr  error
	watches   sync.WaitGroup
}

var _ meta.KV = (*KV)(nil)
var _ meta.Progresser = (*KV)(nil)

// redial is how an endpoint that is away is tried again. gRPC's own way waits up to two minutes from one try to the next, and for a try that
// meets silence up to twenty seconds: a broker would find its etcd only so long after it is back.
var redial = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
	MinConnectTimeout: 3 * time.Second,
}

// Dial makes a client of external endpoints. It does not wait for a connection: requests do, until their timeout.
func Dial(o Options) (*KV, error) {
	if len(o.Endpoints) == 0 {
		return nil, fmt.Errorf("etcd client: %w: no endpoints", meta.ErrInvalid)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints:            o.Endpoints,
		TLS:                  o.TLS,
		Username:             o.User,
		Password:             o.Password,
		DialTimeout:          2 * time.Second,
		DialKeepAliveTime:    5 * time.Second,
		DialKeepAliveTimeout: 2 * time.Second,
		DialOptions:          []grpc.DialOption{grpc.WithConnectParams(redial)},
		Logger:               newZap(o.Logger, nil, new(atomic.Bool)),
	})
	if err != nil {
		return nil, fmt.Errorf("etcd client of %v: %w", o.Endpoints, err)
	}
	return newKV(c, o.RequestTimeout), nil
}

func newKV(c *clientv3.Client, timeout time.Duration) *KV {
	if timeout <= 0 {
		timeout = defaultRequestTimeout
	}
	return &KV{c: c, timeout: timeout, closed: make(chan struct{})}
}

// request bounds one request's time and ends it when the client closes.
func (k *KV) request(ctx context.Context) (context.Context, context.CancelFunc, error) {
	select {
	case <-k.closed:
		return nil, nil, fmt.Errorf("etcd client is closed: %w", meta.ErrUnavailable)
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	rctx, cancel := context.WithTimeout(ctx, k.timeout)
	return rctx, cancel, nil
}

// pageKeys is the keys of one Range request.
const pageKeys = 4000

// Range is meta.KV's. It reads in pages at one revision; if that is compacted meanwhile it starts over.
func (k *KV) Range(ctx context.Context, prefix string) ([]meta.Pair, int64, error) {
	for try := 0; ; try++ {
		pairs, rev, err := k.rangeOnce(ctx, prefix)
		if err == nil {
			return pairs, rev, nil
		}
		if !isCompacted(err) || try == 3 {
			return nil, 0, fmt.Errorf("range %s: %w", prefix, classify(ctx, err))
		}
	}
}

func (k *KV) rangeOnce(ctx context.Context, prefix string) ([]meta.Pair, int64, error) {
	var out []meta.Pair
	from, end, rev := prefix, clientv3.GetPrefixRangeEnd(prefix), int64(0)
	if prefix == "" {
		from = "\x00"
	}
	for {
		rctx, cancel, err := k.request(ctx)
		if err != nil {
			return nil, 0, err
		}
		r, err := k.c.Get(rctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageKeys), clientv3.WithRev(rev),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
		cancel()
		if err != nil {
			return nil, 0, err
		}
		if rev == 0 {
			rev = r.Header.GetRevision()
			out = make([]meta.Pair, 0, min(r.Count, 1<<20))
		}
		for _, kv := range r.Kvs {
			out = append(out, pair(kv))
		}
		if !r.More || len(r.Kvs) == 0 {
			return out, rev, nil
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

// Get is meta.KV's.
func (k *KV) Get(ctx context.Context, key string) (meta.Pair, bool, error) {
	rctx, cancel, err := k.request(ctx)
	if err != nil {
		return meta.Pair{}, false, fmt.Errorf("get %s: %w", key, err)
	}
	defer cancel()
	r, err := k.c.Get(rctx, key)
	if err != nil {
		return meta.Pair{}, false, fmt.Errorf("get %s: %w", key, classify(ctx, err))
	}
	if len(r.Kvs) == 0 {
		return meta.Pair{}, false, nil
	}
	return pair(r.Kvs[0]), true, nil
}

// Txn is meta.KV's.
func (k *KV) Txn(ctx context.Context, guards []meta.Guard, ops []meta.Op) (bool, int64, error) {
	if len(guards) > meta.MaxOps || len(ops) > meta.MaxOps {
		return false, 0, fmt.Errorf("txn of %d guards, %d ops: %w", len(guards), len(ops), meta.ErrTooManyOps)
	}
	cmps := make([]clientv3.Cmp, len(guards))
	for i, g := range guards {
		cmps[i] = clientv3.Compare(clientv3.ModRevision(g.Key), "=", g.ModRev)
	}
	then := make([]clientv3.Op, len(ops))
	for i, o := range ops {
		switch {
		case o.Key == "":
			return false, 0, fmt.Errorf("txn: empty key: %w", meta.ErrInvalid)
		case o.Delete:
			then[i] = clientv3.OpDelete(o.Key)
		default:
			then[i] = clientv3.OpPut(o.Key, string(o.Value), clientv3.WithLease(clientv3.LeaseID(o.Lease)))
		}
	}
	rctx, cancel, err := k.request(ctx)
	if err != nil {
		return false, 0, fmt.Errorf("txn: %w", err)
	}
	defer cancel()
	r, err := k.c.Txn(rctx).If(cmps...).Then(then...).Commit()
	if err != nil {
		return false, 0, fmt.Errorf("txn: %w", classifyWrite(ctx, err))
	}
	return r.Succeeded, r.Header.GetRevision(), nil
}

// Grant is meta.KV's: TTLs are whole seconds, rounded up, and at least 1.5 election timeouts of etcd.
func (k *KV) Grant(ctx context.Context, ttlMs int64) (meta.LeaseID, error) {
	if ttlMs <= 0 {
		return 0, fmt.Errorf("grant lease of %d ms: %w", ttlMs, meta.ErrInvalid)
	}
	rctx, cancel, err := k.request(ctx)
	if err != nil {
		return 0, fmt.Errorf("grant lease: %w", err)
	}
	defer cancel()
	r, err := k.c.Grant(rctx, (ttlMs+999)/1000)
	if err != nil {
		return 0, fmt.Errorf("grant lease: %w", classifyWrite(ctx, err))
	}
	return meta.LeaseID(r.ID), nil
}

// KeepAlive is meta.KV's. Cut off from etcd it gives up when the lease must have expired.
func (k *KV) KeepAlive(ctx context.Context, id meta.LeaseID) error {
	kctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch, err := k.c.KeepAlive(kctx, clientv3.LeaseID(id))
	if err != nil {
		return fmt.Errorf("keep lease %x: %w", int64(id), classify(ctx, err))
	}
	for {
		select {
		case _, ok := <-ch:
			if ok {
				continue
			}
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("keep lease %x: %w", int64(id), err)
			}
			return fmt.Errorf("keep lease %x: %w", int64(id), meta.ErrLeaseLost)
		case <-ctx.Done():
			return fmt.Errorf("keep lease %x: %w", int64(id), ctx.Err())
		case <-k.closed:
			return fmt.Errorf("keep lease %x: etcd client is closed: %w", int64(id), meta.ErrLeaseLost)
		}
	}
}

// Revoke is meta.KV's.
func (k *KV) Revoke(ctx context.Context, id meta.LeaseID) error {
	rctx, cancel, err := k.request(ctx)
	if err != nil {
		return fmt.Errorf("revoke lease %x: %w", int64(id), err)
	}
	defer cancel()
	_, err = k.c.Revoke(rctx, clientv3.LeaseID(id))
	if err = classifyWrite(ctx, err); err != nil && !isLeaseLost(err) {
		return fmt.Errorf("revoke lease %x: %w", int64(id), err)
	}
	return nil
}

// Compact forgets the history up to and with rev, which etcd does by itself too.
func (k *KV) Compact(ctx context.Context, rev int64) error {
	rctx, cancel, err := k.request(ctx)
	if err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	defer cancel()
	if _, err := k.c.Compact(rctx, rev); err != nil {
		return fmt.Errorf("compact: %w", classifyWrite(ctx, err))
	}
	return nil
}

// Close ends watches and requests and frees the connection.
func (k *KV) Close() error {
	k.closeOnce.Do(func() {
		close(k.closed)
		k.watches.Wait()
		if err := k.c.Close(); err != nil && k.c.Ctx().Err() == nil {
			k.closeErr = fmt.Errorf("close etcd client: %w", err)
		}
	})
	return k.closeErr
}
