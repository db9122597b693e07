package record

import (
	"errors"
	"math"
	"reflect"
	"testing"
)

func TestBuildAppendsAndKeepsGaps(t *testing.T) {
	recs := []Record{{Offset: 10, Timestamp: 5}, {Offset: 12, Timestamp: 9, Key: []byte{}, Value: []byte{}}, {Offset: 20, Timestamp: -3}}
	o := plain
	o.BaseOffset = 8
	for _, o.Codec = range codecs {
		all, err := Build([]byte("prefix"), o, recs)
		if err != nil {
			t.Fatal(err)
		}
		if err := all.Check(); err != nil {
			t.Fatal(err)
		}
		if got := readRecords(t, all); !reflect.DeepEqual(got, recs) {
			t.Fatalf("%s: %v, want %v", o.Codec, got, recs)
		}
		if all.BaseOffset() != 8 || all.LastOffset() != 20 || all.MaxTimestamp() != 9 || all.BaseTimestamp() != 5 {
			t.Fatalf("header of %v", all[:HeaderSize])
		}
		checkFranz(t, all, recs)
	}
}

func TestBuildRefusesWhatCannotBeRead(t *testing.T) {
	at := func(offs ...int64) []Record {
		var recs []Record
		for _, o := range offs {
			recs = append(recs, Record{Offset: o})
		}
		return recs
	}
	for name, recs := range map[string][]Record{
		"none": nil, "before the base": at(4), "twice": at(5, 5), "descending": at(7, 6), "too far": at(5, 5+1<<31),
		"timestamps too far apart": {{Offset: 5, Timestamp: math.MinInt64}, {Offset: 6, Timestamp: math.MaxInt64}},
	} {
		o := plain
		o.BaseOffset = 5
		if _, err := Build(nil, o, recs); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, err := Build(nil, BatchOptions{Codec: 5}, some(1)); !errors.Is(err, ErrUnsupported) {
		t.Errorf("codec 5: %v, want ErrUnsupported", err)
	}
}

func TestTruncateKeepsWhatIsBelowTheEnd(t *testing.T) {
	for _, c := range codecs {
		b := build(t, goldenOptions(c), goldenRecords())
		got, err := Truncate(b, 1005)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Check(); err != nil {
			t.Fatal(err)
		}
		if got.NextOffset() != 1005 || got.Count() != 5 || got.Codec() != c || got.MaxTimestamp() != 1700000000040 ||
			got.ProducerID() != 42 || got.BaseSequence() != 2147483640 || !got.Transactional() || got.LeaderEpoch() != 3 {
			t.Fatalf("%s: next %d count %d max %d", c, got.NextOffset(), got.Count(), got.MaxTimestamp())
		}
		if recs := readRecords(t, got); !reflect.DeepEqual(recs, goldenRecords()[:5]) {
			t.Fatalf("%s: other records", c)
		}
		if c == None {
			if want := build(t, goldenOptions(c), goldenRecords()[:5]); string(got) != string(want) {
				t.Fatal("not the batch that was built with these records alone")
			}
		}
	}
}

func TestTruncateAtTheEdges(t *testing.T) {
	o := plain
	o.BaseOffset = 8
	b := build(t, o, []Record{{Offset: 10, Timestamp: 5}, {Offset: 12, Timestamp: 9}, {Offset: 20, Timestamp: 7}})
	for _, c := range []struct {
		end   int64
		count int32 // -1: nil
		max   int64
	}{{7, -1, 0}, {8, -1, 0}, {10, -1, 0}, {11, 1, 5}, {12, 1, 5}, {13, 2, 9}, {20, 2, 9}, {21, 3, 9}, {99, 3, 9}} {
		got, err := Truncate(b, c.end)
		if err != nil {
			t.Fatal(err)
		}
		if c.count < 0 {
			if got != nil {
				t.Errorf("end %d: %d records, want nil", c.end, got.Count())
			}
			continue
		}
		if got == nil || got.Count() != c.count || got.MaxTimestamp() != c.max || got.NextOffset() != min(c.end, 21) {
			t.Errorf("end %d: %v", c.end, got)
		}
	}
	stamped := append(Batch(nil), b...)
	stamped.SetMaxTimestamp(1234, true)
	got, err := Truncate(stamped, 11)
	if err != nil || got.MaxTimestamp() != 1234 || !got.LogAppendTime() {
		t.Errorf("append time is lost: %d, %v", got.MaxTimestamp(), err)
	}
}

func TestMarkersAreWhatKafkaWrites(t *testing.T) {
	for _, c := range []struct {
		name string
		off  int64
		ts   int64
		m    Marker
	}{{"kafka-commit", 55, 1700000000123, Marker{true, 9}}, {"kafka-abort", 56, 1700000000124, Marker{false, 10}}} {
		b := BuildMarker([]byte("x"), 42, 7, c.ts, c.m)
		if m, err := ParseMarker(b); err != nil || m != c.m {
			t.Errorf("%s: %v, %v", c.name, m, err)
		}
		b.SetOffset(c.off)
		b.SetLeaderEpoch(4)
		if want := golden(t, c.name); string(b) != string(want) {
			t.Errorf("%s:\n% x, want\n% x", c.name, b, want)
		}
		if err := b.Check(); err != nil || !b.Control() || !b.Transactional() || b.BaseSequence() != -1 {
			t.Errorf("%s: header %v", c.name, err)
		}
	}
}

func TestParseMarkerRefusesOtherControlRecords(t *testing.T) {
	o := plain
	o.Control = true
	control := func(key, val []byte) Batch { return build(t, o, []Record{{Key: key, Value: val}}) }
	val := []byte{0, 0, 0, 0, 0, 1}
	for name, c := range map[string]struct {
		b    Batch
		want error
	}{
		"data batch":      {build(t, plain, some(1)), ErrCorrupt},
		"leader change":   {control([]byte{0, 0, 0, 2}, val), ErrUnsupported},
		"short key":       {control([]byte{0, 0, 0}, val), ErrCorrupt},
		"null value":      {control([]byte{0, 0, 0, 1}, nil), ErrCorrupt},
		"negative key":    {control([]byte{0x80, 0, 0, 1}, val), ErrCorrupt},
		"negative value":  {control([]byte{0, 0, 0, 1}, []byte{0x80, 0, 0, 0, 0, 1}), ErrCorrupt},
		"later versions":  {control([]byte{0, 1, 0, 1, 9}, []byte{0, 1, 0, 0, 0, 1, 9}), nil},
		"without records": {put32(control(nil, nil), atCount, 0), ErrCorrupt},
	} {
		if _, err := ParseMarker(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
