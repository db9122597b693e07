package objtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/objstore"
)

// Run holds a store to what objstore.Bucket promises. open returns an empty bucket, or an empty prefix of one.
func Run(t *testing.T, open func(t *testing.T) objstore.Bucket) {
	for _, c := range []struct {
		rule string
		test func(*testing.T, objstore.Bucket)
	}{
		{"what is put is got, by head, get and list", testRoundTrip},
		{"empty objects", testEmpty},
		{"ranges have what was asked for, less only at the end", testRanges},
		{"a missing object is ErrNotFound", testMissing},
		{"conditional create is refused if the key exists", testCreate},
		{"one of many concurrent creators wins", testCreateRace},
		{"replace needs the ETag that is there", testReplace},
		{"one of many concurrent replacers wins", testReplaceRace},
		{"an unconditional put overwrites", testOverwrite},
		{"a wrong checksum is refused and leaves nothing", testChecksum},
		{"lists in byte order, from prefix and after", testList},
		{"lists more than a page", testListMany},
		{"a listing can be left", testListBreak},
		{"delete removes many, missing ones are no error", testDelete},
		{"bad keys are refused", testKeys},
		{"a cancelled call ends", testCancel},
		{"bodies are read from their ReaderAt", testReaderAt},
		{"ReadAll has a limit", testReadAll},
		{"probe finds it safe and leaves nothing", testProbe},
	} {
		t.Run(strings.ReplaceAll(c.rule, " ", "_"), func(t *testing.T) { c.test(t, open(t)) })
	}
}

func put(t *testing.T, b objstore.Bucket, key string, data []byte, c objstore.Cond) objstore.Info {
	t.Helper()
	info, err := b.Put(t.Context(), key, objstore.BytesBody(data), c)
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return info
}

func get(t *testing.T, b objstore.Bucket, key string, off, n int64) []byte {
	t.Helper()
	rc, err := b.Get(t.Context(), key, off, n)
	if err != nil {
		t.Fatalf("get %s [%d, +%d): %v", key, off, n, err)
	}
	defer rc.Close()
	data, err := io.ReadAll(rc)
	if err != nil {
		t.Fatalf("read %s [%d, +%d): %v", key, off, n, err)
	}
	return data
}

func keys(t *testing.T, b objstore.Bucket, prefix, after string) []string {
	t.Helper()
	var out []string
	for info, err := range b.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatalf("list %q after %q: %v", prefix, after, err)
		}
		out = append(out, info.Key)
	}
	return out
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

func testRoundTrip(t *testing.T, b objstore.Bucket) {
	data := random(100_000)
	before := time.Now()
	info := put(t, b, "a/b/c", data, objstore.Cond{IfNoneMatch: true})
	if info.Key != "a/b/c" || info.Size != int64(len(data)) || info.ETag == "" {
		t.Fatalf("put returned %+v", info)
	}
	near := func(what string, at time.Time) {
		t.Helper()
		if d := at.Sub(before); d < -2*time.Second || d > time.Minute {
			t.Fatalf("%s is %v, %v from now", what, at, d)
		}
	}
	near("Date of put", info.Date)
	if got := get(t, b, "a/b/c", 0, -1); !bytes.Equal(got, data) {
		t.Fatalf("got %d other bytes", len(got))
	}
	head, err := b.Head(t.Context(), "a/b/c")
	if err != nil {
		t.Fatal(err)
	}
	if head.Key != info.Key || head.Size != info.Size || head.ETag != info.ETag {
		t.Fatalf("head %+v, put %+v", head, info)
	}
	near("Date of head", head.Date)
	near("Modified of head", head.Modified)
	for listed, err := range b.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if listed.Key != info.Key || listed.Size != info.Size || listed.ETag != info.ETag {
			t.Fatalf("list %+v, put %+v", listed, info)
		}
		near("Date of list", listed.Date)
		near("Modified of list", listed.Modified)
	}
	rc, err := b.Get(t.Context(), "a/b/c", 10, 20)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	got, ok := objstore.InfoOf(rc)
	if !ok || got.ETag != info.ETag || got.Size != info.Size {
		t.Fatalf("get tells %+v, put %+v", got, info)
	}
	near("Date of get", got.Date)
}

