package kvtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/varvelog/varve/meta"
)

// ttlMs is the shortest that etcd can do here.
const ttlMs = 1000

func grant(t *testing.T, kv meta.KV, key string, ttl int64) (meta.LeaseID, int64) {
	t.Helper()
	id, err := kv.Grant(t.Context(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	rev := txn(t, kv, true, nil, meta.Op{Key: key, Value: []byte("leased"), Lease: id})
	if got, _ := get(t, kv, key); got.Lease != id {
		t.Fatalf("lease %d, want %d", got.Lease, id)
	}
	return id, rev
}

func testRevoke(t *testing.T, x *Target, p string) {
	id, rev := grant(t, x.KV, p+"a", 60000)
	txn(t, x.KV, true, nil, meta.Op{Key: p + "b", Lease: id}, meta.Op{Key: p + "c", Lease: id})
	put(t, x.KV, p+"c", "no longer leased")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch := x.KV.Watch(ctx, p, now(t, x.KV))
	if err := x.Other.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b := next(t, ch)
	if len(b.Events) != 2 || !b.Events[0].Deleted || !b.Events[1].Deleted || b.Rev <= rev {
		t.Fatalf("got %+v, want both deletions in one revision", b)
	}
	for key, want := range map[string]bool{"a": false, "b": false, "c": true} {
		if _, ok := get(t, x.KV, p+key); ok != want {
			t.Fatalf("%s is there: %v, want %v", key, ok, want)
		}
	}
	if err := x.Other.Revoke(t.Context(), id); err != nil {
		t.Fatalf("revoke again: %v, want no error", err)
	}
}

func testExpiry(t *testing.T, x *Target, p string) {
	_, rev := grant(t, x.KV, p+"a", ttlMs)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch := x.Other.Watch(ctx, p, rev)
	if b := next(t, ch); !b.Events[0].Deleted {
		t.Fatalf("got %+v, want the deletion", b)
	}
	if _, ok := get(t, x.KV, p+"a"); ok {
		t.Fatal("the key has outlived its lease")
	}
}

func testKeepAlive(t *testing.T, x *Target, p string) {
	// A machine that stands still for longer than a ttl loses its lease, and rightly so: then a longer one is tried.
	for ttl := int64(ttlMs); ; ttl *= 4 {
		id, _ := grant(t, x.KV, p+"a", ttl)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(ttl)*5/2*time.Millisecond)
		err := x.KV.KeepAlive(ctx, id)
		cancel()
		if errors.Is(err, meta.ErrLeaseLost) && ttl < 16*ttlMs {
			t.Logf("a ttl of %d ms is too short here: %v", ttl, err)
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("keepalive: %v, want the context's end", err)
		}
		if _, ok := get(t, x.KV, p+"a"); !ok {
			t.Fatal("a lease that was kept has expired")
		}
		return
	}
}

func testKeepAliveLost(t *testing.T, x *Target, p string) {
	id, _ := grant(t, x.KV, p+"a", ttlMs)
	done := make(chan error, 1)
	go func() { done <- x.KV.KeepAlive(t.Context(), id) }()
	if err := x.Other.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, meta.ErrLeaseLost) {
			t.Fatalf("keepalive: %v, want ErrLeaseLost", err)
		}
	case <-time.After(waitMax):
		t.Fatal("keepalive goes on")
	}
	if err := x.KV.KeepAlive(t.Context(), id); !errors.Is(err, meta.ErrLeaseLost) {
		t.Fatalf("keepalive of a lost lease: %v, want ErrLeaseLost", err)
	}
}

func testBadLease(t *testing.T, x *Target, p string) {
	_, _, err := x.KV.Txn(t.Context(), nil, []meta.Op{{Key: p + "a", Lease: 4711}})
	if !errors.Is(err, meta.ErrLeaseLost) {
		t.Fatalf("put: %v, want ErrLeaseLost", err)
	}
	if _, ok := get(t, x.KV, p+"a"); ok {
		t.Fatal("the key is there")
	}
}
