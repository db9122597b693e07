package etcdkv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// lockDir takes the directory's lock, which the returned file holds. etcd would wait for its own lock for ever.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrDirInUse
		}
		return nil, fmt.Errorf("lock: %w", err)
	}
	return f, nil
}

// probe looks whether etcd could open its database: another program may have it (an etcd of its own takes no notice of
// our lock), and a damaged one would end the process.
func probe(member string) error {
	path := filepath.Join(member, "snap", "db")
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return probeMissing(member)
	}
	if err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: 200 * time.Millisecond})
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return ErrDirInUse
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		// Reading behind the end of a mapped file is a signal, not an error.
		if info.Size() < tx.Size() {
			return fmt.Errorf("%w: %s has %d bytes of %d", ErrCorrupt, path, info.Size(), tx.Size())
		}
		return walk(path, tx)
	})
}

// walk touches every page, as etcd's start does in goroutines where a panic of bbolt's ends the process. Here it does not.
func walk(path string, tx *bbolt.Tx) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %s: %v", ErrCorrupt, path, p)
		}
	}()
	return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(_, _ []byte) error { return nil })
	})
}

// probeMissing refuses a log without a database: etcd would start empty or die, depending on what is left.
func probeMissing(member string) error {
	wals, err := filepath.Glob(filepath.Join(member, "wal", "*.wal"))
	if err != nil {
		return err
	}
	if len(wals) > 0 {
		return fmt.Errorf("%w: %s has a log, and no database", ErrCorrupt, member)
	}
	return nil
}