func testEmpty(t *testing.T, b objstore.Bucket) {
	put(t, b, "empty", nil, objstore.Cond{IfNoneMatch: true})
	for _, r := range [][2]int64{{0, -1}, {0, 10}, {5, -1}, {0, 0}} {
		if got := get(t, b, "empty", r[0], r[1]); len(got) != 0 {
			t.Fatalf("range %v of an empty object has %d bytes", r, len(got))
		}
	}
	info, err := b.Head(t.Context(), "empty")
	if err != nil || info.Size != 0 {
		t.Fatalf("head: %+v, %v", info, err)
	}
}

func testRanges(t *testing.T, b objstore.Bucket) {
	data := random(10_000)
	put(t, b, "ranges", data, objstore.Cond{})
	size := int64(len(data))
	for _, r := range [][2]int64{
		{0, 0}, {0, 1}, {0, size}, {0, size + 1}, {1, size - 1}, {1, size}, {size - 1, 1}, {size - 1, 100}, {size, 1}, {size, -1},
		{size + 5, 10}, {size + 5, -1}, {4000, 2000}, {9000, -1}, {5, 1<<63 - 1}, {size, 0},
	} {
		off, n := r[0], r[1]
		from, end := min(off, size), size
		if n >= 0 && n < size-from {
			end = from + n
		}
		if got := get(t, b, "ranges", off, n); !bytes.Equal(got, data[from:end]) {
			t.Fatalf("range %v: %d bytes, want %d", r, len(got), end-from)
		}
	}
	if _, err := b.Get(t.Context(), "ranges", -1, 5); err == nil {
		t.Fatal("a negative offset was taken")
	}
}

func testMissing(t *testing.T, b objstore.Bucket) {
	_, err := b.Head(t.Context(), "no/such")
	wantErr(t, "head", err, objstore.ErrNotFound)
	for _, r := range [][2]int64{{0, -1}, {0, 0}, {10, 20}} {
		_, err = b.Get(t.Context(), "no/such", r[0], r[1])
		wantErr(t, "get", err, objstore.ErrNotFound)
	}
	put(t, b, "some/such", nil, objstore.Cond{})
	_, err = b.Head(t.Context(), "some")
	wantErr(t, "head of a prefix", err, objstore.ErrNotFound)
	_, err = b.Get(t.Context(), "some", 0, -1)
	wantErr(t, "get of a prefix", err, objstore.ErrNotFound)
}

func testCreate(t *testing.T, b objstore.Bucket) {
	put(t, b, "k", []byte("first"), objstore.Cond{IfNoneMatch: true})
	_, err := b.Put(t.Context(), "k", objstore.BytesBody([]byte("second")), objstore.Cond{IfNoneMatch: true})
	wantErr(t, "second create", err, objstore.ErrExists)
	_, err = b.Put(t.Context(), "k", objstore.BytesBody([]byte("first")), objstore.Cond{IfNoneMatch: true})
	wantErr(t, "create with the same bytes", err, objstore.ErrExists)
	if got := get(t, b, "k", 0, -1); string(got) != "first" {
		t.Fatalf("object is %q", got)
	}
	if err := b.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	put(t, b, "k", []byte("third"), objstore.Cond{IfNoneMatch: true})
}

// race runs n writers at once, returns who won, and fails on errors other than lost.
func race(t *testing.T, n int, lost error, write func(i int) error) []int {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = write(i) })
	}
	wg.Wait()
	var won []int
	for i, err := range errs {
		if err == nil {
			won = append(won, i)
		} else if !errors.Is(err, lost) {
			t.Fatalf("writer %d: %v, want %v", i, err, lost)
		}
	}
	return won
}

