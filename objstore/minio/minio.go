// Package minio is an object store spoken to by minio-go, the client to take where the AWS SDK and a store disagree.
//
// It addresses, trusts and gets credentials as package s3 does. Trailing checksums are off, since over plain HTTP not
// every store takes them: bodies go up unsigned with a CRC-32C header. minio-go does not correct a wrong local clock;
// the store's refusal says so.
package minio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	miniogo "github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/internal/s3api"
)

// Config addresses a bucket of an S3 store.
type Config = s3api.Config

// New returns the bucket that c addresses, with credentials from the AWS chain. It makes no requests.
func New(ctx context.Context, c Config) (*s3api.Bucket, error) {
	l, err := s3api.Load(ctx, c)
	if err != nil {
		return nil, err
	}
	endpoint := l.Endpoint
	if endpoint == "" {
		endpoint = "https://s3." + l.Region + ".amazonaws.com"
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("open S3 bucket %s: bad endpoint", l.Bucket)
	}
	lookup := miniogo.BucketLookupDNS
	if l.PathStyle {
		lookup = miniogo.BucketLookupPath
	}
	core, err := miniogo.NewCore(u.Host, &miniogo.Options{
		Creds:        credentials.New(&provider{below: l.Credentials}),
		Secure:       u.Scheme == "https",
		Transport:    l.HTTP.Transport,
		Region:       l.Region,
		BucketLookup: lookup,
		MaxRetries:   1,
	})
	if err != nil {
		return nil, fmt.Errorf("open S3 bucket %s: %w", l.Bucket, err)
	}
	return s3api.NewBucket(l, &api{core: core, bucket: l.Bucket}), nil
}

// provider hands out the chain's credentials. The chain caches them, so they are asked for at each request: that is how
// an invalidation gets through.
type provider struct{ below *s3api.Credentials }

func (p *provider) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	ctx := context.Background()
	if cc != nil && cc.Context != nil {
		ctx = cc.Context
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	v, err := p.below.Retrieve(ctx)
	if err != nil {
		return credentials.Value{}, err
	}
	return credentials.Value{
		AccessKeyID: v.AccessKeyID, SecretAccessKey: v.SecretAccessKey, SessionToken: v.SessionToken, SignerType: credentials.SignatureV4,
	}, nil
}

func (p *provider) Retrieve() (credentials.Value, error) { return p.RetrieveWithCredContext(nil) }

func (p *provider) IsExpired() bool { return true }

type api struct {
	core   *miniogo.Core
	bucket string
}

const crc32cHeader = "X-Amz-Checksum-Crc32c"

func options(cond objstore.Cond) miniogo.PutObjectOptions {
	o := miniogo.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true}
	if cond.IfNoneMatch {
		o.SetMatchETagExcept("*")
	}
	if cond.IfMatch != "" {
		o.SetMatchETag(strings.Trim(cond.IfMatch, `"`))
	}
	return o
}

func (a *api) Put(ctx context.Context, key string, body *io.SectionReader, crc32c string, cond objstore.Cond) (string, error) {
	o := options(cond)
	o.UserMetadata = map[string]string{crc32cHeader: crc32c}
	out, err := a.core.PutObject(ctx, a.bucket, key, body, body.Size(), "", "", o)
	return quote(out.ETag), err
}

// quote undoes minio-go's trimming, so that an ETag is the same through both clients.
func quote(etag string) string {
	if etag == "" || strings.HasPrefix(etag, `"`) {
		return etag
	}
	return `"` + etag + `"`
}

func (a *api) Get(ctx context.Context, key, byteRange string) (io.ReadCloser, error) {
	var o miniogo.GetObjectOptions
	if byteRange != "" {
		o.Set("Range", byteRange)
	}
	rc, _, _, err := a.core.GetObject(ctx, a.bucket, key, o)
	return rc, err
}

func (a *api) Head(ctx context.Context, key string) (objstore.Info, error) {
	out, err := a.core.StatObject(ctx, a.bucket, key, miniogo.StatObjectOptions{})
	if err != nil {
		return objstore.Info{}, err
	}
	return objstore.Info{Size: out.Size, ETag: quote(out.ETag), Modified: out.LastModified}, nil
}

