// Package mem is an object store in memory, for tests and simulation: it works inside testing/synctest bubbles, starts
// no goroutines and never blocks. It keeps every promise of objstore.Bucket and loses everything with the process.
package mem

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/objstore"
)

// Options of a bucket. The zero value is ready to use.
type Options struct {
	// Now is the store's clock, which stamps Date and Modified. Default time.Now.
	Now func() time.Time
	// PageKeys is how many objects List takes at a time; what is written meanwhile shows from the next page on. Default 1000.
	PageKeys int
}

// Bucket is an objstore.Bucket in memory.
type Bucket struct {
	pageKeys int

	mu      sync.Mutex
	now     func() time.Time   // guarded by mu
	objects map[string]*object // guarded by mu; the objects are immutable
	keys    []string           // guarded by mu; sorted
	version uint64             // guarded by mu
}

type object struct {
	data []byte
	info objstore.Info // without Date
}

// New returns an empty bucket.
func New(o Options) *Bucket {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.PageKeys <= 0 {
		o.PageKeys = 1000
	}
	return &Bucket{now: o.Now, pageKeys: o.PageKeys, objects: make(map[string]*object)}
}

// SetClock replaces the store's clock, as a store with a wrong or jumping clock would have it.
func (b *Bucket) SetClock(now func() time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = now
}

// Put implements objstore.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body objstore.Body, cond objstore.Cond) (objstore.Info, error) {
	if err := check(ctx, "put", key); err != nil {
		return objstore.Info{}, err
	}
	data, err := body.Bytes()
	if err != nil {
		return objstore.Info{}, fmt.Errorf("put %s: %w", key, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.objects[key]
	switch {
	case cond.IfNoneMatch && old != nil:
		return objstore.Info{}, fmt.Errorf("put %s: %w", key, objstore.ErrExists)
	case cond.IfMatch != "" && (old == nil || old.info.ETag != cond.IfMatch):
		return objstore.Info{}, fmt.Errorf("put %s: %w", key, objstore.ErrPrecondition)
	case old == nil:
		b.insert(key)
	}
	b.version++
	now := b.now()
	o := &object{data: data, info: objstore.Info{
		Key: key, Size: int64(len(data)), ETag: fmt.Sprintf("%q", fmt.Sprintf("%016x", b.version)), Modified: now,
	}}
	b.objects[key] = o
	return o.at(now), nil
}

// Get implements objstore.Bucket.
func (b *Bucket) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := check(ctx, "get", key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, fmt.Errorf("get %s: negative offset %d", key, off)
	}
	o, now := b.look(key)
	if o == nil {
		return nil, fmt.Errorf("get %s: %w", key, objstore.ErrNotFound)
	}
	from := min(off, int64(len(o.data)))
	end := int64(len(o.data))
	if n >= 0 && n < end-from {
		end = from + n
	}
	return objstore.Exactly(io.NopCloser(bytes.NewReader(o.data[from:end])), end-from, o.at(now)), nil
}

// Head implements objstore.Bucket.
func (b *Bucket) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := check(ctx, "head", key); err != nil {
		return objstore.Info{}, err
	}
	o, now := b.look(key)
	if o == nil {
		return objstore.Info{}, fmt.Errorf("head %s: %w", key, objstore.ErrNotFound)
	}
	return o.at(now), nil
}

// List implements objstore.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for {
			if err := ctx.Err(); err != nil {
				yield(objstore.Info{}, fmt.Errorf("list %s: %w: %w", prefix, objstore.ErrUnavailable, err))
				return
			}
			page, more := b.page(prefix, after)
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
				after = info.Key
			}
			if !more {
				return
			}
		}
	}
}

func (b *Bucket) page(prefix, after string) (page []objstore.Info, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	i := sort.Search(len(b.keys), func(i int) bool { return b.keys[i] >= prefix && b.keys[i] > after })
	for ; i < len(b.keys) && strings.HasPrefix(b.keys[i], prefix); i++ {
		if len(page) == b.pageKeys {
			return page, true
		}
		page = append(page, b.objects[b.keys[i]].at(now))
	}
	return page, false
}

// Delete implements objstore.Bucket.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := check(ctx, "delete", key); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		if b.objects[key] == nil {
			continue
		}
		delete(b.objects, key)
		i := sort.SearchStrings(b.keys, key)
		b.keys = append(b.keys[:i], b.keys[i+1:]...)
	}
	return nil
}

// Corrupt changes stored bytes behind the store's back, as a decaying disk would: f gets a copy of the object's bytes
// and returns what is there from now on. ETag and times stay. It reports whether the object exists.
func (b *Bucket) Corrupt(key string, f func([]byte) []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.objects[key]
	if old == nil {
		return false
	}
	o := &object{data: f(bytes.Clone(old.data)), info: old.info}
	o.info.Size = int64(len(o.data))
	b.objects[key] = o
	return true
}

func (b *Bucket) look(key string) (*object, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects[key], b.now()
}

// insert is called with mu held.
func (b *Bucket) insert(key string) {
	i := sort.SearchStrings(b.keys, key)
	b.keys = append(b.keys, "")
	copy(b.keys[i+1:], b.keys[i:])
	b.keys[i] = key
}

func (o *object) at(date time.Time) objstore.Info {
	info := o.info
	info.Date = date
	return info
}

func check(ctx context.Context, verb, key string) error {
	if err := objstore.CheckKey(key); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w: %w", verb, key, objstore.ErrUnavailable, err)
	}
	return nil
}
