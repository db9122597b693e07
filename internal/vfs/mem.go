package vfs

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/wallclock"
)

// Mem is a file system in memory that can crash. It keeps, beside what a running process sees, what a disk is sure
// to hold: file data up to the last Sync, directory entries up to the last SyncDir. Crash throws the rest away, in part.
type Mem struct {
	mu      sync.Mutex
	live    map[string]*inode // by clean path; directories too
	durable map[string]*inode // directory entries that survive a crash for certain
	journal map[string][]entryOp
	boot    int   // counts crashes: files opened before one are dead
	space   int64 // bytes that may still be added; -1: no limit
	wall    wallclock.Clock
	faults  faults
}

// entryOp is one change of a directory that SyncDir has not yet made durable.
type entryOp struct {
	set, del string // paths; both for a rename
	node     *inode // what set points to
}

type inode struct {
	dir    bool
	data   []byte
	synced []byte
	dirty  int // data and synced are equal below this index; len(data) and len(synced) when clean
	clean  bool
	mtime  int64
}

var _ FS = (*Mem)(nil)

// NewMem returns an empty file system with a root directory.
func NewMem() *Mem {
	root := &inode{dir: true, clean: true}
	return &Mem{
		live:    map[string]*inode{"/": root, ".": root},
		durable: map[string]*inode{"/": root, ".": root},
		journal: map[string][]entryOp{},
		space:   -1,
	}
}

// SetClock sets the clock that modification times are of; nil is the system's.
func (m *Mem) SetClock(c wallclock.Clock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall = c
}

func (m *Mem) note(o entryOp) {
	dir := path.Dir(o.set)
	if o.set == "" {
		dir = path.Dir(o.del)
	}
	m.journal[dir] = append(m.journal[dir], o)
	// A rename between directories is made durable by a sync of either.
	if o.set != "" && o.del != "" && path.Dir(o.del) != dir {
		m.journal[path.Dir(o.del)] = append(m.journal[path.Dir(o.del)], o)
	}
}

func (o entryOp) apply(to map[string]*inode) {
	if o.del != "" {
		delete(to, o.del)
	}
	if o.set != "" {
		to[o.set] = o.node
	}
}

// OpenFile knows O_CREATE, O_EXCL, O_TRUNC and O_APPEND.
func (m *Mem) OpenFile(name string, flag int, _ fs.FileMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = path.Clean(name)
	if err := m.faults.step("open", name); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	n := m.live[name]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case n == nil:
		if d := m.live[path.Dir(name)]; d == nil || !d.dir {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		m.faults.record("create", name, 0)
		n = &inode{clean: true, mtime: m.wall.Ms()}
		m.live[name] = n
		m.note(entryOp{set: name, node: n})
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case n.dir:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("is a directory")}
	}
	if flag&os.O_TRUNC != 0 && len(n.data) > 0 {
		m.resize(n, 0)
	}
	return &memFile{m: m, n: n, name: name, boot: m.boot, append: flag&os.O_APPEND != 0}, nil
}

func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	oldName, newName = path.Clean(oldName), path.Clean(newName)
	if err := m.faults.step("rename", newName); err != nil {
		return &fs.PathError{Op: "rename", Path: newName, Err: err}
	}
	n := m.live[oldName]
	if n == nil || m.live[path.Dir(newName)] == nil {
		return &fs.PathError{Op: "rename", Path: oldName, Err: fs.ErrNotExist}
	}
	if n.dir {
		m.renameTree(oldName, newName)
	}
	delete(m.live, oldName)
	m.live[newName] = n
	m.note(entryOp{set: newName, del: oldName, node: n})
	m.faults.record("rename", newName, 0)
	return nil
}

// renameTree moves a directory's content at once, durably: only the tests of whole-directory removal use it.
func (m *Mem) renameTree(oldName, newName string) {
	for _, t := range []map[string]*inode{m.live, m.durable} {
		for p, n := range maps.Clone(t) {
			if strings.HasPrefix(p, oldName+"/") {
				delete(t, p)
				t[newName+p[len(oldName):]] = n
			}
		}
	}
	delete(m.journal, oldName)
}

func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = path.Clean(name)
	if err := m.faults.step("remove", name); err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	if m.live[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	m.faults.record("remove", name, 0)
	m.unlink(name)
	return nil
}

func (m *Mem) unlink(name string) {
	delete(m.live, name)
	m.note(entryOp{del: name})
}

func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = path.Clean(name)
	if err := m.faults.step("removeall", name); err != nil {
		return &fs.PathError{Op: "removeall", Path: name, Err: err}
	}
	for _, p := range slices.Sorted(maps.Keys(m.live)) {
		if p == name || strings.HasPrefix(p, name+"/") {
			m.unlink(p)
		}
	}
	return nil
}

func (m *Mem) MkdirAll(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = path.Clean(name)
	if err := m.faults.step("mkdir", name); err != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	m.mkdir(name)
	return nil
}

func (m *Mem) mkdir(name string) {
	if m.live[name] != nil {
		return
	}
	m.mkdir(path.Dir(name))
	n := &inode{dir: true, clean: true, mtime: m.wall.Ms()}
	m.live[name] = n
	m.note(entryOp{set: name, node: n})
	m.faults.record("mkdir", name, 0)
}

func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = path.Clean(name)
	if err := m.faults.step("readdir", name); err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	if d := m.live[name]; d == nil || !d.dir {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	var out []fs.DirEntry
	for p, n := range m.live {
		if path.Dir(p) == name && p != name {
			out = append(out, fs.FileInfoToDirEntry(n.info(path.Base(p))))
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name() < out[j].Name() })
	return out, nil
}

func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = path.Clean(name)
	if err := m.faults.step("stat", name); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	n := m.live[name]
	if n == nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return n.info(path.Base(name)), nil
}

func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = path.Clean(name)
	if err := m.faults.step("syncdir", name); err != nil {
		return &fs.PathError{Op: "syncdir", Path: name, Err: err}
	}
	if m.live[name] == nil {
		return &fs.PathError{Op: "syncdir", Path: name, Err: fs.ErrNotExist}
	}
	m.faults.record("syncdir", name, 0)
	for _, o := range m.journal[name] {
		o.apply(m.durable)
	}
	delete(m.journal, name)
	return nil
}

// SyncFS makes everything durable.
func (m *Mem) SyncFS(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.faults.step("syncfs", dir); err != nil {
		return &fs.PathError{Op: "syncfs", Path: dir, Err: err}
	}
	m.faults.record("syncfs", dir, 0)
	for _, n := range m.live {
		n.synced, n.clean = slices.Clone(n.data), true
	}
	m.durable = maps.Clone(m.live)
	m.journal = map[string][]entryOp{}
	return nil
}

// Copy is another file system, with what this one holds now, all of it durable, and no faults.
func (m *Mem) Copy() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	c.wall = m.wall
	copies := map[*inode]*inode{}
	for name, n := range m.live {
		if copies[n] == nil {
			copies[n] = &inode{dir: n.dir, data: slices.Clone(n.data), synced: slices.Clone(n.data), clean: true, mtime: n.mtime}
		}
		c.live[name], c.durable[name] = copies[n], copies[n]
	}
	return c
}

type memInfo struct {
	name string
	size int64
	dir  bool
	at   int64
}

func (n *inode) info(name string) memInfo {
	return memInfo{name: name, size: int64(len(n.data)), dir: n.dir, at: n.mtime}
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) ModTime() time.Time { return time.UnixMilli(i.at) }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
