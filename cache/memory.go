package cache

// memory is the chunks in memory, least recently used ones going first. Cache.mu guards it. It holds each of its chunks
// once; a chunk that is put out lives on until its readers have released it.
type memory struct {
	limit int64
	bytes int64 // capacities
	byKey map[Key]*Chunk
	ring  Chunk // ring.older is the newest, ring.newer the oldest
}

func newMemory(limit int64) *memory {
	m := &memory{limit: limit, byKey: make(map[Key]*Chunk)}
	m.ring.newer, m.ring.older = &m.ring, &m.ring
	return m
}

func (m *memory) get(k Key) *Chunk {
	c := m.byKey[k]
	if c != nil && m.ring.older != c {
		m.unlink(c)
		m.link(c)
	}
	return c
}

// add takes over one hold of the chunk and returns the chunks that are put out: the caller releases them, unlocked.
func (m *memory) add(c *Chunk) (out []*Chunk) {
	m.byKey[c.key] = c
	m.link(c)
	m.bytes += int64(cap(c.buf))
	for m.bytes > m.limit {
		out = append(out, m.removeOldest())
	}
	return out
}

func (m *memory) removeOldest() *Chunk {
	c := m.ring.newer
	m.unlink(c)
	delete(m.byKey, c.key)
	m.bytes -= int64(cap(c.buf))
	return c
}

func (m *memory) link(c *Chunk) {
	c.newer, c.older = &m.ring, m.ring.older
	c.older.newer, m.ring.older = c, c
}

func (m *memory) unlink(c *Chunk) {
	c.newer.older, c.older.newer = c.older, c.newer
	c.newer, c.older = nil, nil
}
