package record

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

const now = 1_700_000_000_000

// asSent is a topic of Kafka's defaults, but for timestamps: everything from 1970 on is accepted.
var asSent = ValidateOptions{FromProducer: true, NowMs: now, TimestampBeforeMs: math.MaxInt64, TimestampAfterMs: 3600000,
	MaxBytes: 1048588, ClientWrite: true, AllowZstd: true}

func validate(t *testing.T, b Batch, o ValidateOptions) Validated {
	t.Helper()
	v, errs, err := Validate(b, o)
	if err != nil || errs != nil {
		t.Fatalf("Validate: %v, %v", err, errs)
	}
	if err := v.Batch.Check(); err != nil {
		t.Fatalf("validated batch: %v", err)
	}
	return v
}

func TestValidAsSentIsNotTouched(t *testing.T) {
	for _, c := range codecs {
		o := plain
		o.Codec = c
		b := build(t, o, some(10))
		before := bytes.Clone(b)
		v := validate(t, b, asSent)
		if &v.Batch[0] != &b[0] || !bytes.Equal(b, before) {
			t.Errorf("%s: changed", c)
		}
		if v.MaxTimestamp != 10000 || v.OffsetOfMaxDelta != 9 {
			t.Errorf("%s: max %d at %d", c, v.MaxTimestamp, v.OffsetOfMaxDelta)
		}
	}
}

// BUG-058
func TestMaxTimestampOfTheHeaderIsRecomputed(t *testing.T) {
	for _, c := range codecs {
		for _, claimed := range []int64{-1, 0, 9999999999999} {
			o := plain
			o.Codec = c
			b := build(t, o, some(3))
			b.SetMaxTimestamp(claimed, false)
			v := validate(t, b, asSent)
			if v.Batch.MaxTimestamp() != 3000 || v.MaxTimestamp != 3000 || v.OffsetOfMaxDelta != 2 || &v.Batch[0] != &b[0] {
				t.Errorf("%s claiming %d: max %d at %d", c, claimed, v.MaxTimestamp, v.OffsetOfMaxDelta)
			}
		}
	}
}

// BUG-038, BUG-001: the first of the records with the largest timestamp.
func TestOffsetOfMaxTimestampIsTheFirst(t *testing.T) {
	for ts, want := range map[[4]int64]int32{{100, 300, 200, 300}: 1, {5, 5, 5, 5}: 0, {1, 2, 3, 4}: 3, {-1, -1, 7, -1}: 2, {-1, -1, -1, -1}: 0} {
		for _, c := range codecs {
			recs := some(4)
			for i := range recs {
				recs[i].Timestamp = ts[i]
			}
			o := plain
			o.Codec = c
			if v := validate(t, build(t, o, recs), asSent); v.OffsetOfMaxDelta != want || v.MaxTimestamp != max(ts[0], ts[1], ts[2], ts[3]) {
				t.Errorf("%s %v: max %d at %d, want %d", c, ts, v.MaxTimestamp, v.OffsetOfMaxDelta, want)
			}
		}
	}
}

// BUG-060, and the append time of BUG-038
func TestLogAppendTimeStampsAllRecords(t *testing.T) {
	for _, c := range codecs {
		o := plain
		o.Codec = c
		recs := some(3)
		recs[0].Timestamp, recs[1].Timestamp, recs[2].Timestamp = 1, 50000, now+10*365*86400_000 // BUG: far future is no error here
		topic := asSent
		topic.LogAppendTime = true
		v := validate(t, build(t, o, recs), topic)
		if v.MaxTimestamp != now || v.OffsetOfMaxDelta != 0 || v.Batch.MaxTimestamp() != now || !v.Batch.LogAppendTime() {
			t.Errorf("%s: max %d at %d", c, v.MaxTimestamp, v.OffsetOfMaxDelta)
		}
		for _, r := range readRecords(t, v.Batch) {
			if r.Timestamp != now {
				t.Errorf("%s: record has %d", c, r.Timestamp)
			}
		}
	}
}

// BUG-068
func TestSizeLimitHoldsAsReceivedAndAsStored(t *testing.T) {
	o := plain
	o.Codec = Gzip
	bomb := build(t, o, []Record{{Value: make([]byte, 2_000_000)}})
	topic := asSent
	topic.MaxBytes = 100_000
	if v := validate(t, bytes.Clone(bomb), topic); len(readRecords(t, v.Batch)[0].Value) != 2_000_000 {
		t.Error("value is lost")
	}
	uncompressed := topic
	uncompressed.FromProducer, uncompressed.Codec = false, None
	before := bytes.Clone(bomb)
	if _, _, err := Validate(bomb, uncompressed); !errors.Is(err, ErrTooLarge) {
		t.Errorf("uncompressed: %v, want ErrTooLarge", err)
	}
	if !bytes.Equal(bomb, before) {
		t.Error("a refused batch is changed")
	}
	large := build(t, plain, []Record{{Value: make([]byte, 100_001)}})
	if _, _, err := Validate(large, topic); !errors.Is(err, ErrTooLarge) {
		t.Errorf("as received: %v, want ErrTooLarge", err)
	}
	zip := topic
	zip.FromProducer, zip.Codec = false, Zstd
	if _, _, err := Validate(large, zip); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large as received, small as stored: %v, want ErrTooLarge", err)
	}
	exact := topic
	exact.MaxBytes = int64(len(large))
	validate(t, large, exact)
	small := topic
	small.MaxDecompressed = 1_000_000
	if _, _, err := Validate(bomb, small); !errors.Is(err, ErrTooLarge) {
		t.Errorf("decompressed: %v, want ErrTooLarge", err)
	}
}

