package sim

import (
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/vfs"
)

// ages is when files were written last. nil: the files say it themselves.
type ages struct {
	mu sync.Mutex
	at map[string]time.Time // guarded by mu; by path
}

func (a *ages) touch(name string) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[path.Clean(name)] = time.Now()
}

// first is touch for a file that was never written.
func (a *ages) first(name string) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.at[path.Clean(name)]; !ok {
		a.at[path.Clean(name)] = time.Now()
	}
}

func (a *ages) rename(from, to string) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[path.Clean(to)] = a.at[path.Clean(from)]
}

func (a *ages) of(name string, i fs.FileInfo) fs.FileInfo {
	if a == nil {
		return i
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return aged{i, a.at[path.Clean(name)]}
}

type aged struct {
	fs.FileInfo
	at time.Time
}

func (a aged) ModTime() time.Time { return a.at }

// agedEntry is an entry of a directory whose file has its age.
type agedEntry struct {
	fs.DirEntry
	name string
	ages *ages
}

func (e agedEntry) Info() (fs.FileInfo, error) {
	i, err := e.DirEntry.Info()
	if err != nil {
		return nil, err
	}
	return e.ages.of(e.name, i), nil
}

// disk is the file system as one process has it: when the process dies, so do its calls, while the files live on for the
// next one.
type disk struct {
	below vfs.FS
	ages  *ages

	mu   sync.RWMutex // held over calls: the files are in memory, nothing waits
	dead bool         // guarded by mu
}

// kill lets no call through any more; it returns when none is under way.
func (d *disk) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
}

func (d *disk) do(f func() error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.dead {
		return vfs.ErrCrashed
	}
	return f()
}

func (d *disk) OpenFile(name string, flag int, perm fs.FileMode) (out vfs.File, err error) {
	err = d.do(func() error {
		out, err = d.below.OpenFile(name, flag, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	if flag&os.O_CREATE != 0 {
		d.ages.first(name)
	}
	return &diskFile{File: out, d: d}, nil
}

func (d *disk) Rename(from, to string) error {
	return d.do(func() error {
		d.ages.rename(from, to)
		return d.below.Rename(from, to)
	})
}
func (d *disk) Remove(name string) error {
	return d.do(func() error { return d.below.Remove(name) })
}
func (d *disk) RemoveAll(name string) error {
	return d.do(func() error { return d.below.RemoveAll(name) })
}
func (d *disk) MkdirAll(name string, perm fs.FileMode) error {
	return d.do(func() error { return d.below.MkdirAll(name, perm) })
}
func (d *disk) SyncDir(name string) error {
	return d.do(func() error { return d.below.SyncDir(name) })
}
func (d *disk) ReadDir(name string) (out []fs.DirEntry, err error) {
	err = d.do(func() error { out, err = d.below.ReadDir(name); return err })
	for i, e := range out {
		out[i] = agedEntry{e, path.Join(name, e.Name()), d.ages}
	}
	return out, err
}
func (d *disk) Stat(name string) (out fs.FileInfo, err error) {
	err = d.do(func() error { out, err = d.below.Stat(name); return err })
	if err != nil {
		return nil, err
	}
	return d.ages.of(name, out), nil
}

// diskFile is an open file of one process. Reads need no guard: a file opened before a crash is dead below.
type diskFile struct {
	vfs.File
	d *disk
}

func (f *diskFile) Write(p []byte) (n int, err error) {
	err = f.d.do(func() error { f.d.ages.touch(f.Name()); n, err = f.File.Write(p); return err })
	return n, err
}
func (f *diskFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.d.do(func() error { f.d.ages.touch(f.Name()); n, err = f.File.WriteAt(p, off); return err })
	return n, err
}
func (f *diskFile) Truncate(size int64) error {
	return f.d.do(func() error { return f.File.Truncate(size) })
}
func (f *diskFile) Sync() error { return f.d.do(f.File.Sync) }
