package budget_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/budget"
	"github.com/varvelog/varve/objstore/mem"
)

// meter counts what is in flight.
type meter struct {
	objstore.Bucket
	now, most           atomic.Int64
	nowBytes, mostBytes atomic.Int64
}

func (m *meter) Put(ctx context.Context, key string, b objstore.Body, c objstore.Cond) (objstore.Info, error) {
	m.most.Store(max(m.most.Load(), m.now.Add(1)))
	m.mostBytes.Store(max(m.mostBytes.Load(), m.nowBytes.Add(b.Size)))
	time.Sleep(time.Second)
	m.now.Add(-1)
	m.nowBytes.Add(-b.Size)
	return m.Bucket.Put(ctx, key, b, c)
}

func TestRequestsAndBytesInFlightAreBounded(t *testing.T) {
	for _, c := range []struct {
		o     budget.Options
		most  int64
		bytes int64
	}{
		{budget.Options{Requests: 3}, 3, 3000},
		{budget.Options{Bytes: 5500}, 5, 5000},
		{budget.Options{Bytes: 500}, 1, 1000}, // larger than the budget: alone
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &meter{Bucket: mem.New(mem.Options{})}
			b := budget.New(m, c.o)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					if _, err := b.Put(t.Context(), fmt.Sprint(i), objstore.BytesBody(make([]byte, 1000)), objstore.Cond{}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if m.most.Load() != c.most || m.mostBytes.Load() != c.bytes {
				t.Fatalf("%+v: %d requests and %d bytes at once", c.o, m.most.Load(), m.mostBytes.Load())
			}
		})
	}
}

func TestAnOpenBodyHoldsItsShareUntilClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(mem.New(mem.Options{}), budget.Options{Requests: 1})
		if _, err := b.Put(t.Context(), "k", objstore.BytesBody([]byte("x")), objstore.Cond{}); err != nil {
			t.Fatal(err)
		}
		rc, err := b.Get(t.Context(), "k", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := b.Head(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("head beside an open body: %v", err)
		}
		rc.Close()
		rc.Close()
		for range 2 {
			if _, err := b.Head(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestARefusedGetGivesItsShareBack(t *testing.T) {
	b := budget.New(mem.New(mem.Options{}), budget.Options{Requests: 1, Bytes: 10})
	for range 3 {
		if _, err := b.Get(t.Context(), "none", 0, 5); !errors.Is(err, objstore.ErrNotFound) {
			t.Fatal(err)
		}
	}
}
