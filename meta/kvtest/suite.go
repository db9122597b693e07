// Package kvtest is the conformance suite of meta.KV: what meta relies on, run on every implementation.
package kvtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/meta"
)

// Target is a store under test.
type Target struct {
	KV, Other meta.KV // two clients of it, which may be the same
	// Compact forgets the history up to and with rev.
	Compact func(ctx context.Context, rev int64) error
	// Cut and Heal interrupt the first client's way to the store, without loss; nil: that cannot be done.
	Cut, Heal func()
	// Kill ends the store. After it requests must be ErrUnavailable within Bound.
	Kill  func()
	Bound time.Duration
}

// Run runs the suite; the target is of no use afterwards.
func Run(t *testing.T, x *Target) {
	for _, c := range []struct {
		name string
		f    func(*testing.T, *Target, string)
	}{
		{"a put pair is read with its revisions by every client", testPutGet},
		{"range is in key order and ends with the prefix", testRange},
		{"range of more than 10000 keys is complete and at one revision", testBigRange},
		{"a transaction is all or nothing by its guards", testGuards},
		{"a transaction has at most 128 ops and no key twice", testLimits},
		{"a transaction of deletes of missing keys makes no revision", testEmptyTxn},
		{"concurrent guarded counters lose no count", testCounters},
		{"watch yields each revision once and in order", testWatchOrder},
		{"watch from a past revision yields what came after it", testWatchPast},
		{"watch of a compacted revision is ErrCompacted", testWatchCompacted},
		{"watch ends with its context", testWatchCancel},
		{"progress tells a watch that nothing is missing", testProgress},
		{"revoke deletes the keys of the lease at once", testRevoke},
		{"an expired lease deletes its keys", testExpiry},
		{"keepalive keeps a lease past its ttl and ends with its context", testKeepAlive},
		{"keepalive tells that the lease was revoked", testKeepAliveLost},
		{"a put under an unknown lease is ErrLeaseLost", testBadLease},
		{"an ended context is an error", testCancelled},
		{"watch goes on after an interruption without loss", testReconnect},
		{"requests to a dead store are ErrUnavailable within the bound", testDead},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(t, x, "/kvtest/"+strconv.Itoa(len(c.name))+c.name[:6]+"/") })
	}
}

func put(t *testing.T, kv meta.KV, key, value string) int64 {
	t.Helper()
	return txn(t, kv, true, nil, meta.Op{Key: key, Value: []byte(value)})
}

func txn(t *testing.T, kv meta.KV, want bool, guards []meta.Guard, ops ...meta.Op) int64 {
	t.Helper()
	ok, rev, err := kv.Txn(t.Context(), guards, ops)
	if err != nil || ok != want {
		t.Fatalf("txn = %v, %d, %v, want %v", ok, rev, err, want)
	}
	return rev
}

func get(t *testing.T, kv meta.KV, key string) (meta.Pair, bool) {
	t.Helper()
	p, ok, err := kv.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return p, ok
}

func testPutGet(t *testing.T, x *Target, p string) {
	if _, ok := get(t, x.KV, p+"a"); ok {
		t.Fatal("a key that was never put is there")
	}
	r1 := put(t, x.KV, p+"a", "1")
	r2 := put(t, x.KV, p+"a", "2")
	if r2 <= r1 {
		t.Fatalf("revisions %d, %d do not rise", r1, r2)
	}
	for range 20 { // linearizable: each write is seen by the next read of another client
		rev := put(t, x.KV, p+"b", "x")
		if got, _ := get(t, x.Other, p+"b"); got.ModRev != rev {
			t.Fatalf("read after write: revision %d, want %d", got.ModRev, rev)
		}
	}
	got, ok := get(t, x.Other, p+"a")
	if !ok || string(got.Value) != "2" || got.CreateRev != r1 || got.ModRev != r2 || got.Key != p+"a" || got.Lease != 0 {
		t.Fatalf("got %+v, want value 2, created %d, modified %d", got, r1, r2)
	}
	txn(t, x.KV, true, nil, meta.Op{Key: p + "a", Delete: true})
	if _, ok := get(t, x.Other, p+"a"); ok {
		t.Fatal("deleted key is there")
	}
	r3 := put(t, x.KV, p+"a", "")
	if got, ok := get(t, x.KV, p+"a"); !ok || got.CreateRev != r3 || len(got.Value) != 0 {
		t.Fatalf("created again: %+v, want created %d, empty", got, r3)
	}
}