func testCreateRace(t *testing.T, b objstore.Bucket) {
	for round := range 5 {
		key := fmt.Sprintf("race/%d", round)
		won := race(t, 8, objstore.ErrExists, func(i int) error {
			_, err := b.Put(t.Context(), key, objstore.BytesBody(fmt.Appendf(nil, "writer %d", i)), objstore.Cond{IfNoneMatch: true})
			return err
		})
		if len(won) != 1 {
			t.Fatalf("winners %v", won)
		}
		if got, want := string(get(t, b, key, 0, -1)), fmt.Sprintf("writer %d", won[0]); got != want {
			t.Fatalf("object is of %q, winner was %q", got, want)
		}
	}
}

func testReplace(t *testing.T, b objstore.Bucket) {
	_, err := b.Put(t.Context(), "r", objstore.BytesBody([]byte("x")), objstore.Cond{IfMatch: `"00000000000000000000000000000000"`})
	wantErr(t, "replace of nothing", err, objstore.ErrPrecondition)
	one := put(t, b, "r", []byte("one"), objstore.Cond{IfNoneMatch: true})
	two := put(t, b, "r", []byte("two"), objstore.Cond{IfMatch: one.ETag})
	if one.ETag == two.ETag {
		t.Fatalf("ETag %s twice", one.ETag)
	}
	_, err = b.Put(t.Context(), "r", objstore.BytesBody([]byte("xxx")), objstore.Cond{IfMatch: one.ETag})
	wantErr(t, "replace of an old ETag", err, objstore.ErrPrecondition)
	head, err := b.Head(t.Context(), "r")
	if err != nil || head.ETag != two.ETag {
		t.Fatalf("head %+v, %v, want ETag %s", head, err, two.ETag)
	}
	put(t, b, "r", []byte("three"), objstore.Cond{IfMatch: head.ETag})
	if got := get(t, b, "r", 0, -1); string(got) != "three" {
		t.Fatalf("object is %q", got)
	}
}

