//go:build !linux

package vfs

import "errors"

// SyncFS is not to be had here; sync files and directories one by one.
func (OS) SyncFS(string) error { return errors.ErrUnsupported }