func testRange(t *testing.T, x *Target, p string) {
	for _, k := range []string{"b/2", "b/1", "b", "b/10", "c", "a"} {
		put(t, x.KV, p+k, k)
	}
	got, rev, err := x.KV.Range(t.Context(), p+"b/")
	if err != nil || rev == 0 {
		t.Fatalf("range: revision %d, %v", rev, err)
	}
	want := []string{"b/1", "b/10", "b/2"}
	if len(got) != len(want) {
		t.Fatalf("range has %d pairs, want %v", len(got), want)
	}
	for i, w := range want {
		if got[i].Key != p+w || string(got[i].Value) != w {
			t.Fatalf("pair %d = %s, want %s", i, got[i].Key, w)
		}
	}
	got[0].Value[0] = 'X' // ours now
	if again, _ := get(t, x.KV, p+"b/1"); string(again.Value) != "b/1" {
		t.Fatal("returned bytes are shared with the store")
	}
	if none, _, err := x.KV.Range(t.Context(), p+"zz"); err != nil || len(none) != 0 {
		t.Fatalf("range of nothing = %v, %v", none, err)
	}
}

func testBigRange(t *testing.T, x *Target, p string) {
	const n = 10500
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			var ops []meta.Op
			for i := w; i < n; i += 4 {
				ops = append(ops, meta.Op{Key: fmt.Sprintf("%s%06d", p, i), Value: []byte(strconv.Itoa(i))})
				if len(ops) == meta.MaxOps || i+4 >= n {
					ok, _, err := x.KV.Txn(t.Context(), nil, ops)
					for tries := 0; errors.Is(err, meta.ErrUnavailable) && tries < 5; tries++ { // writing it twice changes nothing
						ok, _, err = x.KV.Txn(t.Context(), nil, ops)
					}
					if err != nil || !ok {
						t.Errorf("txn = %v, %v", ok, err)
					}
					ops = nil
				}
			}
		})
	}
	wg.Wait()
	pairs, rev, err := x.KV.Range(t.Context(), p)
	if err != nil || len(pairs) != n {
		t.Fatalf("range = %d pairs, %v, want %d", len(pairs), err, n)
	}
	for i, kv := range pairs {
		if string(kv.Value) != strconv.Itoa(i) || kv.ModRev > rev {
			t.Fatalf("pair %d = %s=%s at %d, range at %d", i, kv.Key, kv.Value, kv.ModRev, rev)
		}
	}
}

func testGuards(t *testing.T, x *Target, p string) {
	absent := []meta.Guard{{Key: p + "a"}}
	rev := txn(t, x.KV, true, absent, meta.Op{Key: p + "a", Value: []byte("1")})
	txn(t, x.KV, false, absent, meta.Op{Key: p + "a", Value: []byte("2")}, meta.Op{Key: p + "b", Value: []byte("2")})
	txn(t, x.KV, false, []meta.Guard{{Key: p + "a", ModRev: rev}, {Key: p + "b", ModRev: rev}}, meta.Op{Key: p + "b"})
	if _, ok := get(t, x.KV, p+"b"); ok {
		t.Fatal("an op of a refused transaction was applied")
	}
	next := txn(t, x.Other, true, []meta.Guard{{Key: p + "a", ModRev: rev}, {Key: p + "b"}},
		meta.Op{Key: p + "a", Delete: true}, meta.Op{Key: p + "b", Value: []byte("3")})
	if got, _ := get(t, x.KV, p+"b"); got.ModRev != next {
		t.Fatalf("b at %d, want the transaction's %d", got.ModRev, next)
	}
	txn(t, x.KV, false, []meta.Guard{{Key: p + "a", ModRev: rev}}, meta.Op{Key: p + "c"})
}

