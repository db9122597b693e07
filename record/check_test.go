package record

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
)

// some are n small records from offset 0.
func some(n int) []Record {
	recs := make([]Record, n)
	for i := range recs {
		recs[i] = Record{Offset: int64(i), Timestamp: 1000 * int64(i+1), Key: []byte("k"), Value: []byte("value")}
	}
	return recs
}

var plain = BatchOptions{LeaderEpoch: -1, ProducerID: -1}

func put16(b Batch, at int, v int16) Batch { binary.BigEndian.PutUint16(b[at:], uint16(v)); return b }
func put32(b Batch, at int, v int32) Batch { binary.BigEndian.PutUint32(b[at:], uint32(v)); return b }
func put64(b Batch, at int, v int64) Batch { binary.BigEndian.PutUint64(b[at:], uint64(v)); return b }

func TestCheckTellsTornFromCorrupt(t *testing.T) {
	good := build(t, plain, some(3))
	cases := []struct {
		name string
		edit func(b Batch) Batch
		want error
		says string
	}{
		{"whole", func(b Batch) Batch { return b }, nil, ""},
		{"empty", func(b Batch) Batch { return nil }, ErrShort, "no size field"},
		{"cut in the size field", func(b Batch) Batch { return b[:11] }, ErrShort, "byte 11"},
		{"cut before the magic", func(b Batch) Batch { return b[:16] }, ErrShort, "byte 16"},
		{"cut in the header", func(b Batch) Batch { return b[:60] }, ErrShort, "byte 60"},
		{"cut by one byte", func(b Batch) Batch { return b[:len(b)-1] }, ErrShort, "size field is"},
		{"size of 2 GiB", func(b Batch) Batch { return put32(b, atSize, math.MaxInt32) }, ErrShort, "size field is 2147483647"},
		{"zeroes", func(b Batch) Batch { return make(Batch, 512) }, ErrCorrupt, "byte 8: size field is 0"},
		{"negative size", func(b Batch) Batch { return put32(b, atSize, -1) }, ErrCorrupt, "size field is -1"},
		{"size below a header", func(b Batch) Batch { return put32(b, atSize, 48) }, ErrCorrupt, "less than a header"},
		{"bytes after it", func(b Batch) Batch { return append(b, 0) }, ErrCorrupt, "1 bytes after"},
		{"magic 1", func(b Batch) Batch { b[atMagic] = 1; return b }, ErrUnsupported, "magic is 1"},
		{"magic 3", func(b Batch) Batch { b[atMagic] = 3; return b }, ErrUnsupported, "magic is 3"},
		{"flipped bit", func(b Batch) Batch { b[len(b)-2] ^= 4; return b }, ErrCorrupt, "CRC is"},
		{"codec 5", func(b Batch) Batch { put16(b, atAttributes, 5).seal(); return b }, ErrUnsupported, "codec 5"},
		{"negative base offset", func(b Batch) Batch { b.SetOffset(-1); return b }, ErrCorrupt, "negative base offset"},
		{"last offset overflows", func(b Batch) Batch { b.SetOffset(math.MaxInt64 - 2); return b }, ErrCorrupt, "overflows"},
		{"largest offset", func(b Batch) Batch { b.SetOffset(math.MaxInt64 - 3); return b }, nil, ""},
		{"negative delta", func(b Batch) Batch { put32(b, atLastDelta, -1).seal(); return b }, ErrCorrupt, "negative last offset delta"},
		{"negative count", func(b Batch) Batch { put32(b, atCount, -1).seal(); return b }, ErrCorrupt, "negative record count"},
		{"more records than offsets", func(b Batch) Batch { put32(b, atLastDelta, 1).seal(); return b }, ErrCorrupt, "more records than offsets"},
		{"more offsets than records", func(b Batch) Batch { put32(b, atLastDelta, 9).seal(); return b }, nil, ""},
		{"more records than fit", func(b Batch) Batch { put32(put32(b, atLastDelta, 99), atCount, 100).seal(); return b }, ErrCorrupt, "than fit"},
		{"no records but bytes", func(b Batch) Batch { put32(b, atCount, 0).seal(); return b }, ErrCorrupt, "no records but"},
		{"emptied by compaction", func(b Batch) Batch {
			b = put32(put32(b[:HeaderSize], atCount, 0), atSize, minSizeV2)
			b.seal()
			return b
		}, nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := c.edit(append(Batch(nil), good...)).Check()
			if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Fatalf("Check = %v, want %v saying %q", err, c.want, c.says)
			}
		})
	}
}

