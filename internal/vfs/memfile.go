package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

type memFile struct {
	m      *Mem
	n      *inode
	name   string
	pos    int64 // of Write; guarded by m.mu
	boot   int
	append bool
	closed bool
}

func (f *memFile) Name() string { return f.name }
func (f *memFile) OS() *os.File { return nil }

func (f *memFile) enter(op string, n int) error {
	if f.closed {
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	}
	if f.boot != f.m.boot {
		return &fs.PathError{Op: op, Path: f.name, Err: ErrCrashed}
	}
	if err := f.m.faults.step(op, f.name); err != nil {
		return &fs.PathError{Op: op, Path: f.name, Err: err}
	}
	f.m.faults.record(op, f.name, n)
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.enter("read", len(p)); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrInvalid}
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Write(p []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.append {
		f.pos = int64(len(f.n.data))
	}
	n, err := f.write(p, f.pos)
	f.pos += int64(n)
	return n, err
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.write(p, off)
}

// write under m.mu. A write that is made to fail leaves its first half, as a disk may.
func (f *memFile) write(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fs.ErrInvalid}
	}
	if err := f.enter("write", len(p)); err != nil {
		if f.closed || f.boot != f.m.boot {
			return 0, err
		}
		return f.m.put(f.n, p[:len(p)/2], off), err
	}
	grow := off + int64(len(p)) - int64(len(f.n.data))
	if f.m.space >= 0 && grow > f.m.space {
		fits := max(0, int64(len(p))-(grow-f.m.space))
		return f.m.put(f.n, p[:fits], off), &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}
	return f.m.put(f.n, p, off), nil
}

func (m *Mem) put(n *inode, p []byte, off int64) int {
	if len(p) == 0 {
		return 0
	}
	if end := off + int64(len(p)); end > int64(len(n.data)) {
		m.resize(n, end)
	}
	n.touch(off)
	copy(n.data[off:], p)
	n.mtime = m.wall.Ms()
	return len(p)
}

func (n *inode) touch(off int64) {
	if n.clean || int(off) < n.dirty {
		n.dirty = int(off)
	}
	n.clean = false
}

func (m *Mem) resize(n *inode, size int64) {
	old := int64(len(n.data))
	if m.space >= 0 {
		m.space = max(0, m.space-(size-old))
	}
	n.touch(min(old, size))
	if size <= old {
		n.data = n.data[:size:size] // no stale bytes may come back when it grows again
	} else {
		n.data = append(n.data, make([]byte, size-old)...)
	}
	n.mtime = m.wall.Ms()
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.enter("size", 0); err != nil {
		return 0, err
	}
	return int64(len(f.n.data)), nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if size < 0 {
		return fmt.Errorf("truncate %s to %d: %w", f.name, size, fs.ErrInvalid)
	}
	if err := f.enter("truncate", int(size)); err != nil {
		return err
	}
	f.m.resize(f.n, size)
	return nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.enter("sync", 0); err != nil {
		return err
	}
	n := f.n
	if n.clean {
		return nil
	}
	keep := min(n.dirty, len(n.synced))
	n.synced = append(n.synced[:keep:keep], n.data[keep:]...)
	n.clean = true
	return nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed = true
	return nil
}
