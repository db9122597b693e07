// Package fault is an object store that misbehaves as told: calls that fail, writes whose answer is lost, writes that
// land later, throttling, latency, bodies that break off, flipped bits, listings that lag.
//
// Without rules it changes nothing. It does not check what goes through it. Rules are looked at in order, and the first
// that matches a call and fires decides; its randomness is a seeded generator, so a single-threaded caller sees the same
// faults again for the same seed.
package fault

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/objstore"
)

// Op is a method of objstore.Bucket.
type Op string

// The operations; Any matches all.
const (
	Any    Op = ""
	Put    Op = "put"
	Get    Op = "get"
	Head   Op = "head"
	List   Op = "list"
	Delete Op = "delete"
)

// Effect is what happens to a call that a rule hits.
type Effect int

const (
	// Slow only waits for Rule.Latency; every other effect does so first.
	Slow Effect = iota
	// Fail returns Rule.Err, ErrUnavailable if that is nil, without touching the store.
	Fail
	// Throttle is Fail with ErrThrottled.
	Throttle
	// Lost does the call and then returns Rule.Err, ErrUnavailable if that is nil: the outcome is unknown to the caller.
	Lost
	// Late returns ErrUnavailable at once and does the Put or Delete after Rule.Delay: a request that was still under way
	// when its caller gave up. Other operations fail.
	Late
	// Truncate breaks off the body of a Get after Rule.At bytes with ErrUnavailable. Other operations fail.
	Truncate
	// Flip inverts bit 0 of byte Rule.At of what a Get returns. Other operations are left alone.
	Flip
)

// Rule says which calls go wrong and how.
type Rule struct {
	Op     Op
	Prefix string  // of the key, the listed prefix, or any of the deleted keys
	From   int     // the first matching call that it hits, counted from 1; 0 is 1
	Count  int     // how many it hits from then on; 0 is all
	Chance float64 // of hitting, in (0, 1]; 0 is 1

	Effect  Effect
	Err     error
	Latency time.Duration
	Delay   time.Duration
	At      int64

	seen, hits int // guarded by Bucket.mu
}

// Options of the decorator. The zero value does nothing.
type Options struct {
	Seed  uint64
	Rules []Rule
	// ListDelay is for how long a listing does not show a new object and still shows a deleted one.
	ListDelay time.Duration
}

// Bucket is the decorator.
type Bucket struct {
	below     objstore.Bucket
	listDelay time.Duration
	late      sync.WaitGroup

	mu     sync.Mutex
	rand   *rand.Rand       // guarded by mu
	rules  []*Rule          // guarded by mu
	calls  map[Op]int       // guarded by mu
	recent map[string]*echo // guarded by mu; what listings do not know yet
}

// New returns b with the faults of o.
func New(b objstore.Bucket, o Options) *Bucket {
	f := &Bucket{
		below: b, listDelay: o.ListDelay,
		rand:  rand.New(rand.NewPCG(o.Seed, 0x9e3779b97f4a7c15)),
		calls: make(map[Op]int), recent: make(map[string]*echo),
	}
	f.SetRules(o.Rules...)
	return f
}

// SetRules replaces the rules; their counts begin anew.
func (f *Bucket) SetRules(rules ...Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
	for _, r := range rules {
		r.seen, r.hits = 0, 0
		f.rules = append(f.rules, &r)
	}
}

// Calls returns how many calls of an operation came in, failed ones too; Any counts all.
func (f *Bucket) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op != Any {
		return f.calls[op]
	}
	n := 0
	for _, c := range f.calls {
		n += c
	}
	return n
}

// Wait returns when every Late call has landed.
func (f *Bucket) Wait() { f.late.Wait() }

// Unwrap returns the bucket below.
func (f *Bucket) Unwrap() objstore.Bucket { return f.below }

// decide counts the call and returns the rule that hits it.
func (f *Bucket) decide(op Op, keys ...string) (Rule, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	for _, r := range f.rules {
		if r.hit(op, keys, f.rand) {
			return *r, true
		}
	}
	return Rule{}, false
}

func (r *Rule) hit(op Op, keys []string, rnd *rand.Rand) bool {
	if r.Op != Any && r.Op != op {
		return false
	}
	match := r.Prefix == ""
	for _, key := range keys {
		match = match || strings.HasPrefix(key, r.Prefix)
	}
	if !match {
		return false
	}
	r.seen++
	if r.seen < r.From || r.Count > 0 && r.hits >= r.Count {
		return false
	}
	if r.Chance > 0 && rnd.Float64() >= r.Chance {
		return false
	}
	r.hits++
	return true
}

