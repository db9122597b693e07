package localseg

import (
	"container/list"
	"io/fs"
	"os"
	"sync"

	"github.com/varvelog/varve/internal/vfs"
)

// FileCache bounds the open segment files of all logs that share it: the least recently used ones that nobody is
// reading are closed. All methods may be called concurrently.
type FileCache struct {
	mu   sync.Mutex
	max  int
	lru  list.List // of *handle, most recent first; guarded by mu
	open int       // guarded by mu
}

// NewFileCache makes a cache of at most maxOpen idle files; files in use are never closed, so that more may be open
// while more are in use. Zero or less: no bound.
func NewFileCache(maxOpen int) *FileCache {
	return &FileCache{max: maxOpen}
}

// Open is the number of files that are open now.
func (c *FileCache) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// handle is one open file of a segment.
type handle struct {
	c    *FileCache
	s    *segment
	f    vfs.File
	refs int           // guarded by c.mu
	dead bool          // guarded by c.mu: close it when refs is 0
	elem *list.Element // guarded by c.mu; nil when dead
}

// acquire opens the segment's file, or takes the one that is open. The caller releases it.
func (c *FileCache) acquire(fsys vfs.FS, s *segment) (*handle, error) {
	c.mu.Lock()
	if s.gone {
		c.mu.Unlock()
		return nil, &fs.PathError{Op: "open", Path: s.name(extLog), Err: fs.ErrNotExist}
	}
	if h := s.handle; h != nil {
		h.refs++
		c.lru.MoveToFront(h.elem)
		c.mu.Unlock()
		return h, nil
	}
	c.mu.Unlock()
	f, err := fsys.OpenFile(s.name(extLog), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return c.adopt(s, f), nil
}

// adopt takes a file that was opened, unless another caller was first.
func (c *FileCache) adopt(s *segment, f vfs.File) *handle {
	c.mu.Lock()
	h := s.handle
	if h == nil {
		// Of a segment forgotten since we opened its file, the file is closed at the release.
		h = &handle{c: c, s: s, f: f}
		c.open++
		f = nil
		if h.dead = s.gone; !h.dead {
			h.elem = c.lru.PushFront(h)
			s.handle = h
		}
	}
	h.refs++
	evicted := c.evict()
	c.mu.Unlock()
	if f != nil {
		f.Close() // read only so far, or not yet written: nothing to lose
	}
	closeAll(evicted)
	return h
}

// evict under mu: takes idle files above the bound out of the cache; the caller closes them.
func (c *FileCache) evict() (out []vfs.File) {
	if c.max <= 0 {
		return nil
	}
	for e := c.lru.Back(); e != nil && c.open > c.max; {
		prev := e.Prev()
		if h := e.Value.(*handle); h.refs == 0 {
			c.kill(h)
			c.open--
			out = append(out, h.f)
		}
		e = prev
	}
	return out
}

// kill under mu: takes h out of the cache, and the indexes of a closed segment out of memory.
func (c *FileCache) kill(h *handle) {
	c.lru.Remove(h.elem)
	h.dead, h.elem, h.s.handle = true, nil, nil
	if !h.s.active.Load() {
		h.s.ix.Store(nil)
	}
}

func closeAll(files []vfs.File) {
	for _, f := range files {
		f.Close() // every write has returned its error already, and durability is Sync's
	}
}

func (h *handle) release() {
	h.c.mu.Lock()
	h.refs--
	var out []vfs.File
	if h.dead && h.refs == 0 {
		h.c.open--
		out = append(out, h.f)
	} else {
		out = h.c.evict()
	}
	h.c.mu.Unlock()
	closeAll(out)
}

// forget drops the segment's file for good: it is closed now, or when its last reader releases it.
func (c *FileCache) forget(s *segment) {
	c.mu.Lock()
	var out []vfs.File
	s.gone = true
	if h := s.handle; h != nil {
		c.kill(h)
		if h.refs == 0 {
			c.open--
			out = append(out, h.f)
		}
	}
	c.mu.Unlock()
	closeAll(out)
}