func TestTopicCodecRecompresses(t *testing.T) {
	for _, from := range codecs {
		for _, to := range codecs {
			o := goldenOptions(from)
			b := build(t, o, goldenRecords())
			b.SetOffset(0)
			b.SetMaxTimestamp(-1, false)
			topic := asSent
			topic.FromProducer, topic.Codec, topic.Level = false, to, 1
			v := validate(t, b, topic)
			if fresh := &v.Batch[0] != &b[0]; fresh != (from != to) {
				t.Errorf("%s to %s: fresh memory is %v", from, to, fresh)
			}
			v.Batch.SetOffset(1000)
			checkGolden(t, v.Batch, to)
		}
	}
}

func TestControlBatchesStayUncompressed(t *testing.T) {
	topic := asSent
	topic.FromProducer, topic.Codec, topic.ClientWrite = false, Gzip, false
	b := BuildMarker(nil, 1, 0, now, Marker{Commit: true})
	if v := validate(t, b, topic); v.Batch.Codec() != None {
		t.Errorf("codec = %s", v.Batch.Codec())
	}
}

func TestWrongOffsetDeltasAreRenumbered(t *testing.T) {
	for _, c := range codecs {
		recs := goldenRecords()[:3]
		recs[0].Offset, recs[1].Offset, recs[2].Offset = 0, 70, 80000
		o := goldenOptions(c)
		o.BaseOffset = 0
		b := build(t, o, recs)
		put32(b, atLastDelta, 2).seal()
		v := validate(t, b, asSent)
		recs[1].Offset, recs[2].Offset = 1, 2
		if got := readRecords(t, v.Batch); !reflect.DeepEqual(got, recs) || v.Batch.Codec() != c {
			t.Errorf("%s: renumbered to %v", c, got)
		}
	}
}

// BUG-090
func TestLeaderEpochOfAClientIsIgnored(t *testing.T) {
	for _, e := range []int32{-1, 0, 99} {
		b := build(t, plain, some(1))
		b.SetLeaderEpoch(e)
		v := validate(t, b, asSent)
		v.Batch.SetLeaderEpoch(3)
		if err := v.Batch.Check(); err != nil || v.Batch.LeaderEpoch() != 3 {
			t.Errorf("epoch %d: %v", e, err)
		}
	}
}

func TestClientFlagsOfTheBrokerAreCleared(t *testing.T) {
	b := build(t, plain, some(2))
	put16(b, atAttributes, attrLogAppendTime|attrDeleteHorizon).seal()
	v := validate(t, b, asSent)
	if a := v.Batch.Attributes(); a != 0 || v.MaxTimestamp != 2000 {
		t.Errorf("attributes = %x, max timestamp %d", a, v.MaxTimestamp)
	}
}

func TestTimestampsAreHeldToBothBounds(t *testing.T) {
	topic := asSent
	topic.TimestampBeforeMs, topic.TimestampAfterMs = 1000, 500
	for ts, ok := range map[int64]bool{
		now: true, now - 1000: true, now - 1001: false, now + 500: true, now + 501: false, -1: true,
		0: false, math.MaxInt64: false, math.MinInt64: false, -2: false,
	} {
		_, errs, err := Validate(build(t, plain, []Record{{Timestamp: ts}}), topic)
		if ok && err != nil || !ok && (!errors.Is(err, ErrTimestamp) || len(errs) != 1) {
			t.Errorf("timestamp %d: %v %v, want accepted %v", ts, err, errs, ok)
		}
	}
	if v := validate(t, build(t, plain, []Record{{Timestamp: -5}}), asSent); v.MaxTimestamp != -1 {
		t.Errorf("max of negative timestamps = %d, want -1", v.MaxTimestamp)
	}
}

