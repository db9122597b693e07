package tier

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"

	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// Bounds of what is read whole from the bucket.
const (
	manifestMax = 256 << 20
	footerMax   = 64 << 20
	smallMax    = 8 << 20 // archive.json, leases, topic records
	chunkMax    = 1 << 30 // a chunk is about Options.ChunkBytes, or one batch that is larger
)

// objects reads segment objects, groups and manifests of this archive and of attached ones. Safe for concurrent use.
type objects struct {
	id      string // of the own archive
	bucket  objstore.Bucket
	foreign func(string) (objstore.Bucket, error)
	lease   func(string) *Lease
	cache   *cache.Cache // nil: chunks are read each time
	footers *lru[objectID, *manifest.Footer]
	groups  *lru[string, []manifest.Entry]
	m       *metrics
}

type objectID struct{ archive, object string }

func newObjects(b objstore.Bucket, id string, c *cache.Cache, o *Options, m *metrics) *objects {
	return &objects{
		id: id, bucket: b, foreign: o.Foreign, lease: o.Lease, cache: c, m: m,
		footers: newLRU[objectID, *manifest.Footer](o.FooterBytes / 2),
		groups:  newLRU[string, []manifest.Entry](o.FooterBytes / 2),
	}
}

// open returns the bucket of an archive, or why it may not be read now.
func (o *objects) open(archive string) (objstore.Bucket, error) {
	if o.isOwn(archive) {
		return o.bucket, nil
	}
	if o.foreign == nil {
		return nil, fmt.Errorf("archive %s is not attached", archive)
	}
	if err := o.leased(archive); err != nil {
		return nil, err
	}
	return o.foreign(archive)
}

func (o *objects) isOwn(archive string) bool { return archive == "" || archive == o.id }

// leased says whether an archive may be read now, by the clock of its store.
func (o *objects) leased(archive string) error {
	if o.isOwn(archive) || o.lease == nil {
		return nil
	}
	if l := o.lease(archive); l != nil && !l.Live() {
		return fmt.Errorf("archive %s: %w", archive, ErrLeaseLapsed)
	}
	return nil
}

// readRange fills p from byte pos of the object and returns the CRC-32C of what it read.
func (o *objects) readRange(ctx context.Context, archive, object string, pos int64, p []byte) (crc uint32, err error) {
	b, err := o.open(archive)
	if err != nil {
		return 0, err
	}
	r, err := b.Get(ctx, object, pos, int64(len(p)))
	if err != nil {
		if lapsed := o.leased(archive); lapsed != nil {
			return 0, lapsed // a 404 after the lapse is no damage
		}
		return 0, fmt.Errorf("read %s: %w", object, err)
	}
	defer r.Close()
	if crc, err = readSum(r, p); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if objstore.Retryable(err) {
				return 0, fmt.Errorf("read %s: %w", object, err)
			}
			return 0, &CorruptError{Archive: archive, Object: object, Chunk: -1,
				Err: fmt.Errorf("object ends before byte %d", pos+int64(len(p)))}
		}
		return 0, fmt.Errorf("read %s: %w", object, err)
	}
	return crc, nil
}

// sumBytes is read and summed up at a time: what the kernel has just copied is in the cache of the core still, from where CRC-32C
// is three times as fast as from memory.
const sumBytes = 128 << 10

// readSum fills p from r and returns its CRC-32C.
func readSum(r io.Reader, p []byte) (crc uint32, err error) {
	for len(p) > 0 {
		n, err := io.ReadFull(r, p[:min(len(p), sumBytes)])
		if err != nil {
			return 0, err
		}
		crc = crc32.Update(crc, castagnoli, p[:n])
		p = p[n:]
	}
	return crc, nil
}

// footer returns the footer of an entry's object.
func (o *objects) footer(ctx context.Context, e *manifest.Entry) (*manifest.Footer, error) {
	if err := o.leased(e.Archive); err != nil {
		return nil, err
	}
	return o.footers.get(ctx, objectID{e.Archive, e.Object}, func(ctx context.Context) (*manifest.Footer, int64, error) {
		size := e.SizeBytes - e.DataBytes
		if size <= 0 || size > footerMax {
			return nil, 0, &CorruptError{Archive: e.Archive, Object: e.Object, Chunk: -1, Err: fmt.Errorf("footer of %d bytes", size)}
		}
		b := make([]byte, size)
		if _, err := o.readRange(ctx, e.Archive, e.Object, e.DataBytes, b); err != nil {
			return nil, 0, err
		}
		f, err := decodeFooter(b, e)
		if err != nil {
			o.m.corrupt.Inc()
			return nil, 0, &CorruptError{Archive: e.Archive, Object: e.Object, Chunk: -1, Err: err}
		}
		return f, 2 * size, nil
	})
}

