package retry

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/varvelog/varve/objstore"
)

// resuming is the body of a Get that goes on after a break. One goroutine reads it.
type resuming struct {
	ctx    context.Context // of the Get, which bounds the reading too
	b      *Bucket
	key    string
	off, n int64
	read   int64
	breaks int
	rc     io.ReadCloser
}

func (r *resuming) ObjectInfo() objstore.Info {
	info, _ := objstore.InfoOf(r.rc)
	return info
}

func (r *resuming) Read(p []byte) (int, error) {
	for {
		n, err := r.rc.Read(p)
		r.read += int64(n)
		if err == nil || err == io.EOF || !objstore.Retryable(err) || r.ctx.Err() != nil {
			return n, err
		}
		r.b.o.Breaker.done(false)
		r.breaks++
		if n > 0 {
			r.breaks = 1
		}
		if r.breaks >= r.b.o.Attempts {
			return n, err
		}
		if again := r.resume(); again != nil {
			return n, fmt.Errorf("%w; resume: %w", err, again)
		}
		if n > 0 {
			return n, nil
		}
	}
}

func (r *resuming) resume() error {
	before, ok := objstore.InfoOf(r.rc)
	if !ok || before.ETag == "" {
		return errors.New("the answer had no ETag")
	}
	left := r.n
	if left >= 0 {
		left -= r.read
	}
	if err := sleep(r.ctx, r.b.pause(r.breaks)); err != nil {
		return err
	}
	rc, err := r.b.get(r.ctx, r.key, r.off+r.read, left)
	if err != nil {
		return err
	}
	if now, _ := objstore.InfoOf(rc); now.ETag != before.ETag {
		rc.Close()
		return errors.New("the object was replaced meanwhile")
	}
	r.rc.Close()
	r.rc = rc
	return nil
}

func (r *resuming) Close() error { return r.rc.Close() }
