package tier

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/record"
)

// Data is archived batches as parts to be written in order. The parts are read only and valid until Release, which must
// be called once. No parts and Next above the offset asked for: there is nothing in between, go on at Next.
type Data struct {
	Parts [][]byte
	Base  int64 // base offset of the first batch
	Next  int64 // offset after the last record

	size   int
	chunks []*cache.Chunk
}

// Size is the number of bytes in all parts.
func (d Data) Size() int { return d.size }

// Release gives the cached chunks back.
func (d Data) Release() {
	for _, c := range d.chunks {
		c.Release()
	}
}

func (d *Data) add(b []byte, next int64) {
	if len(b) == 0 {
		return
	}
	d.Parts = append(d.Parts, b)
	d.size += len(b)
	d.Next = next
}

// Read returns whole batches from the one that holds off, or the next after it, of at most max bytes but at least one
// batch, across segment borders. localseg.ErrOffsetOutOfRange: off is below the archive's log start or not below Through.
// Other errors: *CorruptError, ErrLeaseLapsed, and those of the object store, of which objstore.Retryable may be tried again.
func (p *Partition) Read(ctx context.Context, off int64, max int) (Data, error) {
	v := p.view.Load()
	d, err := retryGone(ctx, p.a, v, p.reread, func(m *manifest.Manifest) (Data, error) {
		return p.a.objects.read(ctx, m, off, max)
	})
	p.a.m.read(d.size, err)
	if err == nil {
		p.a.readAhead(&p.seq, p.view.Load().man, off, d)
	}
	return d, err
}

// retryGone runs a read on a committed manifest and, if an object it lists is gone, once more on a newer one: the
// reader was overtaken by a commit or by collection (BUG-085). Gone twice is damage.
func retryGone[T any](ctx context.Context, a *Archive, v *view, newer func(context.Context, *view) (*view, error),
	f func(*manifest.Manifest) (T, error)) (T, error) {
	out, err := f(v.man)
	if !errors.Is(err, objstore.ErrNotFound) {
		return out, err
	}
	fresh, ferr := newer(ctx, v)
	if ferr != nil {
		return out, fmt.Errorf("read the manifest again: %w", ferr)
	}
	if out, err = f(fresh.man); errors.Is(err, objstore.ErrNotFound) {
		var c *CorruptError
		if !errors.As(err, &c) {
			a.m.corrupt.Inc()
			err = &CorruptError{Object: fresh.ptr.Manifest, Chunk: -1, Err: fmt.Errorf("it lists an object that is missing: %w", err)}
		}
	}
	return out, err
}

// read collects batches from off on, entry by entry. What was read before a failure is returned without it.
func (o *objects) read(ctx context.Context, m *manifest.Manifest, off int64, max int) (Data, error) {
	if off < m.LogStart || off >= m.Through {
		return Data{}, fmt.Errorf("archived offsets are [%d, %d), not %d: %w", m.LogStart, m.Through, off, localseg.ErrOffsetOutOfRange)
	}
	d := Data{Base: -1, Next: off}
	for e, err := range o.live(ctx, m, off, nil) {
		more := false
		if err == nil {
			more, err = o.readEntry(ctx, &d, e, off, max)
		}
		if err != nil {
			if d.size > 0 {
				return d, nil
			}
			d.Release()
			return Data{}, err
		}
		if more {
			return d, nil
		}
	}
	if d.size == 0 {
		d.Base, d.Next = m.Through, m.Through
	}
	return d, nil
}

// readEntry appends batches of one entry. full: the bytes asked for are there, or another entry would exceed them.
func (o *objects) readEntry(ctx context.Context, d *Data, e *manifest.Entry, off int64, max int) (full bool, err error) {
	if d.size >= max && d.size > 0 {
		return true, nil
	}
	f, err := o.footer(ctx, e)
	if err != nil {
		return false, err
	}
	from := off
	if from < e.Base {
		from = e.Base
	}
	for i := f.ChunkAt(from); i < len(f.Chunks) && f.Chunks[i].First < e.End; i++ {
		if d.size >= max && d.size > 0 {
			return true, nil
		}
		full, err = o.readChunk(ctx, d, e, f, i, from, max)
		if full || err != nil {
			return full, err
		}
	}
	return false, nil
}

func (o *objects) readChunk(ctx context.Context, d *Data, e *manifest.Entry, f *manifest.Footer, i int, from int64, max int) (full bool, err error) {
	pc, err := o.chunk(ctx, e, f, i)
	if err != nil {
		return false, err
	}
	keep := false
	defer func() {
		if !keep {
			pc.release()
		}
	}()
	t, err := cutChunk(f, i, pc.bytes, from, e.End, max-d.size, d.size == 0)
	if err != nil {
		o.m.corrupt.Inc()
		return false, &CorruptError{Archive: e.Archive, Object: e.Object, Chunk: int32(i), Err: err}
	}
	if len(t.whole) > 0 {
		if d.size == 0 {
			d.Base = record.Batch(t.whole).BaseOffset()
		}
		d.add(t.whole, t.next)
		if pc.chunk != nil {
			d.chunks = append(d.chunks, pc.chunk)
			keep = true
		}
	}
	if t.cut != nil {
		if d.size == 0 {
			d.Base = t.cut.BaseOffset()
		}
		d.add(t.cut, t.next)
	}
	return t.more, nil
}

// cutChunk takes what is wanted of a chunk, without looking at its batches where all of them are.
func cutChunk(f *manifest.Footer, i int, b []byte, from, end int64, size int, atLeastOne bool) (taken, error) {
	last := i == len(f.Chunks)-1
	if from <= f.Chunks[i].First && !last && f.Chunks[i+1].First <= end && len(b) <= size && len(b) >= record.HeaderSize {
		return taken{whole: b, next: f.Chunks[i+1].First}, nil
	}
	b, err := skipTo(b[indexed(f, i, from):], from)
	if err != nil {
		return taken{}, err
	}
	return take(b, end, size, atLeastOne)
}

// indexed is a position in the chunk, of a batch at or before the one that holds off.
func indexed(f *manifest.Footer, chunk int, off int64) int64 {
	c := f.Chunks[chunk]
	i := sort.Search(len(f.Index), func(i int) bool { return f.Index[i].Offset > off }) - 1
	if i < 0 || f.Index[i].Pos < c.Pos || f.Index[i].Pos >= c.Pos+c.Size {
		return 0
	}
	return f.Index[i].Pos - c.Pos
}
