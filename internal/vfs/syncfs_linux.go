package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncFS makes everything written to the file system that holds dir durable: one call for thousands of files.
func (OS) SyncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = unix.Syncfs(int(d.Fd()))
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