func TestNextSplitsWholeBatches(t *testing.T) {
	one, two := build(t, plain, some(3)), build(t, plain, some(1))
	all := append(append([]byte(nil), one...), two...)
	first, rest, err := Next(all)
	if err != nil || string(first) != string(one) || string(rest) != string(two) {
		t.Fatalf("Next = %d bytes, %d left, %v", len(first), len(rest), err)
	}
	if cap(first) != len(first) {
		t.Fatal("appending to the first batch would write over the second")
	}
	if _, rest, err = Next(rest); err != nil || len(rest) != 0 {
		t.Fatalf("second Next: %d left, %v", len(rest), err)
	}
	if _, _, err = Next(all[len(one) : len(all)-1]); !errors.Is(err, ErrShort) {
		t.Fatalf("torn tail: %v, want ErrShort", err)
	}
	if _, rest, err = Next(make([]byte, 20)); !errors.Is(err, ErrCorrupt) || len(rest) != 20 {
		t.Fatalf("zeroes: %v, want ErrCorrupt", err)
	}
}

// BUG-090: clients leave -1, 0 or anything in the leader epoch.
func TestOffsetAndLeaderEpochAreOutsideTheCRC(t *testing.T) {
	b := build(t, plain, some(3))
	b.SetOffset(1 << 40)
	b.SetLeaderEpoch(3)
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	if b.BaseOffset() != 1<<40 || b.LastOffset() != 1<<40+2 || b.LeaderEpoch() != 3 {
		t.Fatalf("base %d last %d epoch %d", b.BaseOffset(), b.LastOffset(), b.LeaderEpoch())
	}
}

func TestSetMaxTimestampKeepsTheCRCValid(t *testing.T) {
	b := build(t, plain, some(3))
	b.SetMaxTimestamp(77, true)
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	for _, r := range readRecords(t, b) {
		if r.Timestamp != 77 {
			t.Fatalf("timestamp = %d, want the append time 77", r.Timestamp)
		}
	}
	b.SetMaxTimestamp(3000, false)
	if got := readRecords(t, b)[1].Timestamp; got != 2000 || b.LogAppendTime() {
		t.Fatalf("timestamp = %d, want the record's own 2000", got)
	}
}

func TestLastSequenceWraps(t *testing.T) {
	o := plain
	o.ProducerID = 1
	for base, want := range map[int32]int32{0: 2, math.MaxInt32: 1, math.MaxInt32 - 2: math.MaxInt32} {
		o.BaseSequence = base
		if got := build(t, o, some(3)).LastSequence(); got != want {
			t.Errorf("base sequence %d: last = %d, want %d", base, got, want)
		}
	}
	if got := build(t, plain, some(3)).LastSequence(); got != -1 {
		t.Errorf("no producer: last sequence = %d, want -1", got)
	}
}

func TestDeleteHorizonIsTheBaseTimestamp(t *testing.T) {
	b := build(t, plain, some(1))
	if _, ok := b.DeleteHorizon(); ok {
		t.Fatal("no flag, but a horizon")
	}
	put16(b, atAttributes, attrDeleteHorizon)
	if ms, ok := b.DeleteHorizon(); !ok || ms != 1000 {
		t.Fatalf("horizon = %d, %v", ms, ok)
	}
}
