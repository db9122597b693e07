// Package file is an object store in a directory: the embedded default of varve. A key is the path of a file below it.
//
// Creation with If-None-Match is race-free between processes, and so is replacement with If-Match; an object that Put
// has returned survives a power cut, and no reader ever sees half of one. The directory may be shared by processes of
// one machine; over NFS and the like nothing is promised. It calls the operating system directly, since hard links and
// file locks are what its promises rest on.
//
// What a crash leaves: files below .varve-tmp, which the next New removes once no process holds them.
package file

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/varvelog/varve/objstore"
)

const (
	reserved = ".varve-" // no segment of a key begins so
	tmpDir   = ".varve-tmp"
	lockName = ".varve-tmp/lock"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Bucket is an objstore.Bucket in a directory. Its Date is the clock of this machine.
type Bucket struct {
	dir  string
	root *os.Root // no name, and no symbolic link inside, leads out of it

	buffers sync.Pool // of *[]byte, copyBytes long
}

const copyBytes = 256 << 10

// New opens the directory, makes it if it is missing, and removes what crashed writers left.
func New(dir string) (*Bucket, error) {
	if dir == "" {
		return nil, errors.New("open object directory: no path given")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, classify("open object directory", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, classify("open object directory", dir, err)
	}
	b := &Bucket{dir: dir, root: root}
	b.buffers.New = func() any { p := make([]byte, copyBytes); return &p }
	if err := root.Mkdir(tmpDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		root.Close()
		return nil, classify("open object directory", dir, err)
	}
	if err := b.sweepTemp(); err != nil {
		root.Close()
		return nil, classify("sweep object directory", dir, err)
	}
	return b, nil
}

// Close frees the directory's handle. Readers that are open stay usable.
func (b *Bucket) Close() error { return b.root.Close() }

// Put implements objstore.Bucket. The order is what durability rests on:
//  1. write a temporary file, checking length and CRC-32C;
//  2. sync it;
//  3. link it to its name, which fails if the name exists, or, under the lock of the directory, check ETag and rename;
//  4. sync the directories that have new entries, innermost first.
//
// A crash before 3 leaves the temporary file, one after 3 the object, whole; only after 4 has it returned.
func (b *Bucket) Put(ctx context.Context, key string, body objstore.Body, cond objstore.Cond) (objstore.Info, error) {
	if err := check(ctx, "put", key); err != nil {
		return objstore.Info{}, err
	}
	if cond.IfNoneMatch {
		// Losers need not write: it is only a short cut, link decides.
		if _, err := b.root.Lstat(key); err == nil {
			return objstore.Info{}, fmt.Errorf("put %s: %w", key, objstore.ErrExists)
		}
	}
	t, err := b.writeTemp(ctx, body)
	if err != nil {
		return objstore.Info{}, classify("put", key, err)
	}
	defer t.discard()
	commit := b.replace
	if cond.IfNoneMatch {
		commit = b.create
	}
	info, err := commit(t, key, cond)
	if err != nil {
		return objstore.Info{}, classify("put", key, err)
	}
	if err := b.syncDirs(path.Dir(key)); err != nil {
		return objstore.Info{}, classify("put", key, err)
	}
	info.Date = time.Now()
	return info, nil
}

// create links t to key: the one step that either makes the object or finds it there.
func (b *Bucket) create(t *temp, key string, _ objstore.Cond) (objstore.Info, error) {
	mtime := time.Now()
	if err := b.root.Chtimes(t.name, mtime, mtime); err != nil {
		return objstore.Info{}, err
	}
	err := b.withParents(key, func() error { return b.root.Link(t.name, key) })
	if errors.Is(err, fs.ErrExist) {
		return objstore.Info{}, objstore.ErrExists
	}
	if err != nil {
		return objstore.Info{}, err
	}
	return b.stat(key, t)
}

// replace renames t over key. The lock makes the look at the old object and the rename one step for all processes, and
// gives each version of a key a later modification time than the one before: the ETag rests on it.
func (b *Bucket) replace(t *temp, key string, cond objstore.Cond) (objstore.Info, error) {
	unlock, err := b.lock()
	if err != nil {
		return objstore.Info{}, err
	}
	defer unlock()
	mtime := time.Now()
	old, err := b.root.Lstat(key)
	switch {
	case err == nil && !old.Mode().IsRegular():
		return objstore.Info{}, fmt.Errorf("%w: it is a prefix of other keys", objstore.ErrKey)
	case err == nil:
		if cond.IfMatch != "" && etag(old) != cond.IfMatch {
			return objstore.Info{}, objstore.ErrPrecondition
		}
		if !mtime.After(old.ModTime()) {
			mtime = old.ModTime().Add(time.Nanosecond)
		}
	case errors.Is(err, fs.ErrNotExist):
		if cond.IfMatch != "" {
			return objstore.Info{}, objstore.ErrPrecondition
		}
	default:
		return objstore.Info{}, err
	}
	if err := b.root.Chtimes(t.name, mtime, mtime); err != nil {
		return objstore.Info{}, err
	}
	if err := b.withParents(key, func() error { return b.root.Rename(t.name, key) }); err != nil {
		return objstore.Info{}, err
	}
	return b.stat(key, t)
}

// stat describes what t has become: by its own handle, since another process may have replaced the name already.
func (b *Bucket) stat(key string, t *temp) (objstore.Info, error) {
	st, err := t.f.Stat()
	if err != nil {
		return objstore.Info{}, err
	}
	return describe(key, st), nil
}

// withParents makes the directories of key and calls f, again if a concurrent Delete removed an empty one in between.
func (b *Bucket) withParents(key string, f func() error) error {
	for try := 0; ; try++ {
		err := f()
		if !errors.Is(err, fs.ErrNotExist) || try == 100 {
			return err
		}
		if err := b.root.MkdirAll(path.Dir(key), 0o755); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

// syncDirs syncs dir and all above it: any of them may have a new entry, made by us or by a writer that died before it
// could sync.
func (b *Bucket) syncDirs(dir string) error {
	for {
		if err := b.syncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if dir == "." {
			return nil
		}
		dir = path.Dir(dir)
	}
}

func (b *Bucket) syncDir(dir string) error {
	d, err := b.root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Get implements objstore.Bucket.
func (b *Bucket) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := check(ctx, "get", key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, fmt.Errorf("get %s: negative offset %d", key, off)
	}
	f, err := b.root.Open(key)
	if err != nil {
		return nil, classify("get", key, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, classify("get", key, err)
	}
	from := min(off, st.Size())
	want := st.Size() - from
	if n >= 0 {
		want = min(want, n)
	}
	info := describe(key, st)
	info.Date = time.Now()
	return objstore.Exactly(section{io.NewSectionReader(f, from, want), f}, want, info), nil
}

type section struct {
	io.Reader
	io.Closer
}

// Head implements objstore.Bucket.
func (b *Bucket) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := check(ctx, "head", key); err != nil {
		return objstore.Info{}, err
	}
	st, err := b.root.Lstat(key)
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return objstore.Info{}, classify("head", key, err)
	}
	info := describe(key, st)
	info.Date = time.Now()
	return info, nil
}

// Delete implements objstore.Bucket. Directories that become empty go too.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := check(ctx, "delete", key); err != nil {
			return err
		}
	}
	dirs := make(map[string]bool)
	for _, key := range keys {
		if err := b.remove(key); err != nil && !absent(err) {
			return classify("delete", key, err)
		}
		dirs[path.Dir(key)] = true
	}
	for dir := range dirs {
		// The entry must be gone from the disk before anybody forgets that the object was there.
		if err := b.syncDir(dir); err != nil && !absent(err) {
			return classify("delete", dir, err)
		}
		for ; dir != "." && b.root.Remove(dir) == nil; dir = path.Dir(dir) {
		}
	}
	return nil
}

