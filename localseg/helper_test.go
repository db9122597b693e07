package localseg_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/record"
)

// small makes segments of a few batches.
var small = localseg.Config{SegmentBytes: 2000, IndexIntervalBytes: 200, RetentionMs: -1, SegmentMs: 1 << 50}

func open(t testing.TB, fs vfs.FS, o localseg.Options) *localseg.Log {
	t.Helper()
	if _, ok := fs.(*vfs.Mem); ok { // the broker has made its directory durable long before
		if err := errors.Join(fs.MkdirAll("/data", 0o755), fs.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
	}
	l, err := localseg.Open(fs, "/data/t-0", o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func add(t testing.TB, l *localseg.Log, epoch int32, batches ...record.Batch) localseg.Appended {
	t.Helper()
	from := localseg.OriginClient
	if batches[0].Control() {
		from = localseg.OriginInternal
	}
	a, err := l.Append(batches, epoch, from)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// readAll is the bytes of [from, LEO), read in steps of max.
func readAll(t testing.TB, l *localseg.Log, from int64, max int) []byte {
	t.Helper()
	var out []byte
	for off := from; off < l.LEO(); {
		s, err := l.Read(off, l.LEO(), max)
		if err != nil {
			t.Fatalf("read at %d: %v", off, err)
		}
		if s.Size == 0 {
			t.Fatalf("read at %d of [%d, %d) is empty", off, l.LogStart(), l.LEO())
		}
		p := make([]byte, s.Size)
		if n, err := s.ReadAt(p, 0); int64(n) != s.Size || err != nil && err != io.EOF {
			t.Fatalf("read span at %d: %d, %v", off, n, err)
		}
		s.Release()
		checkSpan(t, s, p, off)
		out, off = append(out, p...), s.Next
	}
	return out
}

// checkSpan: whole, good batches, from the one that holds off to Next.
func checkSpan(t testing.TB, s localseg.Span, p []byte, off int64) {
	t.Helper()
	next := int64(-1)
	for rest := p; len(rest) > 0; {
		b, r, err := record.Next(rest)
		if err == nil {
			err = b.Check()
		}
		if err != nil {
			t.Fatalf("span at %d: %v", off, err)
		}
		if next < 0 && (b.BaseOffset() != s.Base || b.LastOffset() < off) {
			t.Fatalf("span at %d begins with batch [%d, %d], says %d", off, b.BaseOffset(), b.LastOffset(), s.Base)
		}
		if next >= 0 && b.BaseOffset() < next {
			t.Fatalf("span at %d: batch at %d after %d", off, b.BaseOffset(), next)
		}
		next, rest = b.NextOffset(), r
	}
	if next != s.Next {
		t.Fatalf("span at %d ends at %d, says %d", off, next, s.Next)
	}
}

func wantBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes differ from the %d wanted", what, len(got), len(want))
	}
}

func closeClean(t testing.TB, l *localseg.Log) {
	t.Helper()
	if err := l.CloseClean(); err != nil {
		t.Fatal(err)
	}
}