// before waits, and returns the error of a call that never reaches the store.
func (f *Bucket) before(ctx context.Context, op Op, keys ...string) (Rule, error) {
	r, hit := f.decide(op, keys...)
	if !hit {
		return r, nil
	}
	if r.Latency > 0 {
		t := time.NewTimer(r.Latency)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return r, fmt.Errorf("%s %s: %w: %w", op, first(keys), objstore.ErrUnavailable, ctx.Err())
		}
	}
	writes := op == Put || op == Delete
	switch {
	case r.Effect == Throttle:
		return r, r.fail(op, keys, objstore.ErrThrottled)
	case r.Effect == Fail, r.Effect == Late && !writes, r.Effect == Truncate && op != Get:
		return r, r.fail(op, keys, objstore.ErrUnavailable)
	}
	return r, nil
}

// after returns the error of a call that has reached the store.
func (r *Rule) after(op Op, keys []string, err error) error {
	if r.Effect == Lost {
		return r.fail(op, keys, objstore.ErrUnavailable)
	}
	return err
}

func (r *Rule) fail(op Op, keys []string, class error) error {
	if r.Err != nil {
		class = r.Err
	}
	return fmt.Errorf("%s %s: injected: %w", op, first(keys), class)
}

func first(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}

// landLater does a write when its caller has long given up.
func (f *Bucket) landLater(d time.Duration, write func()) {
	f.late.Add(1)
	time.AfterFunc(d, func() {
		defer f.late.Done()
		write()
	})
}

// Put implements objstore.Bucket.
func (f *Bucket) Put(ctx context.Context, key string, body objstore.Body, cond objstore.Cond) (objstore.Info, error) {
	r, err := f.before(ctx, Put, key)
	if err != nil {
		return objstore.Info{}, err
	}
	if r.Effect == Late {
		data, err := body.Bytes() // the caller may reuse its buffer as soon as it has the error
		if err != nil {
			return objstore.Info{}, err
		}
		f.landLater(r.Delay, func() { _, _ = f.put(context.WithoutCancel(ctx), key, objstore.BytesBody(data), cond) })
		return objstore.Info{}, r.fail(Put, []string{key}, objstore.ErrUnavailable)
	}
	info, err := f.put(ctx, key, body, cond)
	if err := r.after(Put, []string{key}, err); err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

func (f *Bucket) put(ctx context.Context, key string, body objstore.Body, cond objstore.Cond) (objstore.Info, error) {
	replaced := false
	if f.listDelay > 0 && !cond.IfNoneMatch {
		_, err := f.below.Head(ctx, key)
		replaced = err == nil // listings know the key already
	}
	info, err := f.below.Put(ctx, key, body, cond)
	if err == nil && !replaced {
		f.noteWrite(key, info)
	}
	return info, err
}

// Get implements objstore.Bucket.
func (f *Bucket) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, err := f.before(ctx, Get, key)
	if err != nil {
		return nil, err
	}
	rc, err := f.below.Get(ctx, key, off, n)
	if err := r.after(Get, []string{key}, err); err != nil {
		if rc != nil {
			rc.Close()
		}
		return nil, err
	}
	if r.Effect == Truncate || r.Effect == Flip {
		return &badBody{ReadCloser: rc, rule: r, key: key}, nil
	}
	return rc, nil
}

// Head implements objstore.Bucket.
func (f *Bucket) Head(ctx context.Context, key string) (objstore.Info, error) {
	r, err := f.before(ctx, Head, key)
	if err != nil {
		return objstore.Info{}, err
	}
	info, err := f.below.Head(ctx, key)
	if err := r.after(Head, []string{key}, err); err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

// List implements objstore.Bucket. A listing that is hit by Lost fails after its last object.
func (f *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		r, err := f.before(ctx, List, prefix)
		if err != nil {
			yield(objstore.Info{}, err)
			return
		}
		for info, err := range f.lagging(f.below.List(ctx, prefix, after), prefix, after) {
			if !yield(info, err) || err != nil {
				return
			}
		}
		if err := r.after(List, []string{prefix}, nil); err != nil {
			yield(objstore.Info{}, err)
		}
	}
}

// Delete implements objstore.Bucket.
func (f *Bucket) Delete(ctx context.Context, keys ...string) error {
	r, err := f.before(ctx, Delete, keys...)
	if err != nil {
		return err
	}
	if r.Effect == Late {
		keys := append([]string(nil), keys...)
		f.landLater(r.Delay, func() { _ = f.remove(context.WithoutCancel(ctx), keys) })
		return r.fail(Delete, keys, objstore.ErrUnavailable)
	}
	return r.after(Delete, keys, f.remove(ctx, keys))
}

func (f *Bucket) remove(ctx context.Context, keys []string) error {
	f.noteDelete(ctx, keys)
	return f.below.Delete(ctx, keys...)
}
