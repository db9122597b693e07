package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/mem"
)

func TestABodyKnowsWhetherItIsWhatItSays(t *testing.T) {
	b := objstore.BytesBody([]byte("123456789"))
	if b.CRC32C != 0xe3069283 {
		t.Fatalf("CRC-32C %08x", b.CRC32C)
	}
	if p, err := b.Bytes(); err != nil || string(p) != "123456789" {
		t.Fatal(p, err)
	}
	b.CRC32C++
	if _, err := b.Bytes(); !errors.Is(err, objstore.ErrChecksum) {
		t.Fatal(err)
	}
	short := objstore.FileBody(strings.NewReader("123"), 9, 0xe3069283)
	if _, err := short.Bytes(); err == nil {
		t.Fatal("a short body was taken")
	}
	if p, err := (objstore.Body{}).Bytes(); err != nil || len(p) != 0 {
		t.Fatal(p, err)
	}
}

func TestABodyThatEndsEarlyIsUnavailable(t *testing.T) {
	for _, c := range []struct {
		have string
		want int64
		got  string
		err  error
	}{
		{"abcd", 4, "abcd", nil}, {"abcdef", 4, "abcd", nil}, {"", 0, "", nil},
		{"abc", 4, "abc", objstore.ErrUnavailable}, {"", 1, "", objstore.ErrUnavailable},
	} {
		r := objstore.Exactly(io.NopCloser(strings.NewReader(c.have)), c.want, objstore.Info{})
		got, err := io.ReadAll(r)
		if string(got) != c.got || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%q of %d: %q, %v", c.have, c.want, got, err)
		}
	}
}

// liar is a store that breaks one promise.
type liar struct {
	objstore.Bucket
	put  func(objstore.Bucket, string, objstore.Body, objstore.Cond) (objstore.Info, error)
	get  func(objstore.Bucket, string, int64, int64) (io.ReadCloser, error)
	list func(objstore.Bucket, string, string) iter.Seq2[objstore.Info, error]
	head func(objstore.Info) objstore.Info
}

func (l liar) Put(ctx context.Context, key string, b objstore.Body, c objstore.Cond) (objstore.Info, error) {
	if l.put != nil {
		return l.put(l.Bucket, key, b, c)
	}
	return l.Bucket.Put(ctx, key, b, c)
}

func (l liar) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if l.get != nil {
		return l.get(l.Bucket, key, off, n)
	}
	return l.Bucket.Get(ctx, key, off, n)
}

func (l liar) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	if l.list != nil {
		return l.list(l.Bucket, prefix, after)
	}
	return l.Bucket.List(ctx, prefix, after)
}

func (l liar) Head(ctx context.Context, key string) (objstore.Info, error) {
	info, err := l.Bucket.Head(ctx, key)
	if l.head != nil {
		info = l.head(info)
	}
	return info, err
}

func TestProbeRefusesAStoreThat(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		what string
		bad  liar
		says string
	}{
		{"overwrites in spite of If-None-Match", liar{put: func(b objstore.Bucket, k string, body objstore.Body, c objstore.Cond) (objstore.Info, error) {
			c.IfNoneMatch = false
			return b.Put(ctx, k, body, c)
		}}, "If-None-Match"},
		{"does not know If-None-Match", liar{put: func(b objstore.Bucket, k string, body objstore.Body, c objstore.Cond) (objstore.Info, error) {
			if c.IfNoneMatch {
				return objstore.Info{}, objstore.ErrUnsupported
			}
			return b.Put(ctx, k, body, c)
		}}, "If-None-Match"},
		{"takes damaged bodies", liar{put: func(b objstore.Bucket, k string, body objstore.Body, c objstore.Cond) (objstore.Info, error) {
			p := make([]byte, body.Size)
			_, _ = body.R.ReadAt(p, 0)
			return b.Put(ctx, k, objstore.BytesBody(p), c)
		}}, "checksum"},
		{"ignores ranges", liar{get: func(b objstore.Bucket, k string, _, _ int64) (io.ReadCloser, error) { return b.Get(ctx, k, 0, -1) }}, "asked for"},
		{"lists nothing new", liar{list: func(objstore.Bucket, string, string) iter.Seq2[objstore.Info, error] {
			return func(func(objstore.Info, error) bool) {}
		}}, "listing"},
		{"lists directory by directory", liar{list: func(b objstore.Bucket, prefix, after string) iter.Seq2[objstore.Info, error] {
			return func(yield func(objstore.Info, error) bool) {
				var all []objstore.Info
				for info := range b.List(ctx, prefix, after) {
					all = append(all, info)
				}
				slices.SortFunc(all, func(x, y objstore.Info) int {
					return strings.Compare(strings.ReplaceAll(x.Key, "/", "\x00"), strings.ReplaceAll(y.Key, "/", "\x00"))
				})
				for _, info := range all {
					if !yield(info, nil) {
						return
					}
				}
			}
		}}, "byte order"},
		{"has no Date", liar{head: func(i objstore.Info) objstore.Info { i.Date = time.Time{}; return i }}, "Date"},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) {
			store := mem.New(mem.Options{})
			c.bad.Bucket = store
			f, err := objstore.Probe(t.Context(), c.bad)
			if !errors.Is(err, objstore.ErrUnsafe) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v, findings %+v", err, f)
			}
			for info := range store.List(t.Context(), "", "") {
				t.Errorf("left is %s", info.Key)
			}
		})
	}
}

