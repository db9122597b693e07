package objtest_test

import (
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/objtest"
	"github.com/varvelog/varve/objstore/open"
)

// cpu is the processor time that this process, the client, has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func report(b *testing.B, used time.Duration, bytes int64) {
	b.ReportMetric(used.Seconds()/(float64(bytes)*float64(b.N)/(1<<30)), "cpu-s/GiB")
}

func benchS3(b *testing.B, run func(b *testing.B, bucket objstore.Bucket)) {
	server := objtest.Start(b)
	for _, client := range []string{"aws", "minio"} {
		b.Run(client, func(b *testing.B) {
			bucket, err := open.Plain(b.Context(), server.URL(client, client), open.Options{})
			if err != nil {
				b.Fatal(err)
			}
			run(b, bucket)
		})
	}
}

func BenchmarkPut8MiB(b *testing.B) {
	body := objstore.BytesBody(make([]byte, 8<<20))
	benchS3(b, func(b *testing.B, bucket objstore.Bucket) {
		b.SetBytes(body.Size)
		b.ReportAllocs()
		start, i := cpu(b), 0
		for b.Loop() {
			if _, err := bucket.Put(b.Context(), fmt.Sprintf("k/%d", i%8), body, objstore.Cond{}); err != nil {
				b.Fatal(err)
			}
			i++
		}
		report(b, cpu(b)-start, body.Size)
	})
}

func BenchmarkGet8MiB(b *testing.B) {
	body := objstore.BytesBody(make([]byte, 8<<20))
	benchS3(b, func(b *testing.B, bucket objstore.Bucket) {
		if _, err := bucket.Put(b.Context(), "k", body, objstore.Cond{}); err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, 256<<10)
		b.SetBytes(body.Size)
		b.ReportAllocs()
		start := cpu(b)
		for b.Loop() {
			rc, err := bucket.Get(b.Context(), "k", 0, body.Size)
			if err != nil {
				b.Fatal(err)
			}
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{rc}, buf)
			if err != nil || n != body.Size {
				b.Fatal(n, err)
			}
			rc.Close()
		}
		report(b, cpu(b)-start, body.Size)
	})
}

func BenchmarkPut4KiB(b *testing.B) {
	body := objstore.BytesBody(make([]byte, 4<<10))
	benchS3(b, func(b *testing.B, bucket objstore.Bucket) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if _, err := bucket.Put(b.Context(), fmt.Sprintf("s/%d", i%64), body, objstore.Cond{}); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}