func testLimits(t *testing.T, x *Target, p string) {
	ops := make([]meta.Op, meta.MaxOps)
	guards := make([]meta.Guard, meta.MaxOps)
	for i := range ops {
		ops[i] = meta.Op{Key: p + strconv.Itoa(i), Value: []byte("v")}
		guards[i] = meta.Guard{Key: p + strconv.Itoa(i)}
	}
	txn(t, x.KV, true, guards, ops...)
	if _, _, err := x.KV.Txn(t.Context(), nil, append(ops, meta.Op{Key: p + "x"})); !errors.Is(err, meta.ErrTooManyOps) {
		t.Fatalf("129 ops: %v, want ErrTooManyOps", err)
	}
	_, _, err := x.KV.Txn(t.Context(), nil, []meta.Op{{Key: p + "x"}, {Key: p + "x"}})
	if !errors.Is(err, meta.ErrInvalid) || errors.Is(err, meta.ErrUnavailable) {
		t.Fatalf("one key twice: %v, want ErrInvalid", err)
	}
	if _, ok := get(t, x.KV, p+"x"); ok {
		t.Fatal("a refused transaction was applied")
	}
}

func testEmptyTxn(t *testing.T, x *Target, p string) {
	rev := put(t, x.KV, p+"a", "1")
	if got := txn(t, x.KV, true, nil, meta.Op{Key: p + "none", Delete: true}); got != rev {
		t.Fatalf("revision %d after deleting nothing, want %d", got, rev)
	}
}

func testCounters(t *testing.T, x *Target, p string) {
	const workers, each = 8, 20
	put(t, x.KV, p+"n", "0")
	var wg sync.WaitGroup
	for w := range workers {
		kv := x.KV
		if w%2 == 1 {
			kv = x.Other
		}
		wg.Go(func() {
			for done := 0; done < each; {
				cur, _, err := kv.Get(t.Context(), p+"n")
				if err != nil {
					t.Errorf("get: %v", err)
					return
				}
				n, _ := strconv.Atoi(string(cur.Value))
				ok, _, err := kv.Txn(t.Context(), []meta.Guard{{Key: cur.Key, ModRev: cur.ModRev}},
					[]meta.Op{{Key: cur.Key, Value: []byte(strconv.Itoa(n + 1))}})
				if err != nil {
					t.Errorf("txn: %v", err)
					return
				}
				if ok {
					done++
				}
			}
		})
	}
	wg.Wait()
	if got, _ := get(t, x.KV, p+"n"); string(got.Value) != strconv.Itoa(workers*each) {
		t.Fatalf("counted %s, want %d", got.Value, workers*each)
	}
}

func testCancelled(t *testing.T, x *Target, p string) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v, want context.Canceled", what, err)
		}
	}
	_, _, err := x.KV.Get(ctx, p+"a")
	check("get", err)
	_, _, err = x.KV.Range(ctx, p)
	check("range", err)
	_, _, err = x.KV.Txn(ctx, nil, []meta.Op{{Key: p + "a"}})
	check("txn", err)
	_, err = x.KV.Grant(ctx, 1000)
	check("grant", err)
	if _, ok := get(t, x.KV, p+"a"); ok {
		t.Fatal("a cancelled transaction was applied")
	}
}

func testDead(t *testing.T, x *Target, p string) {
	put(t, x.KV, p+"a", "1")
	x.Kill()
	for i, kv := range []meta.KV{x.KV, x.Other} {
		for what, f := range map[string]func() error{
			"get":   func() error { _, _, err := kv.Get(t.Context(), p+"a"); return err },
			"range": func() error { _, _, err := kv.Range(t.Context(), p); return err },
			"txn":   func() error { _, _, err := kv.Txn(t.Context(), nil, []meta.Op{{Key: p + "a"}}); return err },
			"grant": func() error { _, err := kv.Grant(t.Context(), 1000); return err },
		} {
			t.Run(fmt.Sprint(what, " of client ", i), func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				if err := f(); !errors.Is(err, meta.ErrUnavailable) || time.Since(began) > x.Bound {
					t.Errorf("%v after %v, want ErrUnavailable within %v", err, time.Since(began), x.Bound)
				}
			})
		}
	}
}
