package objtest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/minio"
	"github.com/varvelog/varve/objstore/objtest"
	"github.com/varvelog/varve/objstore/retry"
	"github.com/varvelog/varve/objstore/s3"
)

// parts opens the server's bucket with small parts.
func parts(t *testing.T, server *objtest.Server, client, prefix string) objstore.Bucket {
	t.Helper()
	c := s3.Config{
		Bucket: server.Bucket, Prefix: prefix, Endpoint: server.Endpoint, PathStyle: true, PartSize: 5 << 20, MultipartAbove: 6 << 20,
	}
	var b objstore.Bucket
	var err error
	if client == "minio" {
		b, err = minio.New(t.Context(), c)
	} else {
		b, err = s3.New(t.Context(), c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openUploads(t *testing.T, server *objtest.Server) int {
	t.Helper()
	out, err := server.Client().ListMultipartUploads(t.Context(), &awss3.ListMultipartUploadsInput{Bucket: &server.Bucket})
	if err != nil {
		t.Fatal(err)
	}
	return len(out.Uploads)
}

func beginUpload(t *testing.T, server *objtest.Server, key string) {
	t.Helper()
	if _, err := server.Client().CreateMultipartUpload(t.Context(), &awss3.CreateMultipartUploadInput{Bucket: &server.Bucket, Key: aws.String(key)}); err != nil {
		t.Fatal(err)
	}
}

// failingBody gives good bytes at first and fails from the given offset on.
type failingBody struct {
	io.ReaderAt
	from int64
}

func (f failingBody) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.from {
		return 0, errors.New("the disk has failed")
	}
	return f.ReaderAt.ReadAt(p, off)
}

// gate holds the first read behind an offset until it is opened.
type gate struct {
	io.ReaderAt
	from          int64
	held          atomic.Bool
	reached, open chan struct{}
}

func (g *gate) ReadAt(p []byte, off int64) (int, error) {
	if off >= g.from && g.held.CompareAndSwap(false, true) {
		close(g.reached)
		<-g.open
	}
	return g.ReaderAt.ReadAt(p, off)
}

func TestLargeBodiesGoUpInParts(t *testing.T) {
	server := objtest.Start(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 12<<20/16+1)
	whole := objstore.BytesBody(data)
	create := objstore.Cond{IfNoneMatch: true}
	for _, client := range []string{"aws", "minio"} {
		t.Run(client, func(t *testing.T) {
			ctx := t.Context()
			b := parts(t, server, client, client)
			same := func(key string) {
				t.Helper()
				got, info, err := objstore.ReadAll(ctx, b, key, 1<<30)
				if err != nil || !bytes.Equal(got, data) {
					t.Fatalf("%s: %d bytes, %+v, %v", key, len(got), info, err)
				}
			}
			info, err := b.Put(ctx, "large", whole, create)
			if err != nil {
				t.Fatal(err)
			}
			same("large")
			head, err := b.Head(ctx, "large")
			if err != nil || head.ETag != info.ETag || head.Size != info.Size || info.Date.IsZero() {
				t.Fatalf("head %+v, put %+v, %v", head, info, err)
			}

			// Somebody else wins while the parts are under way: the completion decides.
			g := &gate{ReaderAt: whole.R, from: 10 << 20, reached: make(chan struct{}), open: make(chan struct{})}
			result := make(chan error, 1)
			go func() {
				_, err := b.Put(ctx, "raced", objstore.FileBody(g, whole.Size, whole.CRC32C), create)
				result <- err
			}()
			<-g.reached
			if _, err := b.Put(ctx, "raced", objstore.BytesBody([]byte("winner")), create); err != nil {
				t.Fatal(err)
			}
			close(g.open)
			if err := <-result; !errors.Is(err, objstore.ErrExists) {
				t.Fatalf("a lost create: %v", err)
			}
			if got, _, err := objstore.ReadAll(ctx, b, "raced", 100); err != nil || string(got) != "winner" {
				t.Fatalf("object is %q, %v", got, err)
			}
			if _, err := b.Put(ctx, "large", whole, create); !errors.Is(err, objstore.ErrExists) {
				t.Fatalf("create of what exists: %v", err)
			}

			wrong := whole
			wrong.CRC32C++
			if _, err := b.Put(ctx, "wrong", wrong, create); !errors.Is(err, objstore.ErrChecksum) {
				t.Fatalf("wrong checksum: %v", err)
			}
			if _, err := b.Put(ctx, "failed", objstore.FileBody(failingBody{whole.R, 9 << 20}, whole.Size, whole.CRC32C), create); err == nil {
				t.Fatal("a body that cannot be read was put")
			}
			cancelled, cancel := context.WithCancel(ctx)
			g = &gate{ReaderAt: whole.R, from: 10 << 20, reached: make(chan struct{}), open: make(chan struct{})}
			go func() {
				_, err := b.Put(cancelled, "cancelled", objstore.FileBody(g, whole.Size, whole.CRC32C), create)
				result <- err
			}()
			<-g.reached
			cancel()
			close(g.open)
			if err := <-result; !errors.Is(err, context.Canceled) {
				t.Fatalf("cancelled: %v", err)
			}
			for _, key := range []string{"wrong", "failed", "cancelled"} {
				if _, err := b.Head(ctx, key); !errors.Is(err, objstore.ErrNotFound) {
					t.Errorf("%s: %v", key, err)
				}
			}
			if n := openUploads(t, server); n != 0 {
				t.Errorf("%d uploads are open", n)
			}
		})
	}
}

// BUG-046: what a killed writer leaves is swept, what is in progress is not.
func TestUploadsOfDeadWritersAreSwept(t *testing.T) {
	server := objtest.Start(t)
	whole := objstore.BytesBody(bytes.Repeat([]byte("x"), 7<<20))
	for _, client := range []string{"aws", "minio"} {
		t.Run(client, func(t *testing.T) {
			ctx := t.Context()
			b := parts(t, server, client, client)
			beginUpload(t, server, client+"/s/dead")
			beginUpload(t, server, client+"/t/other-place")
			g := &gate{ReaderAt: whole.R, from: 5 << 20, reached: make(chan struct{}), open: make(chan struct{})}
			result := make(chan error, 1)
			go func() {
				_, err := b.Put(ctx, "s/alive", objstore.FileBody(g, whole.Size, whole.CRC32C), objstore.Cond{IfNoneMatch: true})
				result <- err
			}()
			<-g.reached
			sweeper := retry.New(b, retry.Options{}) // decorators are looked through
			if n, err := objstore.SweepUploads(ctx, sweeper, "s/", time.Now().Add(-time.Hour)); err != nil || n != 0 {
				t.Fatalf("swept %d young uploads, %v", n, err)
			}
			if n, err := objstore.SweepUploads(ctx, sweeper, "s/", time.Now().Add(time.Hour)); err != nil || n != 1 {
				t.Fatalf("swept %d, want the dead one, %v", n, err)
			}
			close(g.open)
			if err := <-result; err != nil {
				t.Fatalf("the living upload: %v", err)
			}
			if n, err := objstore.SweepUploads(ctx, sweeper, "", time.Now().Add(time.Hour)); err != nil || n != 1 {
				t.Fatalf("swept %d, want the one of the other place, %v", n, err)
			}
			if n := openUploads(t, server); n != 0 {
				t.Errorf("%d uploads are open", n)
			}
		})
	}
}

// A part whose bytes change between the checksum and the upload is refused by the store.
func TestAPartThatChangesOnItsWayIsRefused(t *testing.T) {
	server := objtest.Start(t)
	data := bytes.Repeat([]byte("x"), 7<<20)
	whole := objstore.BytesBody(data)
	for _, client := range []string{"aws", "minio"} {
		b := parts(t, server, client, client)
		_, err := b.Put(t.Context(), "k", objstore.FileBody(&changing{data: data}, whole.Size, whole.CRC32C), objstore.Cond{})
		if !errors.Is(err, objstore.ErrChecksum) {
			t.Errorf("%s: %v", client, err)
		}
		if _, err := b.Head(t.Context(), "k"); !errors.Is(err, objstore.ErrNotFound) {
			t.Errorf("%s: %v", client, err)
		}
	}
	if n := openUploads(t, server); n != 0 {
		t.Errorf("%d uploads are open", n)
	}
}

// changing gives another byte at 6 MiB whenever it is read again.
type changing struct {
	data  []byte
	reads atomic.Int64
}

func (c *changing) ReadAt(p []byte, off int64) (int, error) {
	n, err := bytes.NewReader(c.data).ReadAt(p, off)
	if i := int64(6<<20) - off; i >= 0 && i < int64(n) && c.reads.Add(1) > 1 {
		p[i] = 'y'
	}
	return n, err
}