// remove takes the lock, so that an object cannot go and come back between the look and the rename of replace.
func (b *Bucket) remove(key string) error {
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	st, err := b.root.Lstat(key)
	if err != nil || !st.Mode().IsRegular() {
		return err
	}
	return b.root.Remove(key)
}

func describe(key string, st fs.FileInfo) objstore.Info {
	return objstore.Info{Key: key, Size: st.Size(), ETag: etag(st), Modified: st.ModTime()}
}

func etag(st fs.FileInfo) string {
	return fmt.Sprintf("\"%x-%x\"", st.ModTime().UnixNano(), st.Size())
}

func check(ctx context.Context, verb, key string) error {
	if err := objstore.CheckKey(key); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	if strings.HasPrefix(key, reserved) || strings.Contains(key, "/"+reserved) {
		return fmt.Errorf("%s: %w %q: %s is reserved", verb, objstore.ErrKey, key, reserved)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w: %w", verb, key, objstore.ErrUnavailable, err)
	}
	return nil
}

// absent also covers a key whose parent is a file: a missing object, as in any other store.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// classify maps errors of the operating system. A full or failing disk may recover, and what a failed sync has
// written is unknown: both are what ErrUnavailable says.
func classify(verb, key string, err error) error {
	class := error(nil)
	switch {
	case errors.Is(err, objstore.ErrExists), errors.Is(err, objstore.ErrPrecondition), errors.Is(err, objstore.ErrChecksum),
		errors.Is(err, objstore.ErrKey), errors.Is(err, objstore.ErrUnavailable):
	case verb == "put" && errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s %s: %w: a prefix of it is an object", verb, key, objstore.ErrKey)
	case verb == "put" && errors.Is(err, fs.ErrNotExist):
		class = objstore.ErrUnavailable
	case absent(err):
		class = objstore.ErrNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		class = objstore.ErrDenied
	case errors.Is(err, syscall.EOPNOTSUPP):
		class = objstore.ErrUnsupported
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EIO),
		errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ESTALE):
		class = objstore.ErrUnavailable
	}
	if class == nil {
		return fmt.Errorf("%s %s: %w", verb, key, err)
	}
	return fmt.Errorf("%s %s: %w: %w", verb, key, class, err)
}
