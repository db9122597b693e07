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

// waitMax bounds what should come at once, on a loaded machine.
const waitMax = 20 * time.Second

func next(t *testing.T, ch <-chan meta.WatchBatch) meta.WatchBatch {
	t.Helper()
	for {
		select {
		case b, ok := <-ch:
			if !ok {
				t.Fatal("watch ended")
			}
			if b.Err == nil && len(b.Events) == 0 {
				continue // progress, at any time
			}
			return b
		case <-time.After(waitMax):
			t.Fatal("watch is silent")
		}
	}
}

func now(t *testing.T, kv meta.KV) int64 {
	t.Helper()
	_, rev, err := kv.Range(t.Context(), "/kvtest/none/")
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func testWatchOrder(t *testing.T, x *Target, p string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch := x.KV.Watch(ctx, p, now(t, x.KV))
	const n = 300
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := range n {
			ops := []meta.Op{{Key: p + "a", Value: []byte(strconv.Itoa(i))}, {Key: p + "b" + strconv.Itoa(i), Value: []byte("b")}}
			if i%10 == 9 {
				ops = append(ops, meta.Op{Key: p + "b" + strconv.Itoa(i-1), Delete: true})
			}
			if ok, _, err := x.Other.Txn(t.Context(), nil, ops); err != nil || !ok {
				t.Errorf("txn = %v, %v", ok, err)
			}
			// Not of this watch.
			if ok, _, err := x.Other.Txn(t.Context(), nil, []meta.Op{{Key: p[:len(p)-1] + "x"}}); err != nil || !ok {
				t.Errorf("txn = %v, %v", ok, err)
			}
		}
	})
	last := int64(0)
	for i := range n {
		b := next(t, ch)
		want := 2
		if i%10 == 9 {
			want = 3
		}
		if b.Err != nil || b.Rev <= last || len(b.Events) != want {
			t.Fatalf("batch %d: revision %d after %d, %d events, %v, want %d", i, b.Rev, last, len(b.Events), b.Err, want)
		}
		last = b.Rev
		seen := map[string]meta.Event{}
		for _, e := range b.Events {
			if e.ModRev != b.Rev {
				t.Fatalf("event of %s at %d in a batch of %d", e.Key, e.ModRev, b.Rev)
			}
			seen[e.Key] = e
		}
		if string(seen[p+"a"].Value) != strconv.Itoa(i) {
			t.Fatalf("batch %d has a=%s", i, seen[p+"a"].Value)
		}
		if i%10 == 9 && !seen[p+"b"+strconv.Itoa(i-1)].Deleted {
			t.Fatalf("batch %d lacks the deletion", i)
		}
	}
}

func testWatchPast(t *testing.T, x *Target, p string) {
	put(t, x.KV, p+"a", "0")
	from := put(t, x.KV, p+"a", "1")
	r2 := put(t, x.KV, p+"a", "2")
	r3 := txn(t, x.KV, true, nil, meta.Op{Key: p + "a", Delete: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch := x.Other.Watch(ctx, p, from)
	if b := next(t, ch); b.Rev != r2 || string(b.Events[0].Value) != "2" || b.Events[0].Deleted {
		t.Fatalf("first = %+v, want a=2 at %d", b, r2)
	}
	if b := next(t, ch); b.Rev != r3 || !b.Events[0].Deleted {
		t.Fatalf("second = %+v, want the deletion at %d", b, r3)
	}
}

func testWatchCompacted(t *testing.T, x *Target, p string) {
	from := put(t, x.KV, p+"a", "0")
	for i := range 5 {
		put(t, x.KV, p+"a", strconv.Itoa(i))
	}
	rev := put(t, x.KV, p+"a", "last")
	if err := x.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch := x.KV.Watch(ctx, p, from)
	if b := next(t, ch); !errors.Is(b.Err, meta.ErrCompacted) {
		t.Fatalf("got %+v, want ErrCompacted", b)
	}
	if _, ok := <-ch; ok {
		t.Fatal("the channel is open after an error")
	}
	// What is there can still be read, and watched from now.
	pairs, at, err := x.KV.Range(t.Context(), p)
	if err != nil || len(pairs) != 1 || string(pairs[0].Value) != "last" {
		t.Fatalf("range = %v, %v", pairs, err)
	}
	ch = x.KV.Watch(ctx, p, at)
	r := put(t, x.KV, p+"a", "more")
	if b := next(t, ch); b.Rev != r {
		t.Fatalf("got %+v, want revision %d", b, r)
	}
}

func testWatchCancel(t *testing.T, x *Target, p string) {
	ctx, cancel := context.WithCancel(t.Context())
	ch := x.KV.Watch(ctx, p, now(t, x.KV))
	put(t, x.KV, p+"a", "1")
	next(t, ch)
	cancel()
	deadline := time.After(waitMax)
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("the channel is open after its context has ended")
		}
	}
}

func testProgress(t *testing.T, x *Target, p string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asker, ok := x.KV.(meta.Progresser)
	if !ok {
		t.Fatal("is no Progresser")
	}
	ch := x.KV.Watch(ctx, p, now(t, x.KV))
	put(t, x.KV, p+"a", "1")
	next(t, ch)
	rev := put(t, x.KV, "/kvtest/elsewhere", "1")
	deadline := time.Now().Add(waitMax)
	for time.Now().Before(deadline) {
		if err := asker.Progress(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case b := <-ch:
			if b.Err != nil || len(b.Events) != 0 {
				t.Fatalf("got %+v, want progress", b)
			}
			if b.Rev >= rev {
				return
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("no progress to %d", rev)
}

func testReconnect(t *testing.T, x *Target, p string) {
	if x.Cut == nil {
		return // the in-process client has nothing to lose
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch := x.KV.Watch(ctx, p, now(t, x.KV))
	put(t, x.KV, p+"a", "before")
	next(t, ch)
	x.Cut()
	short, stop := context.WithTimeout(ctx, x.Bound)
	if _, _, err := x.KV.Get(short, p+"a"); err == nil {
		t.Error("get during the interruption has an answer")
	}
	stop()
	x.Heal()
	var want []int64
	deadline := time.Now().Add(waitMax)
	for i := 0; len(want) < 5; i++ {
		ok, rev, err := x.KV.Txn(ctx, nil, []meta.Op{{Key: p + "a", Value: fmt.Appendf(nil, "%d", i)}})
		switch {
		case err == nil && ok:
			want = append(want, rev)
		case time.Now().After(deadline):
			t.Fatalf("no write after the interruption: %v", err)
		}
	}
	for i := 0; i < len(want); {
		b := next(t, ch)
		if b.Err != nil || b.Rev > want[i] {
			t.Fatalf("got %d, %v, want revision %d", b.Rev, b.Err, want[i])
		}
		if b.Rev == want[i] {
			i++
		}
	}
}
