package objstore

import (
	"fmt"
	"io"
)

// Described is what the reader that Get returns implements where the store's answer told more than bytes: the ETag,
// the object's whole size, the Date. Fields that the answer did not have are zero.
type Described interface {
	ObjectInfo() Info
}

// InfoOf returns what the answer to a Get told about the object.
func InfoOf(r io.Reader) (Info, bool) {
	d, ok := r.(Described)
	if !ok {
		return Info{}, false
	}
	return d.ObjectInfo(), true
}

// Exactly wraps the body of an answer that must have want bytes. A body that ends early, for whatever reason, is
// ErrUnavailable and never looks like the end of the object; one that has more is cut.
func Exactly(rc io.ReadCloser, want int64, info Info) io.ReadCloser {
	return &exactReader{rc: rc, left: want, want: want, info: info}
}

type exactReader struct {
	rc   io.ReadCloser
	left int64
	want int64
	info Info
}

func (r *exactReader) ObjectInfo() Info { return r.info }

func (r *exactReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > r.left {
		p = p[:r.left]
	}
	n, err := r.rc.Read(p)
	r.left -= int64(n)
	switch {
	case err == nil:
		return n, nil
	case r.left == 0:
		return n, io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, fmt.Errorf("read %s: body ended after %d of %d bytes: %w: %w", r.info.Key, r.want-r.left, r.want, ErrUnavailable, err)
}

func (r *exactReader) Close() error { return r.rc.Close() }
