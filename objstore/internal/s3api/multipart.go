package s3api

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/objstore"
)

// Upload is a multipart upload that has begun. Begun is set by listings only.
type Upload struct {
	Key, ID string
	Begun   time.Time
}

// Part is an uploaded part; numbers count from 1.
type Part struct {
	Number int32
	ETag   string
	CRC32C string
}

const maxParts = 10_000

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the value of x-amz-checksum-crc32c.
func checksum(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

// putParts uploads a large body. The condition is the completion's: nothing shows before it, and it decides like a Put.
//  1. begin the upload, and note it as ours
//  2. upload the parts, each with its CRC-32C, while the body's CRC-32C is computed from the same bytes
//  3. refuse a body that is not what was announced
//  4. complete
//
// Whatever fails, the upload is aborted: a completion of unknown outcome has either made the object, then there is
// nothing to abort, or will not make it any more.
func (b *Bucket) putParts(ctx context.Context, key string, body objstore.Body, cond objstore.Cond) (objstore.Info, error) {
	if cond.IfNoneMatch {
		// Losing the race after the upload would cost all its bytes.
		if _, err := b.Head(ctx, key); err == nil {
			return objstore.Info{}, &Error{Op: "put", Key: key, Store: b.store, Class: objstore.ErrExists, Failure: Failure{Err: errors.New("seen before the upload")}}
		}
	}
	u, err := b.begin(ctx, key)
	if err != nil {
		return objstore.Info{}, err
	}
	defer b.forget(u)
	parts, err := b.uploadParts(ctx, key, u, body)
	if err != nil {
		b.abort(ctx, key, u)
		return objstore.Info{}, err
	}
	var etag string
	a, err := b.call(ctx, "complete upload of", key, cond, func(ctx context.Context) (err error) {
		etag, err = b.api.CompleteUpload(ctx, u, parts, cond)
		return err
	})
	if err != nil {
		b.abort(ctx, key, u)
		return objstore.Info{}, err
	}
	return b.written(key, body.Size, etag, a), nil
}

func (b *Bucket) begin(ctx context.Context, key string) (Upload, error) {
	u := Upload{Key: b.prefix + key}
	_, err := b.call(ctx, "begin upload of", key, objstore.Cond{}, func(ctx context.Context) (err error) {
		u.ID, err = b.api.CreateUpload(ctx, u.Key)
		return err
	})
	if err != nil {
		return u, err
	}
	b.mu.Lock()
	b.uploads[u] = struct{}{}
	b.mu.Unlock()
	return u, nil
}

func (b *Bucket) forget(u Upload) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.uploads, u)
}

// abort cleans up also after ctx has ended. A part whose request was given up may still be on its way to the store and arrive after the
// abort, so that there is something to abort again (as S3's own documentation says). What it cannot abort is left to SweepUploads.
func (b *Bucket) abort(ctx context.Context, key string, u Upload) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for try := range 3 {
		if try > 0 {
			time.Sleep(time.Duration(try) * abortAgain)
		}
		_, err := b.call(ctx, "abort upload of", key, objstore.Cond{}, func(ctx context.Context) error { return b.api.AbortUpload(ctx, u) })
		var e *Error
		if errors.As(err, &e) && (e.Code == "NoSuchUpload" || e.Status == 404) {
			return
		}
	}
}

const abortAgain = 50 * time.Millisecond

// partSize doubles the configured size until the parts are few enough.
func (b *Bucket) partSize(size int64) int64 {
	n := b.c.PartSize
	for size/n >= maxParts {
		n *= 2
	}
	return n
}

func (b *Bucket) uploadParts(ctx context.Context, key string, u Upload, body objstore.Body) ([]Part, error) {
	size := b.partSize(body.Size)
	parts := make([]Part, 0, (body.Size+size-1)/size)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(b.c.UploadParts)
	whole := crc32.New(castagnoli)
	for off := int64(0); off < body.Size && gctx.Err() == nil; off += size {
		section := func() *io.SectionReader { return io.NewSectionReader(body.R, off, min(size, body.Size-off)) }
		part := crc32.New(castagnoli)
		if _, err := io.Copy(io.MultiWriter(part, whole), section()); err != nil {
			_ = g.Wait()
			return nil, fmt.Errorf("read body of %s: %w", key, err)
		}
		number := int32(len(parts) + 1)
		parts = append(parts, Part{Number: number, CRC32C: checksum(part.Sum32())})
		p := &parts[number-1]
		g.Go(func() error {
			_, err := b.call(gctx, fmt.Sprintf("upload part %d of", number), key, objstore.Cond{}, func(ctx context.Context) (err error) {
				p.ETag, err = b.api.UploadPart(ctx, u, number, section(), p.CRC32C)
				return err
			})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("put %s: %w: %w", key, objstore.ErrUnavailable, err)
	}
	if got := whole.Sum32(); got != body.CRC32C {
		return nil, fmt.Errorf("put %s: body has CRC-32C %08x, announced was %08x: %w", key, got, body.CRC32C, objstore.ErrChecksum)
	}
	return parts, nil
}

// SweepUploads implements objstore.Sweeper. It lists the uploads of the whole bucket, since MinIO shows none below a prefix.
func (b *Bucket) SweepUploads(ctx context.Context, prefix string, begunBefore time.Time) (int, error) {
	var after Upload
	swept := 0
	for {
		var page []Upload
		var more bool
		_, err := b.call(ctx, "list uploads of", prefix, objstore.Cond{}, func(ctx context.Context) (err error) {
			page, after, more, err = b.api.ListUploads(ctx, after)
			return err
		})
		if err != nil {
			return swept, err
		}
		for _, u := range page {
			if !b.stale(u, prefix, begunBefore) {
				continue
			}
			_, err := b.call(ctx, "abort upload of", u.Key, objstore.Cond{}, func(ctx context.Context) error { return b.api.AbortUpload(ctx, u) })
			var e *Error
			if errors.As(err, &e) && (e.Code == "NoSuchUpload" || e.Status == 404) {
				continue // somebody else was faster
			}
			if err != nil {
				return swept, err
			}
			swept++
		}
		if !more {
			return swept, nil
		}
	}
}

func (b *Bucket) stale(u Upload, prefix string, begunBefore time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ours := b.uploads[Upload{Key: u.Key, ID: u.ID}]
	return !ours && strings.HasPrefix(u.Key, b.prefix+prefix) && u.Begun.Before(begunBefore)
}
