package cache

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/varvelog/varve/internal/vfs"
)

// disk is the chunks on disk, a file each, least recently used ones going first.
//
// A file has a header of 48 bytes and the data: magic "VVCC", version 1 (2 bytes), zero (2), size of the data (8), SHA-256 of
// the key (28 of its bytes), CRC-32C of all that and the data (4). It is written under another name and renamed, never synced:
// after a crash it may have any content, and its checksum tells. Whatever is wrong with a file makes it a miss.
type disk struct {
	fs      vfs.FS
	dir     string
	limit   int64
	metrics *metrics

	mu    sync.Mutex // short: never held over I/O
	bytes int64      // of files there and being written
	files map[fileID]*list.Element
	order *list.List // of *diskFile, newest first
	temp  uint64     // number of the last file begun
}

type fileID [28]byte

type diskFile struct {
	id   fileID
	size int64 // with the header
}

const (
	headerLen = 4 + 2 + 2 + 8 + 28 + 4
	chunkDir  = "chunks-v1" // files of another version would have another directory
	chunkExt  = ".chunk"
	tempExt   = ".tmp"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func idOf(k Key) (id fileID) {
	b := make([]byte, 0, 128)
	b = binary.BigEndian.AppendUint32(b, uint32(len(k.Archive)))
	b = append(b, k.Archive...)
	b = append(b, k.Object...)
	b = binary.BigEndian.AppendUint32(b, uint32(k.Chunk))
	sum := sha256.Sum256(b)
	copy(id[:], sum[:])
	return id
}

// openDisk takes over the files that are there, oldest modification first, and removes what a crash left half-written.
func openDisk(fsys vfs.FS, dir string, limit int64, m *metrics) (*disk, error) {
	d := &disk{fs: fsys, dir: path.Join(dir, chunkDir), limit: limit, metrics: m, files: make(map[fileID]*list.Element), order: list.New()}
	if err := fsys.MkdirAll(d.dir, 0o755); err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	names, err := fsys.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	var infos []fs.FileInfo
	for _, n := range names {
		if path.Ext(n.Name()) == tempExt {
			_ = fsys.Remove(path.Join(d.dir, n.Name()))
			continue
		}
		if info, err := n.Info(); err == nil && info.Mode().IsRegular() {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range infos {
		var id fileID
		text, ok := strings.CutSuffix(info.Name(), chunkExt)
		if n, err := hex.Decode(id[:], []byte(text[:min(len(text), 2*len(id))])); !ok || err != nil || n != len(id) || len(text) != 2*len(id) {
			continue // not ours
		}
		d.files[id] = d.order.PushFront(&diskFile{id, info.Size()})
		d.bytes += info.Size()
	}
	d.mu.Lock()
	out := d.evict(0)
	d.mu.Unlock()
	d.remove(out)
	return d, nil
}

func (d *disk) path(id fileID) string {
	return path.Join(d.dir, hex.EncodeToString(id[:])+chunkExt)
}

func (d *disk) size() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bytes
}

// read fills buf from the chunk's file. False: it is not there, or not sound.
func (d *disk) read(k Key, buf []byte) bool {
	id := idOf(k)
	d.mu.Lock()
	e := d.files[id]
	if e != nil {
		d.order.MoveToFront(e)
	}
	d.mu.Unlock()
	if e == nil {
		return false
	}
	err := d.readFile(id, buf)
	if err == nil {
		return true
	}
	if errors.Is(err, errDamaged) {
		d.metrics.diskCorrupt.Inc()
	} else {
		d.metrics.diskErrors.Inc()
	}
	d.mu.Lock()
	var out []fileID
	if d.files[id] == e {
		out = append(out, d.forget(e))
	}
	d.mu.Unlock()
	d.remove(out)
	return false
}

var errDamaged = errors.New("damaged")

func (d *disk) readFile(id fileID, buf []byte) error {
	f, err := d.fs.OpenFile(d.path(id), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	if size != int64(headerLen+len(buf)) {
		return fmt.Errorf("%d bytes: %w", size, errDamaged)
	}
	var h [headerLen]byte
	if _, err := f.ReadAt(h[:], 0); err != nil {
		return err
	}
	if _, err := f.ReadAt(buf, headerLen); err != nil {
		return err
	}
	want := header(id, buf)
	if !bytes.Equal(h[:], want[:]) {
		return fmt.Errorf("header or checksum: %w", errDamaged)
	}
	return nil
}

func header(id fileID, data []byte) (h [headerLen]byte) {
	copy(h[:], "VVCC")
	binary.BigEndian.PutUint16(h[4:], 1)
	binary.BigEndian.PutUint64(h[8:], uint64(len(data)))
	copy(h[16:], id[:])
	crc := crc32.Update(crc32.Checksum(h[:headerLen-4], castagnoli), castagnoli, data)
	binary.BigEndian.PutUint32(h[headerLen-4:], crc)
	return h
}

// write makes room first, so that the limit holds at any time.
func (d *disk) write(k Key, data []byte) {
	id := idOf(k)
	size := int64(headerLen + len(data))
	d.mu.Lock()
	if d.files[id] != nil || size > d.limit {
		d.mu.Unlock()
		return
	}
	out := d.evict(size)
	d.bytes += size
	d.temp++
	temp := path.Join(d.dir, fmt.Sprintf("%d%s", d.temp, tempExt))
	d.mu.Unlock()
	d.remove(out)
	err := d.writeFile(temp, id, data)
	d.mu.Lock()
	if err == nil && d.files[id] == nil {
		d.files[id] = d.order.PushFront(&diskFile{id, size})
	} else {
		d.bytes -= size
	}
	d.mu.Unlock()
	if err != nil {
		d.metrics.diskErrors.Inc()
		_ = d.fs.Remove(temp)
	}
}

func (d *disk) writeFile(temp string, id fileID, data []byte) error {
	f, err := d.fs.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	h := header(id, data)
	if _, err = f.Write(h[:]); err == nil {
		_, err = f.Write(data)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = d.fs.Rename(temp, d.path(id))
	}
	return err
}

// evict forgets files until size more fit; mu is held, and the caller removes them after it. Files being written count,
// but cannot go.
func (d *disk) evict(size int64) (out []fileID) {
	for d.bytes+size > d.limit && d.order.Len() > 0 {
		out = append(out, d.forget(d.order.Back()))
		d.metrics.diskEvictions.Inc()
	}
	return out
}

func (d *disk) forget(e *list.Element) fileID {
	f := d.order.Remove(e).(*diskFile)
	delete(d.files, f.id)
	d.bytes -= f.size
	return f.id
}

// remove deletes forgotten files. One that has been written again meanwhile is lost with them: a miss, no more.
func (d *disk) remove(ids []fileID) {
	for _, id := range ids {
		if err := d.fs.Remove(d.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.metrics.diskErrors.Inc()
		}
	}
}
