package sim

import (
	"context"
	"io/fs"
	"strings"
	"sync/atomic"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/tier"
)

// Mutant is a planted bug. The zero value is none.
type Mutant struct {
	Name    string
	Plan    func(*plan)
	Disk    func(vfs.FS) vfs.FS
	Bucket  func(objstore.Bucket) objstore.Bucket
	Pointer func(tier.Pointers) tier.Pointers
}

func (m Mutant) adjust(p *plan) {
	if m.Plan != nil {
		m.Plan(p)
	}
}

func (m Mutant) disk(w *World) vfs.FS {
	if m.Disk != nil {
		return m.Disk(w.files)
	}
	return w.files
}

func (m Mutant) bucket(w *World) objstore.Bucket {
	if m.Bucket != nil {
		return m.Bucket(w.store)
	}
	return w.store
}

func (m Mutant) pointers(_ *World, p tier.Pointers) tier.Pointers {
	if m.Pointer != nil {
		return m.Pointer(p)
	}
	return p
}

// Mutants are all planted bugs, each at a seam that the broker does not see behind.
func Mutants() []Mutant {
	crashing := func(p *plan) { p.crashes = true }
	machines := func(p *plan) { p.crashes, p.machines = true, true }
	deleting := func(p *plan) { p.topics = true } // two write manifests in one epoch: its leader, and who collects a deleted topic
	return []Mutant{
		{Name: "the store acknowledges a segment and drops it", Bucket: onPut(drop)},
		{Name: "the store keeps a segment with a flipped bit", Bucket: onPut(flip)},
		{Name: "the store loses a segment on any delete", Bucket: func(b objstore.Bucket) objstore.Bucket { return &overDeleter{Bucket: b} }},
		{Name: "a conditional create overwrites", Plan: deleting, Bucket: func(b objstore.Bucket) objstore.Bucket { return overwriter{b} }},
		{Name: "a commit of a pointer is reported and not made", Plan: crashing, Pointer: func(p tier.Pointers) tier.Pointers { return forgetful{p} }},
		{Name: "a write to a log is acknowledged and lost", Disk: onFile(".log", func() fileBug { return &lostWrite{} })},
		{Name: "a byte of a log changes", Disk: onFile(".log", func() fileBug { return &badByte{} })},
		{Name: "sync does nothing", Plan: machines, Disk: onFile("", func() fileBug { return noSync{} })},
	}
}

type putBug func(objstore.Body) (objstore.Body, bool)

// drop stores nothing.
func drop(b objstore.Body) (objstore.Body, bool) { return b, false }

// flip changes one bit in the middle.
func flip(b objstore.Body) (objstore.Body, bool) {
	p, err := b.Bytes()
	if err != nil {
		return b, true
	}
	p[len(p)/3] ^= 1
	return objstore.BytesBody(p), true
}

// onPut applies the bug to each eighth segment object.
func onPut(bug putBug) func(objstore.Bucket) objstore.Bucket {
	return func(b objstore.Bucket) objstore.Bucket { return &badPut{Bucket: b, bug: bug} }
}

type badPut struct {
	objstore.Bucket
	bug putBug
	n   atomic.Int64
}

func (b *badPut) Put(ctx context.Context, key string, body objstore.Body, c objstore.Cond) (objstore.Info, error) {
	if _, ok := manifest.ParseSegmentKey(key); ok && b.n.Add(1)%8 == 0 {
		changed, store := b.bug(body)
		if !store {
			return objstore.Info{Key: key, Size: body.Size}, nil
		}
		body = changed
	}
	return b.Bucket.Put(ctx, key, body, c)
}

// overDeleter deletes the next key too.
type overDeleter struct{ objstore.Bucket }

func (b *overDeleter) Delete(ctx context.Context, keys ...string) error {
	for _, k := range keys {
		for info, err := range b.List(ctx, k[:strings.LastIndexByte(k, '/')+1], k) {
			if err == nil {
				b.Bucket.Delete(ctx, info.Key)
			}
			break
		}
	}
	return b.Bucket.Delete(ctx, keys...)
}

// overwriter ignores conditions.
type overwriter struct{ objstore.Bucket }

func (b overwriter) Put(ctx context.Context, key string, body objstore.Body, _ objstore.Cond) (objstore.Info, error) {
	return b.Bucket.Put(ctx, key, body, objstore.Cond{})
}

// forgetful commits nothing.
type forgetful struct{ tier.Pointers }

func (forgetful) Commit(_ context.Context, _ manifest.PartitionID, old, next tier.Pointer) (tier.Pointer, error) {
	next.Guard, next.LeaderEpoch, next.Incarnation, next.Pins = old.Guard, old.LeaderEpoch, old.Incarnation, old.Pins
	return next, nil
}

// fileBug stands between a file and its writer.
type fileBug interface {
	write(f vfs.File, p []byte) (int, error)
	sync(f vfs.File) error
}

// onFile applies a bug to files whose names have the suffix.
func onFile(suffix string, bug func() fileBug) func(vfs.FS) vfs.FS {
	return func(below vfs.FS) vfs.FS { return badDisk{FS: below, suffix: suffix, bug: bug()} }
}

type badDisk struct {
	vfs.FS
	suffix string
	bug    fileBug
}

func (d badDisk) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := d.FS.OpenFile(name, flag, perm)
	if err != nil || !strings.HasSuffix(name, d.suffix) {
		return f, err
	}
	return badFile{File: f, bug: d.bug}, nil
}

type badFile struct {
	vfs.File
	bug fileBug
}

func (f badFile) Write(p []byte) (int, error) { return f.bug.write(f.File, p) }
func (f badFile) Sync() error                 { return f.bug.sync(f.File) }

func (f badFile) WriteAt(p []byte, off int64) (int, error) {
	return f.bug.write(at{f.File, off}, p)
}

// at is a file that writes at a place.
type at struct {
	vfs.File
	off int64
}

func (f at) Write(p []byte) (int, error) { return f.WriteAt(p, f.off) }

// lostWrite writes zeros now and then.
type lostWrite struct{ n atomic.Int64 }

func (l *lostWrite) write(f vfs.File, p []byte) (int, error) {
	if l.n.Add(1)%40 == 0 {
		return f.Write(make([]byte, len(p)))
	}
	return f.Write(p)
}
func (*lostWrite) sync(f vfs.File) error { return f.Sync() }

// badByte changes a byte now and then.
type badByte struct{ n atomic.Int64 }

func (b *badByte) write(f vfs.File, p []byte) (int, error) {
	if b.n.Add(1)%40 == 0 && len(p) > 0 {
		p = append([]byte(nil), p...)
		p[len(p)-1] ^= 0x10
	}
	return f.Write(p)
}
func (*badByte) sync(f vfs.File) error { return f.Sync() }

// noSync leaves everything to luck.
type noSync struct{}

func (noSync) write(f vfs.File, p []byte) (int, error) { return f.Write(p) }
func (noSync) sync(vfs.File) error                     { return nil }
