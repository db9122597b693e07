package tier

import (
	"container/list"
	"context"
	"sync"
)

// lru keeps decoded objects (footers, groups) within a budget of bytes, and loads each at most once at a time. A load
// runs on the asking goroutine; the others that ask for the same key wait for it, or for the end of their ctx.
type lru[K comparable, V any] struct {
	budget int64

	mu      sync.Mutex
	used    int64
	order   *list.List // of *lruItem[K, V], newest first
	items   map[K]*list.Element
	loading map[K]chan struct{}
}

type lruItem[K comparable, V any] struct {
	key   K
	value V
	size  int64
}

func newLRU[K comparable, V any](budget int64) *lru[K, V] {
	return &lru[K, V]{budget: budget, order: list.New(), items: map[K]*list.Element{}, loading: map[K]chan struct{}{}}
}

// get returns the value of key, loading it if it is not there. A failed load is not remembered: one of the waiting tries
// again with its own context.
func (c *lru[K, V]) get(ctx context.Context, key K, load func(context.Context) (V, int64, error)) (V, error) {
	for {
		c.mu.Lock()
		if el, ok := c.items[key]; ok {
			c.order.MoveToFront(el)
			v := el.Value.(*lruItem[K, V]).value
			c.mu.Unlock()
			return v, nil
		}
		wait, busy := c.loading[key]
		if !busy {
			done := make(chan struct{})
			c.loading[key] = done
			c.mu.Unlock()
			return c.load(ctx, key, done, load)
		}
		c.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			var zero V
			return zero, ctx.Err()
		}
	}
}

func (c *lru[K, V]) load(ctx context.Context, key K, done chan struct{}, load func(context.Context) (V, int64, error)) (v V, err error) {
	var size int64
	loaded := false
	defer func() {
		c.mu.Lock()
		delete(c.loading, key)
		if loaded {
			c.add(key, v, size)
		}
		c.mu.Unlock()
		close(done)
	}()
	v, size, err = load(ctx)
	loaded = err == nil
	return v, err
}

// add stores a value and makes room. One larger than the budget is not kept. Callers hold mu.
func (c *lru[K, V]) add(key K, v V, size int64) {
	if size > c.budget {
		return
	}
	c.items[key] = c.order.PushFront(&lruItem[K, V]{key, v, size})
	c.used += size
	for c.used > c.budget {
		el := c.order.Back()
		it := el.Value.(*lruItem[K, V])
		c.order.Remove(el)
		delete(c.items, it.key)
		c.used -= it.size
	}
}