func testReplaceRace(t *testing.T, b objstore.Bucket) {
	etag := put(t, b, "r", []byte("start"), objstore.Cond{}).ETag
	for round := range 5 {
		won := race(t, 8, objstore.ErrPrecondition, func(i int) error {
			_, err := b.Put(t.Context(), "r", objstore.BytesBody(fmt.Appendf(nil, "%d by %d", round, i)), objstore.Cond{IfMatch: etag})
			return err
		})
		if len(won) != 1 {
			t.Fatalf("round %d: winners %v", round, won)
		}
		if got, want := string(get(t, b, "r", 0, -1)), fmt.Sprintf("%d by %d", round, won[0]); got != want {
			t.Fatalf("object is %q, winner's is %q", got, want)
		}
		head, err := b.Head(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		etag = head.ETag
	}
}

func testOverwrite(t *testing.T, b objstore.Bucket) {
	for _, s := range []string{"long old content", "new"} {
		put(t, b, "o", []byte(s), objstore.Cond{})
		if got := get(t, b, "o", 0, -1); string(got) != s {
			t.Fatalf("object is %q, want %q", got, s)
		}
	}
}

func testChecksum(t *testing.T, b objstore.Bucket) {
	body := objstore.BytesBody(random(5000))
	body.CRC32C++
	_, err := b.Put(t.Context(), "sum", body, objstore.Cond{IfNoneMatch: true})
	wantErr(t, "create", err, objstore.ErrChecksum)
	_, err = b.Head(t.Context(), "sum")
	wantErr(t, "head after it", err, objstore.ErrNotFound)
	put(t, b, "sum", []byte("good"), objstore.Cond{})
	_, err = b.Put(t.Context(), "sum", body, objstore.Cond{})
	wantErr(t, "overwrite", err, objstore.ErrChecksum)
	if got := get(t, b, "sum", 0, -1); string(got) != "good" {
		t.Fatalf("object is %d bytes", len(got))
	}
}

func testList(t *testing.T, b objstore.Bucket) {
	all := []string{
		"a-b/x", "a.b", "a/1", "a/10", "a/10-x/y", "a/2", "a0", "b/c/d/e", "b/c/d/f", "b/c2", "b c/+&=d", "t/0/s/1", "t/0/s/2", "t/10/s/1", "t/topic.1",
		"u/\u00e9", "u/z%2Fz", "z",
	}
	for _, i := range rand.Perm(len(all)) {
		put(t, b, all[i], []byte(all[i]), objstore.Cond{IfNoneMatch: true})
	}
	slices.Sort(all)
	for _, q := range [][2]string{
		{"", ""}, {"a", ""}, {"a/", ""}, {"a/1", ""}, {"b/c", ""}, {"t/0/s/", ""}, {"none", ""}, {"", "a/10"}, {"", "a/10-"}, {"a/", "a/10"},
		{"a/", "a/10-x"}, {"b/", "a/zzz"}, {"a/", "b"}, {"t/", "t/0/s/1"}, {"", "z"}, {"", "zz"}, {"u/", ""}, {"b c/", ""}, {"a", "a-b"}, {"", "a-b/x"},
	} {
		var want []string
		for _, key := range all {
			if strings.HasPrefix(key, q[0]) && key > q[1] {
				want = append(want, key)
			}
		}
		if got := keys(t, b, q[0], q[1]); !slices.Equal(got, want) {
			t.Fatalf("list %q after %q:\n got %q\nwant %q", q[0], q[1], got, want)
		}
	}
	for _, key := range all {
		if got := get(t, b, key, 0, -1); string(got) != key {
			t.Fatalf("object %q is %q", key, got)
		}
	}
}

func testListMany(t *testing.T, b objstore.Bucket) {
	const n = 1205
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("many/%04d", i))
	}
	sem := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for _, key := range all {
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			if _, err := b.Put(t.Context(), key, objstore.BytesBody(nil), objstore.Cond{}); err != nil {
				t.Errorf("put %s: %v", key, err)
			}
		})
	}
	wg.Wait()
	if got := keys(t, b, "many/", ""); !slices.Equal(got, all) {
		t.Fatalf("listed %d, want %d", len(got), n)
	}
	if got := keys(t, b, "many/", "many/0100"); !slices.Equal(got, all[101:]) {
		t.Fatalf("listed %d, want %d", len(got), n-101)
	}
	if err := b.Delete(t.Context(), all...); err != nil {
		t.Fatalf("delete %d: %v", n, err)
	}
	if got := keys(t, b, "", ""); len(got) != 0 {
		t.Fatalf("%d left, like %q", len(got), got[0])
	}
}

func testListBreak(t *testing.T, b objstore.Bucket) {
	for i := range 5 {
		put(t, b, fmt.Sprintf("l/%d", i), nil, objstore.Cond{})
	}
	n := 0
	for info, err := range b.List(t.Context(), "l/", "") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 2 {
			if info.Key != "l/1" {
				t.Fatalf("second is %s", info.Key)
			}
			break
		}
	}
}

func testDelete(t *testing.T, b objstore.Bucket) {
	for _, key := range []string{"d/1", "d/2", "d/3", "e"} {
		put(t, b, key, []byte(key), objstore.Cond{})
	}
	for _, d := range [][]string{{}, {"d/1"}, {"d/1"}, {"d/2", "nothing", "d/3"}, {"d"}} {
		if err := b.Delete(t.Context(), d...); err != nil {
			t.Fatalf("delete %q: %v", d, err)
		}
	}
	if got := keys(t, b, "", ""); !slices.Equal(got, []string{"e"}) {
		t.Fatalf("left are %q", got)
	}
	put(t, b, "d/1", []byte("again"), objstore.Cond{IfNoneMatch: true})
}