// ListPage goes by start-after instead of tokens, since minio-go's single requests take no context. So a page must be in
// byte order, or the next one would leave out objects.
func (a *api) ListPage(ctx context.Context, prefix, after, token string, max int) ([]objstore.Info, string, error) {
	if token != "" {
		after = token
	}
	noOwner := false
	page := make([]objstore.Info, 0, max)
	for o := range a.core.ListObjectsIter(ctx, a.bucket, miniogo.ListObjectsOptions{
		Prefix: prefix, StartAfter: after, Recursive: true, MaxKeys: max, FetchOwner: &noOwner,
	}) {
		if o.Err != nil {
			return nil, "", o.Err
		}
		if o.Key <= after {
			continue
		}
		if n := len(page); n > 0 && page[n-1].Key >= o.Key {
			return nil, "", miniogo.ErrorResponse{
				Code: "NotImplemented", StatusCode: http.StatusNotImplemented,
				Message: fmt.Sprintf("the store lists out of byte order: %q comes after %q", o.Key, page[n-1].Key),
			}
		}
		page = append(page, objstore.Info{Key: o.Key, Size: o.Size, ETag: quote(strings.Trim(o.ETag, `"`)), Modified: o.LastModified})
		if len(page) == max {
			return page, o.Key, nil
		}
	}
	return page, "", ctx.Err() // a listing that was cancelled just ends
}

func (a *api) Delete(ctx context.Context, key string) error {
	return a.core.RemoveObject(ctx, a.bucket, key, miniogo.RemoveObjectOptions{})
}

func (a *api) DeleteMany(ctx context.Context, keys []string) error {
	results, err := a.core.RemoveObjectsWithIter(ctx, a.bucket, func(yield func(miniogo.ObjectInfo) bool) {
		for _, key := range keys {
			if !yield(miniogo.ObjectInfo{Key: key}) {
				return
			}
		}
	}, miniogo.RemoveObjectsOptions{})
	if err != nil {
		return err
	}
	for r := range results {
		if r.Err != nil && miniogo.ToErrorResponse(r.Err).Code != miniogo.NoSuchKey {
			return r.Err
		}
	}
	return ctx.Err()
}

func (a *api) CreateUpload(ctx context.Context, key string) (string, error) {
	o := options(objstore.Cond{})
	o.UserMetadata = map[string]string{"X-Amz-Checksum-Algorithm": "CRC32C"}
	return a.core.NewMultipartUpload(ctx, a.bucket, key, o)
}

func (a *api) UploadPart(ctx context.Context, u s3api.Upload, part int32, body *io.SectionReader, crc32c string) (string, error) {
	h := http.Header{}
	h.Set(crc32cHeader, crc32c)
	h.Set("X-Amz-Sdk-Checksum-Algorithm", "CRC32C")
	out, err := a.core.PutObjectPart(ctx, a.bucket, u.Key, u.ID, int(part), body, body.Size(), miniogo.PutObjectPartOptions{
		CustomHeader: h, DisableContentSha256: true,
	})
	return out.ETag, err
}

func (a *api) CompleteUpload(ctx context.Context, u s3api.Upload, parts []s3api.Part, cond objstore.Cond) (string, error) {
	done := make([]miniogo.CompletePart, len(parts))
	for i, p := range parts {
		done[i] = miniogo.CompletePart{PartNumber: int(p.Number), ETag: p.ETag, ChecksumCRC32C: p.CRC32C}
	}
	out, err := a.core.CompleteMultipartUpload(ctx, a.bucket, u.Key, u.ID, done, options(cond))
	return quote(out.ETag), err
}

func (a *api) AbortUpload(ctx context.Context, u s3api.Upload) error {
	return a.core.AbortMultipartUpload(ctx, a.bucket, u.Key, u.ID)
}

func (a *api) ListUploads(ctx context.Context, after s3api.Upload) ([]s3api.Upload, s3api.Upload, bool, error) {
	out, err := a.core.ListMultipartUploads(ctx, a.bucket, "", after.Key, after.ID, "", 1000)
	if err != nil {
		return nil, after, false, err
	}
	page := make([]s3api.Upload, 0, len(out.Uploads))
	for _, u := range out.Uploads {
		page = append(page, s3api.Upload{Key: u.Key, ID: u.UploadID, Begun: u.Initiated})
	}
	next := s3api.Upload{Key: out.NextKeyMarker, ID: out.NextUploadIDMarker}
	more := out.IsTruncated && next != s3api.Upload{} && next != after
	return page, next, more, nil
}

// Explain takes a minio-go error apart. For an answer without a body minio-go makes the code up from the status.
func (a *api) Explain(err error) s3api.Failure {
	f := s3api.Failure{Err: err}
	var answer miniogo.ErrorResponse
	if errors.As(err, &answer) {
		f.Code, f.Status = answer.Code, answer.StatusCode
	}
	if strings.Contains(f.Code, " ") {
		f.Code = ""
	}
	return f
}
