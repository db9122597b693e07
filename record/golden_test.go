package record

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// goldenRecords are the records in testdata/v2/kafka-*.bin, which Kafka's own Java code (4.4.0) has written.
func goldenRecords() []Record {
	recs := make([]Record, 40)
	for i := range recs {
		r := Record{Offset: 1000 + int64(i), Timestamp: 1700000000000 + int64(i)*10}
		if i%2 == 1 {
			r.Timestamp = 1700000000000 - int64(i)*10
		}
		if i%5 != 0 {
			r.Key = fmt.Appendf(nil, "key-%d", i)
		}
		if i%7 != 3 {
			var s strings.Builder
			for s.Len() < 1000 {
				fmt.Fprintf(&s, "value %d ", i)
				fmt.Fprintf(&s, "%d,", s.Len())
			}
			r.Value = []byte(s.String()[:1000])
		}
		if i%3 == 0 {
			r.Headers = []Header{{Key: "h1", Value: bytes.Repeat([]byte("x"), i)}, {Key: "h2"}}
		}
		recs[i] = r
	}
	return recs
}

func goldenOptions(c Codec) BatchOptions {
	return BatchOptions{BaseOffset: 1000, LeaderEpoch: 3, Codec: c, ProducerID: 42, ProducerEpoch: 7,
		BaseSequence: 2147483640, Transactional: true}
}

func golden(t testing.TB, name string) Batch {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "v2", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readRecords copies all records of b.
func readRecords(t testing.TB, b Batch) []Record {
	t.Helper()
	it := b.Records(64 << 20)
	defer it.Close()
	var recs []Record
	for it.Next() {
		r := it.Record()
		r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
		for i := range r.Headers {
			r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
		}
		recs = append(recs, r)
	}
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
	return recs
}

func build(t testing.TB, o BatchOptions, recs []Record) Batch {
	t.Helper()
	b, err := Build(nil, o, recs)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenBatchesOfKafkaDecode(t *testing.T) {
	for _, c := range codecs {
		t.Run(c.String(), func(t *testing.T) {
			b := golden(t, "kafka-"+c.String())
			if err := b.Check(); err != nil {
				t.Fatal(err)
			}
			checkGolden(t, b, c)
		})
	}
}

func TestGoldenBatchesOfOursDecode(t *testing.T) {
	for _, c := range codecs {
		t.Run(c.String(), func(t *testing.T) {
			b := golden(t, "varve-"+c.String())
			if err := b.Check(); err != nil {
				t.Fatal(err)
			}
			checkGolden(t, b, c)
		})
	}
}

func TestBuildIsWhatKafkaWrites(t *testing.T) {
	if got := build(t, goldenOptions(None), goldenRecords()); !bytes.Equal(got, golden(t, "kafka-none")) {
		t.Fatal("bytes differ from Kafka's")
	}
	for _, c := range codecs {
		checkGolden(t, build(t, goldenOptions(c), goldenRecords()), c)
	}
}

func checkGolden(t *testing.T, b Batch, c Codec) {
	t.Helper()
	got := []any{b.BaseOffset(), b.LastOffset(), b.NextOffset(), b.LeaderEpoch(), b.Magic(), b.Codec(), b.Transactional(),
		b.Control(), b.LogAppendTime(), b.BaseTimestamp(), b.MaxTimestamp(), b.ProducerID(), b.ProducerEpoch(),
		b.BaseSequence(), b.LastSequence(), b.Count()}
	want := []any{int64(1000), int64(1039), int64(1040), int32(3), int8(2), c, true, false, false,
		int64(1700000000000), int64(1700000000380), int64(42), int16(7), int32(2147483640), int32(31), int32(40)}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("header = %v, want %v", got, want)
	}
	records := goldenRecords()
	recs := readRecords(t, b)
	if len(recs) != len(records) {
		t.Fatalf("%d records, want %d", len(recs), len(records))
	}
	for i := range recs {
		if !reflect.DeepEqual(recs[i], records[i]) {
			t.Fatalf("record %d = %v, want %v", i, recs[i], records[i])
		}
	}
	checkFranz(t, b, goldenRecords())
}

// checkFranz has franz-go decode b.
func checkFranz(t *testing.T, b Batch, want []Record) {
	t.Helper()
	var h kmsg.RecordBatch
	if err := h.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	if h.NumRecords != b.Count() || uint32(h.CRC) != b.CRC() || h.LastOffsetDelta != b.lastDelta() || h.FirstSequence != b.BaseSequence() {
		t.Fatalf("kmsg reads another header: %+v", h)
	}
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.RecordBatches, rp.HighWatermark = b, b.NextOffset()
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: b.BaseOffset(), Topic: "t"}, &rp, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		t.Fatal(fp.Err)
	}
	if len(fp.Records) != len(want) {
		t.Fatalf("franz-go reads %d records, want %d", len(fp.Records), len(want))
	}
	for i, r := range fp.Records {
		w := want[i]
		if r.Offset != w.Offset || r.Timestamp.UnixMilli() != w.Timestamp || !bytes.Equal(r.Key, w.Key) ||
			!bytes.Equal(r.Value, w.Value) || (r.Value == nil) != (w.Value == nil) || len(r.Headers) != len(w.Headers) {
			t.Fatalf("franz-go reads %v, want %v", r, w)
		}
	}
}