func TestProbeOfAStoreThatIsDownIsNoVerdict(t *testing.T) {
	f := fault.New(mem.New(mem.Options{}), fault.Options{Rules: []fault.Rule{{Effect: fault.Fail}}})
	if _, err := objstore.Probe(t.Context(), f); !errors.Is(err, objstore.ErrUnavailable) || errors.Is(err, objstore.ErrUnsafe) {
		t.Fatal(err)
	}
}

func TestProbeTellsClockDifferenceAndRemovesOldLeftovers(t *testing.T) {
	store := mem.New(mem.Options{Now: func() time.Time { return time.Now().Add(-2 * time.Hour) }})
	for _, key := range []string{"probe/aa/o-b", "probe/bb/x", "other/probe"} {
		if _, err := store.Put(t.Context(), key, objstore.BytesBody([]byte("left")), objstore.Cond{}); err != nil {
			t.Fatal(err)
		}
	}
	store.SetClock(func() time.Time { return time.Now().Add(10 * time.Minute) })
	f, err := objstore.Probe(t.Context(), store)
	if err != nil || f.Leftovers != 2 || len(f.Warnings) != 1 || f.ClockDifference.Round(time.Minute) != 10*time.Minute {
		t.Fatalf("%+v, %v", f, err)
	}
	var left []string
	for info := range store.List(t.Context(), "", "") {
		left = append(left, info.Key)
	}
	if !slices.Equal(left, []string{"other/probe"}) {
		t.Fatalf("left %q", left)
	}
}

func TestProbeGoesOnWithoutIfMatch(t *testing.T) {
	ctx := t.Context()
	b := liar{Bucket: mem.New(mem.Options{}), put: func(b objstore.Bucket, k string, body objstore.Body, c objstore.Cond) (objstore.Info, error) {
		if c.IfMatch != "" {
			return objstore.Info{}, objstore.ErrUnsupported
		}
		return b.Put(ctx, k, body, c)
	}}
	if f, err := objstore.Probe(ctx, b); err != nil || f.IfMatch || len(f.Warnings) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
}

func FuzzCheckKey(f *testing.F) {
	for _, s := range []string{"a/b", "", "/", "a//b", "..", "a/../b", "t/0/s/1-2-3", "\xff", strings.Repeat("a", 2000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if objstore.CheckKey(key) != nil {
			return
		}
		b := mem.New(mem.Options{})
		if _, err := b.Put(t.Context(), key, objstore.BytesBody([]byte(key)), objstore.Cond{}); err != nil {
			t.Fatal(err)
		}
		if got, _, err := objstore.ReadAll(t.Context(), b, key, 2000); err != nil || !bytes.Equal(got, []byte(key)) {
			t.Fatal(got, err)
		}
		if strings.HasPrefix(key, "/") || strings.Contains("/"+key+"/", "/../") || strings.Contains(key, "//") {
			t.Fatalf("%q was taken", key)
		}
	})
}
