package s3api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/varvelog/varve/objstore"
)

// API is a client library's S3, one request a method, without repetition. Keys are whole. Its errors go through Explain
// and nowhere else. All methods may be called concurrently.
type API interface {
	Put(ctx context.Context, key string, body *io.SectionReader, crc32c string, cond objstore.Cond) (etag string, err error)
	// Get asks for the bytes of the Range header's value, for all of them if that is "".
	Get(ctx context.Context, key, byteRange string) (io.ReadCloser, error)
	Head(ctx context.Context, key string) (objstore.Info, error)
	// ListPage returns a page and the token of the next one, "" if there is none.
	ListPage(ctx context.Context, prefix, after, token string, max int) (page []objstore.Info, next string, err error)
	Delete(ctx context.Context, key string) error
	// DeleteMany deletes at most 1000 keys.
	DeleteMany(ctx context.Context, keys []string) error
	CreateUpload(ctx context.Context, key string) (id string, err error)
	UploadPart(ctx context.Context, u Upload, part int32, body *io.SectionReader, crc32c string) (etag string, err error)
	CompleteUpload(ctx context.Context, u Upload, parts []Part, cond objstore.Cond) (etag string, err error)
	AbortUpload(ctx context.Context, u Upload) error
	// ListUploads lists the whole bucket: some stores show nothing if asked for a prefix.
	ListUploads(ctx context.Context, after Upload) (page []Upload, next Upload, more bool, err error)
	Explain(err error) Failure
}

// Bucket is an objstore.Bucket over single S3 requests.
type Bucket struct {
	api    API
	c      Config
	creds  *Credentials
	store  string // for errors
	prefix string // with its slash

	mu      sync.Mutex
	uploads map[Upload]struct{} // guarded by mu; in progress in this process
	noBatch bool                // guarded by mu; the store cannot delete many at once
}

// NewBucket returns the bucket of l, whose requests go through api.
func NewBucket(l *Loaded, api API) *Bucket {
	b := &Bucket{api: api, c: l.Config, creds: l.Credentials, store: storeName(l.Config), uploads: make(map[Upload]struct{})}
	if l.Prefix != "" {
		b.prefix = l.Prefix + "/"
	}
	return b
}

func storeName(c Config) string {
	host := "s3." + c.Region + ".amazonaws.com"
	if u, err := url.Parse(c.Endpoint); err == nil && u.Host != "" {
		host = u.Host
	}
	return host + "/" + c.Bucket
}

// call makes one request. It is made a second time at once where the first told what was wrong with it: credentials
// that had expired early, or a clock that the client has corrected from the answer.
func (b *Bucket) call(ctx context.Context, op, key string, cond objstore.Cond, f func(context.Context) error) (Answer, error) {
	for try := 0; ; try++ {
		callCtx, answer := withAnswer(ctx)
		err := f(callCtx)
		if err == nil {
			return *answer, nil
		}
		fail := b.api.Explain(err)
		if fail.Status == 0 {
			fail.Status = answer.Status
			if fail.Status/100 == 2 {
				fail.Status = 0 // the answer broke off
			}
		}
		if try == 0 && ctx.Err() == nil && (fail.expired() || fail.skewed(answer)) {
			if fail.expired() {
				b.creds.Invalidate()
			}
			continue
		}
		hint, class := classify(ctx, fail, answer, cond)
		return *answer, &Error{Op: op, Key: key, Store: b.store, Class: class, Hint: hint, Failure: fail}
	}
}

// Put implements objstore.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body objstore.Body, cond objstore.Cond) (objstore.Info, error) {
	if err := b.check("put", key); err != nil {
		return objstore.Info{}, err
	}
	if body.Size > b.c.MultipartAbove {
		return b.putParts(ctx, key, body, cond)
	}
	var etag string
	a, err := b.call(ctx, "put", key, cond, func(ctx context.Context) (err error) {
		etag, err = b.api.Put(ctx, b.prefix+key, body.Reader(), checksum(body.CRC32C), cond)
		return err
	})
	if err != nil {
		return objstore.Info{}, err
	}
	return b.written(key, body.Size, etag, a), nil
}

// written describes an object that was just made. S3 does not say its modification time, which is the time of the answer
// to within a second.
func (b *Bucket) written(key string, size int64, etag string, a Answer) objstore.Info {
	return objstore.Info{Key: key, Size: size, ETag: etag, Modified: a.Date, Date: a.Date}
}

// Head implements objstore.Bucket.
func (b *Bucket) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := b.check("head", key); err != nil {
		return objstore.Info{}, err
	}
	var info objstore.Info
	a, err := b.call(ctx, "head", key, objstore.Cond{}, func(ctx context.Context) (err error) {
		info, err = b.api.Head(ctx, b.prefix+key)
		return err
	})
	if err != nil {
		return objstore.Info{}, err
	}
	info.Key, info.Date = key, a.Date
	return info, nil
}

