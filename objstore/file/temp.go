package file

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/varvelog/varve/objstore"
)

// temp is a file that may become an object. Its writer holds a lock on it for as long as it lives, so that sweepTemp
// can tell the leftovers of dead processes from slow writers without asking a clock.
type temp struct {
	b    *Bucket
	f    *os.File
	name string
}

// writeTemp writes and syncs the body. ErrChecksum: the body is not what it says.
func (b *Bucket) writeTemp(ctx context.Context, body objstore.Body) (*temp, error) {
	var id [12]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	name := path.Join(tmpDir, hex.EncodeToString(id[:]))
	f, err := b.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	t := &temp{b: b, f: f, name: name}
	if err := t.fill(ctx, body); err != nil {
		t.discard()
		return nil, err
	}
	return t, nil
}

func (t *temp) fill(ctx context.Context, body objstore.Body) error {
	if err := flock(t.f, syscall.LOCK_EX); err != nil {
		return err
	}
	buf := t.b.buffers.Get().(*[]byte)
	defer t.b.buffers.Put(buf)
	var crc uint32
	var size int64
	r := body.Reader()
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: %w", objstore.ErrUnavailable, err)
		}
		n, err := io.ReadFull(r, *buf)
		crc = crc32.Update(crc, castagnoli, (*buf)[:n])
		size += int64(n)
		if _, err := t.f.Write((*buf)[:n]); err != nil {
			return err
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read body: %w", err)
		}
	}
	if size != body.Size || crc != body.CRC32C {
		return fmt.Errorf("body of %d bytes with CRC-32C %08x, announced were %d and %08x: %w",
			size, crc, body.Size, body.CRC32C, objstore.ErrChecksum)
	}
	return t.f.Sync()
}

// discard closes the file and removes its temporary name; after a rename there is none.
func (t *temp) discard() {
	_ = t.b.root.Remove(t.name)
	_ = t.f.Close()
}

// sweepTemp removes the temporary files that no process holds. A writer that has created its file and not yet locked
// it may lose it here; its link then fails as unavailable, and is tried again.
func (b *Bucket) sweepTemp() error {
	entries, err := fs.ReadDir(b.root.FS(), tmpDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(tmpDir, e.Name())
		if name == lockName {
			continue
		}
		f, err := b.root.Open(name)
		if err != nil {
			continue // its writer was faster
		}
		if flock(f, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = b.root.Remove(name)
		}
		f.Close()
	}
	return nil
}

// lock takes the directory's lock, for this process's goroutines and for other processes alike. It is held for a look
// and a rename, never while bytes are written.
func (b *Bucket) lock() (unlock func(), err error) {
	f, err := b.root.OpenFile(lockName, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := flock(f, syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

func flock(f *os.File, how int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	err = raw.Control(func(fd uintptr) {
		for {
			lockErr = syscall.Flock(int(fd), how)
			if !errors.Is(lockErr, syscall.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, lockErr)
}