// decodeFooter checks that what follows the data of an entry's object is the footer that belongs to it.
func decodeFooter(b []byte, e *manifest.Entry) (*manifest.Footer, error) {
	pos, n, err := manifest.ParseTrailer(b, e.SizeBytes)
	if err != nil {
		return nil, err
	}
	if pos != e.DataBytes || n > int64(len(b)) {
		return nil, fmt.Errorf("footer begins at byte %d, the manifest says %d", pos, e.DataBytes)
	}
	f, err := manifest.DecodeFooter(b[:n])
	switch {
	case err != nil:
		return nil, err
	case f.DataBytes != e.DataBytes:
		return nil, fmt.Errorf("footer says %d bytes of data, the manifest %d", f.DataBytes, e.DataBytes)
	case f.SHA256 != e.SHA256:
		return nil, errors.New("SHA-256 of the data is not the one in the manifest")
	}
	for _, c := range f.Chunks {
		if c.Size > chunkMax {
			return nil, fmt.Errorf("chunk of %d bytes", c.Size)
		}
	}
	return f, nil
}

// group returns the entries of a group; they are shared and read only.
func (o *objects) group(ctx context.Context, g *manifest.Group) ([]manifest.Entry, error) {
	return o.groups.get(ctx, g.Object, func(ctx context.Context) ([]manifest.Entry, int64, error) {
		b, _, err := objstore.ReadAll(ctx, o.bucket, g.Object, manifestMax)
		if err != nil {
			return nil, 0, fmt.Errorf("read group %s: %w", g.Object, err)
		}
		list, err := g.Open(b)
		if err != nil {
			return nil, 0, &CorruptError{Object: g.Object, Chunk: -1, Err: err}
		}
		return list, int64(len(list)) * 256, nil
	})
}

// all yields all entries of a manifest, in order, from those of the first group that ends above from.
func (o *objects) all(ctx context.Context, m *manifest.Manifest, from int64) iter.Seq2[*manifest.Entry, error] {
	return func(yield func(*manifest.Entry, error) bool) {
		for i := range m.Groups {
			if m.Groups[i].End <= from {
				continue
			}
			list, err := o.group(ctx, &m.Groups[i])
			if err != nil {
				yield(nil, err)
				return
			}
			for j := range list {
				if !yield(&list[j], nil) {
					return
				}
			}
		}
		for i := range m.Entries {
			if !yield(&m.Entries[i], nil) {
				return
			}
		}
	}
}

// live yields the live entries that end above from, ascending; groups that cannot hold one are not read.
func (o *objects) live(ctx context.Context, m *manifest.Manifest, from int64, skip func(*manifest.Group) bool) iter.Seq2[*manifest.Entry, error] {
	return func(yield func(*manifest.Entry, error) bool) {
		for i := range m.Groups {
			g := &m.Groups[i]
			if g.End <= from || g.Live() == 0 || skip != nil && skip(g) {
				continue
			}
			list, err := o.group(ctx, g)
			if err != nil {
				yield(nil, err)
				return
			}
			for j := range list {
				if e := &list[j]; e.State == manifest.Live && e.End > from && !yield(e, nil) {
					return
				}
			}
		}
		for i := range m.Entries {
			if e := &m.Entries[i]; e.State == manifest.Live && e.End > from && !yield(e, nil) {
				return
			}
		}
	}
}

// piece is a chunk's bytes, and the cached chunk behind them if there is one.
type piece struct {
	bytes []byte
	chunk *cache.Chunk
}

func (p piece) release() {
	if p.chunk != nil {
		p.chunk.Release()
	}
}

// chunk returns the i-th chunk of an entry's object, its checksum verified when it came from the bucket.
func (o *objects) chunk(ctx context.Context, e *manifest.Entry, f *manifest.Footer, i int) (piece, error) {
	if err := o.leased(e.Archive); err != nil {
		return piece{}, err
	}
	c := f.Chunks[i]
	fill := o.fill(e.Archive, e.Object, int32(i), c)
	if o.cache == nil {
		b := make([]byte, c.Size)
		return piece{bytes: b}, fill(ctx, b)
	}
	ch, err := o.cache.Get(ctx, o.chunkKey(e, i), c.Size, fill)
	if err != nil {
		return piece{}, err
	}
	return piece{bytes: ch.Bytes(), chunk: ch}, nil
}

func (o *objects) chunkKey(e *manifest.Entry, i int) cache.Key {
	archive := e.Archive
	if archive == "" {
		archive = o.id
	}
	return cache.Key{Archive: archive, Object: e.Object, Chunk: int32(i)}
}

// fill reads one chunk. A wrong checksum is tried once more, for the bits may have flipped on the way.
func (o *objects) fill(archive, object string, i int32, c manifest.Chunk) func(context.Context, []byte) error {
	return func(ctx context.Context, p []byte) error {
		var bad uint32
		for range 2 {
			crc, err := o.readRange(ctx, archive, object, c.Pos, p)
			if err != nil || crc == c.CRC32C {
				return err
			}
			bad = crc
		}
		o.m.corrupt.Inc()
		return &CorruptError{Archive: archive, Object: object, Chunk: i,
			Err: fmt.Errorf("CRC-32C %08x, want %08x", bad, c.CRC32C)}
	}
}
