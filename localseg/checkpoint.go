package localseg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/varvelog/varve/internal/vfs"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFormat is bad bytes in one of the small files: they are derived, or fall back to a recovery from the log.
var errFormat = errors.New("malformed")

// checkpoint is what the log knew to be on disk at its last flush. It makes the cost of Open that of what came after.
type checkpoint struct {
	recovery     int64 // every record below is durable
	base         int64 // the segment that holds recovery, and
	pos          int64 // the byte in it at which recovery is; the file's size if nothing was written since
	logStart     int64
	lastAppendMs int64
	snapshot     int64 // offset of a producer snapshot that must be there; -1: no producer was known at recovery
	reset        reset
}

// reset says that the log was being emptied, so as to begin at checkpoint.recovery, and that Open must finish that.
type reset uint8

const (
	resetNone  reset = iota
	resetStart       // StartAt: epochs and snapshot of that offset are already written
	resetClear       // TruncateFully: they go too
)

const (
	checkpointMagic = 0x56434b50 // "VCKP"
	checkpointSize  = 4 + 2 + 2 + 4 + 6*8 + 1
)

func (c checkpoint) encode() []byte {
	b := make([]byte, 0, checkpointSize)
	b = binary.BigEndian.AppendUint32(b, checkpointMagic)
	b = binary.BigEndian.AppendUint16(b, 1)
	b = binary.BigEndian.AppendUint16(b, checkpointSize)
	b = append(b, 0, 0, 0, 0)
	for _, v := range [...]int64{c.recovery, c.base, c.pos, c.logStart, c.lastAppendMs, c.snapshot} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	b = append(b, byte(c.reset))
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

func decodeCheckpoint(b []byte) (c checkpoint, err error) {
	if len(b) != checkpointSize || binary.BigEndian.Uint32(b) != checkpointMagic ||
		binary.BigEndian.Uint16(b[4:]) != 1 || binary.BigEndian.Uint16(b[6:]) != checkpointSize ||
		binary.BigEndian.Uint32(b[8:]) != crc32.Checksum(b[12:], castagnoli) {
		return c, fmt.Errorf("checkpoint: %w", errFormat)
	}
	for i, p := range [...]*int64{&c.recovery, &c.base, &c.pos, &c.logStart, &c.lastAppendMs, &c.snapshot} {
		*p = int64(binary.BigEndian.Uint64(b[12+8*i:]))
	}
	c.reset = reset(b[checkpointSize-1])
	if c.base < 0 || c.recovery < c.base || c.pos < 0 || c.logStart < 0 || c.snapshot > c.recovery || c.reset > resetClear {
		return c, fmt.Errorf("checkpoint: %w", errFormat)
	}
	return c, nil
}

const maxSmallFile = 256 << 20 // no file that is read whole is larger; a snapshot of a million producers is 54 MB

// readSmall reads a whole file. A missing one is fs.ErrNotExist.
func readSmall(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	if n > maxSmallFile {
		return nil, fmt.Errorf("%s has %d bytes: %w", name, n, errFormat)
	}
	b := make([]byte, n)
	if got, err := f.ReadAt(b, 0); err != nil && (err != io.EOF || int64(got) < n) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// writeFile writes a file anew. With sync it is on disk when writeFile returns, its name after a SyncDir.
func writeFile(fsys vfs.FS, name string, b []byte, sync bool) error {
	f, err := fsys.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// replaceFile puts b under name, so that after a crash the old content is there or the new one:
//  1. write and sync name.tmp
//  2. rename it to name
//  3. sync the directory
func replaceFile(fsys vfs.FS, name string, b []byte) error {
	if err := writeFile(fsys, name+extTmp, b, true); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fsys.Rename(name+extTmp, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

// cutFile shortens a file to size, or makes it if it is not there. Bytes below size are not touched, so that a crash
// cannot take them: writing the file anew could leave a shorter one that looks sane.
func cutFile(fsys vfs.FS, name string, size int64, sync bool) error {
	f, err := fsys.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	have, err := f.Size()
	if err == nil && have > size {
		err = f.Truncate(size)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// syncFile makes a file's bytes durable; a missing file is not an error.
func syncFile(fsys vfs.FS, name string) error {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func removeFile(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
