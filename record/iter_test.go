package record

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// rawBatch is a batch around hand-made records.
func rawBatch(count int32, records []byte) Batch {
	b := Batch(append(appendHeader(nil, plain), records...))
	put32(b, atSize, int32(len(b)-sizeOverhead))
	put32(b, atLastDelta, max(count-1, 0))
	put32(b, atCount, count)
	b.seal()
	return b
}

// Varints: 0x00 is 0, 0x01 is -1 (null), 0x02 is 1.
var hostileRecords = []struct {
	name  string
	count int32
	bytes []byte
	says  string
}{
	{"length missing", 1, []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80}, "bad record length"},
	{"length of six bytes", 1, []byte{0x8c, 0x80, 0x80, 0x80, 0x80, 0x00, 0, 0}, "bad record length"},
	{"length above 32 bits", 1, []byte{0x8c, 0x80, 0x80, 0x80, 0x10, 0, 0, 0}, "bad record length"},
	{"negative length", 1, []byte{0x01, 0, 0, 0, 1, 1, 0}, "too small"},
	{"length below the smallest record", 1, []byte{0x0a, 0, 0, 0, 1, 1, 0}, "too small"},
	{"length beyond the batch", 1, []byte{0x0e, 0, 0, 0, 1, 1, 0}, "longer than the batch"},
	{"key beyond the record", 1, []byte{0x0c, 0, 0, 0, 0x7e, 1, 0}, "bad key length"},
	{"key of 2 GiB", 1, []byte{0x18, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 1, 0, 0, 0}, "bad key length"},
	{"value beyond the record", 1, []byte{0x0c, 0, 0, 0, 1, 0x7e, 0}, "bad value length"},
	{"negative number of headers", 1, []byte{0x0c, 0, 0, 0, 1, 1, 1}, "bad number of headers"},
	{"more headers than bytes", 1, []byte{0x0e, 0, 0, 0, 1, 1, 0x7e, 0}, "more headers than fit"},
	{"header without value", 1, []byte{0x10, 0, 0, 0, 1, 1, 0x02, 0x02, 'k'}, "bad header value length"},
	{"header with a null key", 1, []byte{0x10, 0, 0, 0, 1, 1, 0x02, 0x01, 0x01}, "bad header key length"},
	{"bytes left in the record", 1, []byte{0x0e, 0, 0, 0, 1, 1, 0, 0}, "bytes left in the record"},
	{"bytes left in the batch", 1, []byte{0x0c, 0, 0, 0, 1, 1, 0, 9}, "bytes left after the last record"},
	{"record missing", 2, []byte{0x0c, 0, 0, 0, 1, 1, 0, 0x0c, 0, 0, 0, 1, 1, 0x80}, "bad number of headers"},
}

func TestRecordsRefusesHostileBytes(t *testing.T) {
	for _, c := range hostileRecords {
		t.Run(c.name, func(t *testing.T) {
			it := rawBatch(c.count, c.bytes).Records(1 << 20)
			defer it.Close()
			for it.Next() {
			}
			if err := it.Err(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("err = %v, want ErrCorrupt saying %q", err, c.says)
			}
		})
	}
}

func TestRecordsRefusesOffsetsOutOfOrder(t *testing.T) {
	rec := func(delta byte) []byte { return []byte{0x0c, 0, 0, delta, 1, 1, 0} }
	for name, b := range map[string]Batch{
		"twice":        rawBatch(2, append(rec(0), rec(0)...)),
		"negative":     rawBatch(1, rec(1)),
		"past the end": rawBatch(1, rec(2)),
		"descending":   rawBatch(3, append(append(rec(2), rec(0)...), rec(4)...)),
	} {
		it := b.Records(0)
		for it.Next() {
		}
		if !errors.Is(it.Err(), ErrCorrupt) || !strings.Contains(it.Err().Error(), "offset out of order") {
			t.Errorf("%s: %v", name, it.Err())
		}
		it.Close()
	}
}

func TestRecordsRefusesOverflowingTimestamp(t *testing.T) {
	b := put64(rawBatch(1, []byte{0x0c, 0, 2, 0, 1, 1, 0}), atBaseTimestamp, math.MaxInt64)
	it := b.Records(0)
	defer it.Close()
	if it.Next() || !errors.Is(it.Err(), ErrCorrupt) {
		t.Fatalf("err = %v, want ErrCorrupt", it.Err())
	}
}

func TestNegativeLengthsAreNull(t *testing.T) {
	r := readRecords(t, rawBatch(1, []byte{0x0c, 0, 0, 0, 0x03, 0x05, 0}))[0]
	if r.Key != nil || r.Value != nil {
		t.Fatalf("key %v, value %v, want null", r.Key, r.Value)
	}
}

func TestIterAfterCloseEnds(t *testing.T) {
	it := build(t, plain, some(3)).Records(0)
	it.Next()
	it.Close()
	it.Close()
	if it.Next() {
		t.Fatal("a record after Close")
	}
}

func TestUncompressedWalkDoesNotCopyOrAllocate(t *testing.T) {
	b := build(t, plain, some(100))
	it := b.Records(0)
	defer it.Close()
	it.Next()
	if k := it.Key(); &k[0] != &b[it.f.key.at+HeaderSize] {
		t.Fatal("key is a copy")
	}
	if n := testing.AllocsPerRun(50, func() { it.Next(); _ = it.Record() }); n != 0 {
		t.Fatalf("%v allocations a record", n)
	}
}

func TestVarintsRoundTrip(t *testing.T) {
	for _, v := range []int64{0, -1, 1, 63, 64, -64, -65, 8191, 8192, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64} {
		p := appendVarint(nil, v)
		if len(p) != varintSize(v) {
			t.Errorf("%d: size %d, want %d", v, varintSize(v), len(p))
		}
		if got, at := varint64(p, 0); got != v || at != len(p) {
			t.Errorf("varint64(%d) = %d at %d", v, got, at)
		}
		got, at := varint32(p, 0)
		if fits := int64(int32(v)) == v; fits != (at == len(p)) || fits && int64(got) != v {
			t.Errorf("varint32(%d) = %d at %d", v, got, at)
		}
		if _, at := varint64(p[:len(p)-1], 0); at >= 0 {
			t.Errorf("%d cut short is accepted", v)
		}
	}
	if _, at := varint64([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}, 0); at >= 0 {
		t.Error("65 bits are accepted")
	}
}