func testKeys(t *testing.T, b objstore.Bucket) {
	for _, key := range []string{"", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/..", "a\x00b", "a\nb", `a\b`, "a\xff", strings.Repeat("x/", 600) + "x"} {
		ctx := t.Context()
		_, err := b.Put(ctx, key, objstore.BytesBody(nil), objstore.Cond{})
		wantErr(t, fmt.Sprintf("put %q", key), err, objstore.ErrKey)
		_, err = b.Head(ctx, key)
		wantErr(t, fmt.Sprintf("head %q", key), err, objstore.ErrKey)
		_, err = b.Get(ctx, key, 0, -1)
		wantErr(t, fmt.Sprintf("get %q", key), err, objstore.ErrKey)
		wantErr(t, fmt.Sprintf("delete %q", key), b.Delete(ctx, key), objstore.ErrKey)
	}
}

func testCancel(t *testing.T, b objstore.Bucket) {
	put(t, b, "c", []byte("x"), objstore.Cond{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Put(ctx, "c2", objstore.BytesBody(nil), objstore.Cond{})
	wantErr(t, "put", err, context.Canceled)
	_, err = b.Head(ctx, "c")
	wantErr(t, "head", err, context.Canceled)
	_, err = b.Get(ctx, "c", 0, -1)
	wantErr(t, "get", err, context.Canceled)
	err = nil
	for _, e := range b.List(ctx, "", "") {
		err = e
	}
	wantErr(t, "list", err, context.Canceled)
}

// opaqueReaderAt is a body that is no file and no slice to those who look for one.
type opaqueReaderAt struct{ r io.ReaderAt }

func (o opaqueReaderAt) ReadAt(p []byte, off int64) (int, error) { return o.r.ReadAt(p, off) }

func testReaderAt(t *testing.T, b objstore.Bucket) {
	data := random(3 << 20)
	whole := objstore.BytesBody(data)
	r := opaqueReaderAt{bytes.NewReader(append(slices.Clone(data), "more than the body"...))}
	if _, err := b.Put(t.Context(), "f", objstore.FileBody(r, whole.Size, whole.CRC32C), objstore.Cond{IfNoneMatch: true}); err != nil {
		t.Fatal(err)
	}
	if got := get(t, b, "f", 0, -1); !bytes.Equal(got, data) {
		t.Fatalf("got %d other bytes", len(got))
	}
	if got := get(t, b, "f", 1<<20, 1<<20); !bytes.Equal(got, data[1<<20:2<<20]) {
		t.Fatal("a range has other bytes")
	}
}

func testReadAll(t *testing.T, b objstore.Bucket) {
	data := random(1000)
	put(t, b, "all", data, objstore.Cond{})
	for _, limit := range []int64{1000, 1001, 1 << 40} {
		got, info, err := objstore.ReadAll(t.Context(), b, "all", limit)
		if err != nil || !bytes.Equal(got, data) || info.Size != 1000 || info.Key != "all" {
			t.Fatalf("limit %d: %d bytes, %+v, %v", limit, len(got), info, err)
		}
	}
	_, _, err := objstore.ReadAll(t.Context(), b, "all", 999)
	wantErr(t, "limit 999", err, objstore.ErrTooLarge)
	_, _, err = objstore.ReadAll(t.Context(), b, "none", 999)
	wantErr(t, "missing", err, objstore.ErrNotFound)
}

func testProbe(t *testing.T, b objstore.Bucket) {
	put(t, b, "probe/0123/o-b", []byte("left by another"), objstore.Cond{})
	f, err := objstore.Probe(t.Context(), b)
	if err != nil {
		t.Fatalf("probe: %v; %+v", err, f)
	}
	if !f.ConditionalCreate || !f.Checksum || !f.RangedReads || !f.ListAfterWrite || !f.ByteOrder || !f.DateHeader || !f.IfMatch {
		t.Fatalf("findings %+v", f)
	}
	if f.ClockDifference.Abs() > 5*time.Second || len(f.Warnings) != 0 {
		t.Fatalf("findings %+v", f)
	}
	if got := keys(t, b, "", ""); !slices.Equal(got, []string{"probe/0123/o-b"}) {
		t.Fatalf("left are %q", got)
	}
}

func random(n int) []byte {
	p := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(n), 7))
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}