// Get implements objstore.Bucket.
func (b *Bucket) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := b.check("get", key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, fmt.Errorf("get %s: negative offset %d", key, off)
	}
	if n == 0 {
		info, err := b.Head(ctx, key) // there is no empty range in HTTP
		if err != nil {
			return nil, err
		}
		return objstore.Exactly(http.NoBody, 0, info), nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var rc io.ReadCloser
	a, err := b.call(ctx, "get", key, objstore.Cond{}, func(ctx context.Context) (err error) {
		rc, err = b.api.Get(ctx, b.prefix+key, rangeHeader(off, n))
		return err
	})
	if err != nil {
		cancel(nil)
		if a.Status == http.StatusRequestedRangeNotSatisfiable {
			return objstore.Exactly(http.NoBody, 0, b.described(key, a)), nil // begins at or behind the end
		}
		return nil, err
	}
	want, err := wanted(a, off, n)
	if err != nil {
		cancel(nil)
		rc.Close()
		return nil, &Error{Op: "get", Key: key, Store: b.store, Class: objstore.ErrUnsupported, Failure: Failure{Status: a.Status, Err: err}}
	}
	return objstore.Exactly(newStallReader(rc, b.c.StallTimeout, cancel), want, b.described(key, a)), nil
}

func rangeHeader(off, n int64) string {
	switch {
	case n >= 0 && off <= (1<<63-1)-n:
		return fmt.Sprintf("bytes=%d-%d", off, off+n-1)
	case off > 0:
		return fmt.Sprintf("bytes=%d-", off)
	}
	return ""
}

// described is what the header of a GET tells. The size is the object's, also of a range.
func (b *Bucket) described(key string, a Answer) objstore.Info {
	info := objstore.Info{Key: key, ETag: a.Header.Get("ETag"), Date: a.Date}
	info.Modified, _ = http.ParseTime(a.Header.Get("Last-Modified"))
	if _, _, size, ok := contentRange(a.Header); ok {
		info.Size = size
	} else {
		info.Size, _ = strconv.ParseInt(a.Header.Get("Content-Length"), 10, 64)
	}
	return info
}

// wanted is the number of bytes that the body must have, by the answer's own header checked against what was asked for.
func wanted(a Answer, off, n int64) (int64, error) {
	length, err := strconv.ParseInt(a.Header.Get("Content-Length"), 10, 64)
	if err != nil || length < 0 {
		return 0, errors.New("answer without a length")
	}
	if a.Status != http.StatusPartialContent {
		if off == 0 && (n < 0 || length <= n) {
			return length, nil
		}
		return 0, errors.New("the store ignores ranges")
	}
	from, end, size, ok := contentRange(a.Header)
	expected := size - off
	if n >= 0 {
		expected = min(expected, n)
	}
	if !ok || from != off || end-from != length || length != expected {
		return 0, fmt.Errorf("asked for %d bytes at %d, the answer has Content-Range %q", n, off, a.Header.Get("Content-Range"))
	}
	return length, nil
}

// contentRange parses "bytes 0-9/100" into [0, 10) of 100, and "bytes */100".
func contentRange(h http.Header) (from, end, size int64, ok bool) {
	s, found := strings.CutPrefix(h.Get("Content-Range"), "bytes ")
	span, total, slash := strings.Cut(s, "/")
	if !found || !slash {
		return 0, 0, 0, false
	}
	size, err := strconv.ParseInt(total, 10, 64)
	if err != nil || size < 0 {
		return 0, 0, 0, false
	}
	if span == "*" {
		return 0, 0, size, true
	}
	first, last, _ := strings.Cut(span, "-")
	from, err1 := strconv.ParseInt(first, 10, 64)
	end, err2 := strconv.ParseInt(last, 10, 64)
	if err1 != nil || err2 != nil || from < 0 || end < from || end >= size {
		return 0, 0, 0, false
	}
	return from, end + 1, size, true
}

// Delete implements objstore.Bucket.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := b.check("delete", key); err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(keys, 1000) {
		if err := b.deleteBatch(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bucket) deleteBatch(ctx context.Context, keys []string) error {
	b.mu.Lock()
	single := b.noBatch || len(keys) == 1
	b.mu.Unlock()
	if !single {
		whole := make([]string, len(keys))
		for i, key := range keys {
			whole[i] = b.prefix + key
		}
		_, err := b.call(ctx, "delete", fmt.Sprintf("%d objects from %s", len(keys), keys[0]), objstore.Cond{}, func(ctx context.Context) error {
			return b.api.DeleteMany(ctx, whole)
		})
		if !errors.Is(err, objstore.ErrUnsupported) {
			return err
		}
		b.mu.Lock()
		b.noBatch = true
		b.mu.Unlock()
	}
	for _, key := range keys {
		_, err := b.call(ctx, "delete", key, objstore.Cond{}, func(ctx context.Context) error { return b.api.Delete(ctx, b.prefix+key) })
		if err != nil && !errors.Is(err, objstore.ErrNotFound) {
			return err
		}
	}
	return nil
}

func (b *Bucket) check(op, key string) error {
	err := objstore.CheckKey(key)
	if err == nil && b.prefix != "" {
		err = objstore.CheckKey(b.prefix + key)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}
