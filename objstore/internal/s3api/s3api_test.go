package s3api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/varvelog/varve/objstore"
)

func TestSecretsAreTakenOutOfTexts(t *testing.T) {
	for _, s := range []string{
		"Authorization: AWS4-HMAC-SHA256 Credential=SECRET123/20260101/us-east-1/s3/aws4_request, Signature=SECRET123",
		"https://host/k?X-Amz-Signature=SECRET123&X-Amz-Credential=SECRET123%2F2026",
		`"SecretAccessKey": "SECRET123"`, "<SessionToken>SECRET123</SessionToken>", "WebIdentityToken=SECRET123&x=y",
		"key AKIAIOSFODNN7SECRET123 is not known", "aws_secret_access_key = SECRET123",
	} {
		if got := Redact(s); strings.Contains(got, "SECRET123") {
			t.Errorf("%s\nis %s", s, got)
		}
	}
	plain := `put t/0/s/1 at 127.0.0.1:7070/data: object store unavailable: Put "http://127.0.0.1:7070/data/t/0/s/1": dial tcp: refused`
	if got := Redact(plain); got != plain {
		t.Errorf("%s\nis %s", plain, got)
	}
}

func TestConfigPrintsNoSecrets(t *testing.T) {
	c := Config{Bucket: "b", AccessKey: "ACCESS", SecretKey: "SECRET"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, c); strings.Contains(s, "ACCESS") || strings.Contains(s, "SECRET") {
			t.Errorf("%s: %s", format, s)
		}
	}
}

func TestPartsStayBelowTenThousand(t *testing.T) {
	b := &Bucket{c: Config{PartSize: 64 << 20}}
	for _, c := range []struct{ size, part int64 }{
		{101 << 20, 64 << 20}, {600 << 30, 64 << 20}, {640 << 30, 128 << 20}, {5 << 40, 1 << 30},
	} {
		if got := b.partSize(c.size); got != c.part || c.size/got >= 10_000 {
			t.Errorf("%d: parts of %d, want %d", c.size, got, c.part)
		}
	}
}

func TestAStalledBodyIsEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stalled := blockedReader{ctx}
	r := newStallReader(stalled, 20*time.Millisecond, cancel)
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, errStalled) {
		t.Fatal(err)
	}
	r.Close()
	r = newStallReader(io.NopCloser(iotest.OneByteReader(strings.NewReader("abc"))), time.Hour, func(error) {})
	if got, err := io.ReadAll(r); string(got) != "abc" || err != nil {
		t.Fatal(got, err)
	}
	r.Close()
}

type blockedReader struct{ ctx context.Context }

func (b blockedReader) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, context.Cause(b.ctx)
}

func (b blockedReader) Close() error { return nil }

// pages is a store that lists what it is told.
type pages struct {
	API
	list [][]string
}

func (p *pages) ListPage(_ context.Context, _, _, token string, _ int) (page []objstore.Info, next string, err error) {
	i := 0
	if token != "" {
		_, _ = fmt.Sscan(token, &i)
	}
	for _, key := range p.list[i] {
		page = append(page, objstore.Info{Key: key})
	}
	if i+1 < len(p.list) {
		next = fmt.Sprint(i + 1)
	}
	return page, next, nil
}

func (p *pages) Explain(err error) Failure { return Failure{Err: err} }

func TestListingsOutOfOrderAreSortedByPageOrRefused(t *testing.T) {
	for _, c := range []struct {
		list  [][]string
		after string
		want  string
		err   error
	}{
		{[][]string{{"a/b", "a-b"}, {"b"}}, "", "a-b a/b b", nil},
		{[][]string{{"a/b", "c"}, {"a-b"}}, "", "a/b c", objstore.ErrUnsupported},
		{[][]string{{"a", "b"}, {"b", "c"}}, "", "a b", objstore.ErrUnsupported},
		{[][]string{{"a", "b"}, {}, {"c", "dir/"}}, "a", "b c", nil},
		{[][]string{{}}, "", "", nil},
	} {
		b := &Bucket{api: &pages{list: c.list}, creds: &Credentials{}}
		var got []string
		var last error
		for info, err := range b.List(t.Context(), "", c.after) {
			if last = err; err == nil {
				got = append(got, info.Key)
			}
		}
		if strings.Join(got, " ") != c.want || !errors.Is(last, c.err) {
			t.Errorf("%v: %v, %v", c.list, got, last)
		}
	}
}

func FuzzContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-9/100", "bytes */100", "bytes 5-4/10", "bytes 0-9/*", "bytes -1-5/7", "bytes 0-9223372036854775807/9223372036854775807", ""} {
		f.Add(s, int64(5), int64(0), int64(10))
	}
	f.Fuzz(func(t *testing.T, value string, length, off, n int64) {
		h := http.Header{}
		h.Set("Content-Range", value)
		h.Set("Content-Length", fmt.Sprint(length))
		from, end, size, ok := contentRange(h)
		if ok && (from < 0 || end < from || end > size) {
			t.Fatalf("%q: [%d, %d) of %d", value, from, end, size)
		}
		if off < 0 {
			return
		}
		want, err := wanted(Answer{Status: http.StatusPartialContent, Header: h}, off, n)
		if err == nil && (want != length || n >= 0 && want > n || off+want > size) {
			t.Fatalf("%q of %d bytes, asked for %d at %d: %d", value, length, n, off, want)
		}
	})
}