func TestRefusedRecordsAreListed(t *testing.T) {
	for _, c := range codecs {
		o := plain
		o.Codec = c
		recs := some(4)
		recs[1].Key, recs[3].Key = nil, nil
		topic := asSent
		topic.CompactedTopic = true
		_, errs, err := Validate(build(t, o, recs), topic)
		if !errors.Is(err, ErrInvalid) || len(errs) != 2 || errs[0].Index != 1 || errs[1].Index != 3 || !strings.Contains(errs[0].Reason, "key") {
			t.Errorf("%s: %v %v", c, err, errs)
		}
		recs[2].Timestamp = now + 1e9 // one bad timestamp decides the code, as in Kafka
		_, errs, err = Validate(build(t, o, recs), topic)
		if !errors.Is(err, ErrTimestamp) || errors.Is(err, ErrInvalid) || len(errs) != 3 || errs[1].Index != 2 {
			t.Errorf("%s with a timestamp: %v %v", c, err, errs)
		}
		recs[1].Key, recs[3].Key, recs[2].Timestamp = []byte{}, []byte{}, now
		validate(t, build(t, o, recs), topic)
	}
	topic := asSent
	topic.LogAppendTime = true
	b := build(t, plain, some(2))
	b.SetMaxTimestamp(now, true)
	if _, errs, err := Validate(b, topic); !errors.Is(err, ErrTimestamp) || len(errs) != 2 {
		t.Errorf("producer says LogAppendTime: %v %v", err, errs)
	}
}

func TestRefusedRecordsAreBounded(t *testing.T) {
	recs := make([]Record, 5000)
	for i := range recs {
		recs[i].Offset = int64(i)
	}
	topic := asSent
	topic.CompactedTopic = true
	_, errs, err := Validate(build(t, plain, recs), topic)
	if len(errs) != maxRecordErrors || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "5000 of 5000") {
		t.Errorf("%d listed, %v", len(errs), err)
	}
}

func TestValidateRefusesBadHeaders(t *testing.T) {
	o := plain
	o.ProducerID, o.BaseSequence = 5, 0
	good := build(t, o, some(3))
	gz := o
	gz.Codec = Gzip
	garbage := build(t, gz, some(3))
	copy(garbage[HeaderSize:], "garbage")
	garbage.seal()
	zs := o
	zs.Codec = Zstd
	old := asSent
	old.AllowZstd = false
	cases := []struct {
		name string
		b    Batch
		o    ValidateOptions
		want error
	}{
		{"empty", nil, asSent, ErrCorrupt},
		{"cut short", good[:len(good)-1], asSent, ErrCorrupt},
		{"two batches", append(append(Batch(nil), good...), good...), asSent, ErrCorrupt},
		{"magic 1", edit(good, func(b Batch) { b[atMagic] = 1 }), asSent, ErrInvalid},
		{"CRC", edit(good, func(b Batch) { b[70]++ }), asSent, ErrCorrupt},
		{"base offset", edit(good, func(b Batch) { b.SetOffset(7) }), asSent, ErrInvalid},
		{"codec 7", edit(good, func(b Batch) { put16(b, atAttributes, 7).seal() }), asSent, ErrUnsupported},
		{"zstd before version 7", build(t, zs, some(3)), old, ErrUnsupported},
		{"no records", edit(good[:HeaderSize], func(b Batch) { put32(put32(b, atSize, minSizeV2), atCount, 0).seal() }), asSent, ErrInvalid},
		{"fewer records than offsets", edit(good, func(b Batch) { put32(b, atLastDelta, 3).seal() }), asSent, ErrInvalid},
		{"more records than offsets", edit(good, func(b Batch) { put32(b, atLastDelta, 1).seal() }), asSent, ErrInvalid},
		{"count above the records", edit(good, func(b Batch) { put32(put32(b, atLastDelta, 3), atCount, 4).seal() }), asSent, ErrInvalid},
		{"count below the records", edit(good, func(b Batch) { put32(put32(b, atLastDelta, 1), atCount, 2).seal() }), asSent, ErrInvalid},
		{"negative count", edit(good, func(b Batch) { put32(put32(b, atLastDelta, -2), atCount, -1).seal() }), asSent, ErrInvalid},
		{"control batch", BuildMarker(nil, 5, 0, now, Marker{}), asSent, ErrInvalid},
		{"producer without epoch", edit(good, func(b Batch) { put16(b, atProducerEpoch, -1).seal() }), asSent, ErrInvalid},
		{"producer without sequence", edit(good, func(b Batch) { put32(b, atBaseSequence, -1).seal() }), asSent, ErrInvalid},
		{"not what the codec says", garbage, asSent, ErrInvalid},
	}
	for _, c := range cases {
		before := bytes.Clone(c.b)
		v, _, err := Validate(c.b, c.o)
		if !errors.Is(err, c.want) || v.Batch != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if !bytes.Equal(before, c.b) {
			t.Errorf("%s: a refused batch is changed", c.name)
		}
	}
}

func edit(b Batch, f func(Batch)) Batch {
	b = bytes.Clone(b)
	f(b)
	return b
}

func TestValidateRefusesHostileRecords(t *testing.T) {
	for _, h := range hostileRecords {
		for _, c := range codecs {
			b, err := finish(appendHeader(nil, plain), 0, c, 0, h.bytes)
			if err != nil {
				t.Fatal(err)
			}
			put32(put32(b, atLastDelta, h.count-1), atCount, h.count).seal()
			if _, _, err := Validate(b, asSent); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s %s: %v, want ErrInvalid", c, h.name, err)
			}
		}
	}
}

func TestValidateUncompressedAllocatesNothing(t *testing.T) {
	b := build(t, plain, some(16))
	if n := testing.AllocsPerRun(50, func() { Validate(b, asSent) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
