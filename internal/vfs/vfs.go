// Package vfs is the one door to the local disk. OS is the real thing; Mem is its crashing twin for tests:
// what was not synced may be lost or torn at Crash, and the n-th call can be made to fail.
package vfs

import (
	"io"
	"io/fs"
	"os"
)

// FS is a file system. All methods may be called concurrently. Names are slash paths as package os takes them.
type FS interface {
	// OpenFile is os.OpenFile.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Rename replaces newName atomically; it is durable only after SyncDir of the directory.
	Rename(oldName, newName string) error
	Remove(name string) error
	RemoveAll(name string) error
	MkdirAll(name string, perm fs.FileMode) error
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes creations, renames and removals in the directory durable.
	SyncDir(name string) error
}

// FSSyncer is what OS and Mem can do beside FS: make all that was written to the file system of dir durable, in one call.
// errors.ErrUnsupported where the system cannot.
type FSSyncer interface {
	SyncFS(dir string) error
}

// File is an open file. ReadAt may run concurrently with everything; writes have one caller at a time.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Writer
	io.Closer
	Name() string
	Size() (int64, error)
	Truncate(size int64) error
	Sync() error
	// OS returns the file of the operating system for sendfile, or nil where there is none.
	OS() *os.File
}
