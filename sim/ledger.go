package sim

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// ledger stands before the bucket itself and remembers what was written under each key: objects never change. What was deleted may come
// back as something else, when a write that had been given up lands after all: it is deleted again.
type ledger struct {
	objstore.Bucket
	violate func(rule, detail string)

	mu      sync.Mutex
	written map[string]content // guarded by mu
}

// content names bytes.
type content struct {
	size   int64
	crc32c uint32
}

func newLedger(b objstore.Bucket, violate func(rule, detail string)) *ledger {
	return &ledger{Bucket: b, violate: violate, written: map[string]content{}}
}

// Put implements objstore.Bucket.
func (l *ledger) Put(ctx context.Context, key string, b objstore.Body, c objstore.Cond) (objstore.Info, error) {
	info, err := l.Bucket.Put(ctx, key, b, c)
	if err != nil || mutable(key) {
		return info, err
	}
	now := content{b.Size, b.CRC32C}
	l.mu.Lock()
	was, again := l.written[key]
	l.written[key] = now
	l.mu.Unlock()
	if again && was != now {
		l.violate("objects never change", fmt.Sprintf("%s: %d bytes were written over %d others", key, now.size, was.size))
	}
	return info, nil
}

// Delete implements objstore.Bucket.
func (l *ledger) Delete(ctx context.Context, keys ...string) error {
	l.mu.Lock()
	for _, k := range keys {
		delete(l.written, k)
	}
	l.mu.Unlock()
	return l.Bucket.Delete(ctx, keys...)
}

// mutable says that an object is one of those that are written again and again.
func mutable(key string) bool {
	return strings.HasPrefix(key, manifest.LeasePrefix) || strings.HasPrefix(key, objstore.ProbePrefix) || strings.Contains(key, "/mark/")
}
