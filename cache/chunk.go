package cache

import (
	"sync/atomic"

	"github.com/varvelog/varve/internal/invariants"
)

// Chunk is a refcounted immutable piece. Release must be called once for each Get and each Retain; after the last one
// the bytes are used for another chunk. All methods may be called concurrently.
type Chunk struct {
	key  Key
	buf  []byte
	refs atomic.Int32
	pool *pool

	newer, older *Chunk // in memory's order of use; guarded by Cache.mu
}

// Bytes is the chunk's content: read only, and valid until Release.
func (c *Chunk) Bytes() []byte { return c.buf }

// Retain adds a holder; the caller must hold the chunk already.
func (c *Chunk) Retain() {
	n := c.refs.Add(1)
	invariants.Assert(n > 1, "chunk retained after its release")
}

// Release ends one hold.
func (c *Chunk) Release() {
	n := c.refs.Add(-1)
	invariants.Assert(n >= 0, "chunk released too often")
	if n == 0 {
		c.pool.put(c.buf)
		c.buf = nil
	}
}
