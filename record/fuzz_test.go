package record

import (
	"bytes"
	"testing"
)

func seeds(f *testing.F) {
	for _, c := range codecs {
		for _, by := range []string{"kafka-", "varve-"} {
			f.Add([]byte(golden(f, by+c.String())))
		}
		o := plain
		o.Codec = c
		f.Add([]byte(build(f, o, some(3))))
	}
	f.Add([]byte(golden(f, "kafka-commit")))
	f.Add([]byte{})
	f.Add(make([]byte, 100))
	for _, h := range hostileRecords {
		f.Add([]byte(rawBatch(h.count, h.bytes)))
	}
}

// sealed is p as a batch whose size and CRC hold, so that mutations reach what is behind them.
func sealed(p []byte) Batch {
	b := Batch(bytes.Clone(p))
	if len(b) < HeaderSize {
		return b
	}
	put32(b, atSize, int32(len(b)-sizeOverhead))
	b[atMagic] = magicV2
	b.seal()
	return b
}

func FuzzNext(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		rest := p
		var again []byte
		for {
			b, r, err := Next(rest)
			if err != nil {
				break
			}
			_ = b.Check()
			again = append(again, b...)
			if len(r)+len(b) != len(rest) {
				t.Fatal("bytes lost")
			}
			rest = r
		}
		if !bytes.HasPrefix(p, again) {
			t.Fatal("batches are not the prefix")
		}
	})
}

func FuzzRecords(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		b := sealed(p)
		if b.Check() != nil {
			return
		}
		_, _ = ParseMarker(b)
		var recs []Record
		it := b.Records(1 << 20)
		defer it.Close()
		for it.Next() {
			recs = append(recs, it.Record())
		}
		if it.Err() != nil || len(recs) == 0 {
			return
		}
		if int32(len(recs)) != b.Count() {
			t.Fatalf("%d records, header says %d", len(recs), b.Count())
		}
		again, err := Build(nil, BatchOptions{BaseOffset: b.BaseOffset(), Codec: b.Codec(), ProducerID: -1}, recs)
		if err != nil {
			return // timestamps too far apart from the first
		}
		got := again.Records(1 << 20)
		defer got.Close()
		for i := 0; got.Next(); i++ {
			a, r := got.Record(), recs[i]
			if a.Offset != r.Offset || a.Timestamp != r.Timestamp || !bytes.Equal(a.Key, r.Key) || !bytes.Equal(a.Value, r.Value) || len(a.Headers) != len(r.Headers) {
				t.Fatalf("%v, want %v", a, r)
			}
		}
		cut, err := Truncate(b, b.LastOffset())
		if err != nil {
			t.Fatal(err)
		}
		if cut != nil && (cut.Check() != nil || cut.NextOffset() != b.LastOffset()) {
			t.Fatalf("truncated: %v, next %d", cut.Check(), cut.NextOffset())
		}
	})
}

func FuzzValidate(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, c := range codecs {
			o := asSent
			o.MaxDecompressed, o.FromProducer, o.Codec = 1<<20, c == None, c
			b := sealed(p)
			before := bytes.Clone(b)
			v, _, err := Validate(b, o)
			if err != nil {
				if !bytes.Equal(before, b) {
					t.Fatal("a refused batch is changed")
				}
				continue
			}
			if err := v.Batch.Check(); err != nil {
				t.Fatal(err)
			}
			n := int32(0)
			it := v.Batch.Records(2 << 20)
			for it.Next() {
				if it.Offset() != int64(n) {
					t.Fatalf("record %d has offset %d", n, it.Offset())
				}
				n++
			}
			if it.Err() != nil || n != v.Batch.Count() {
				t.Fatalf("%d records of %d, %v", n, v.Batch.Count(), it.Err())
			}
			it.Close()
			w, _, err := Validate(v.Batch, o)
			if err != nil || w.MaxTimestamp != v.MaxTimestamp || w.OffsetOfMaxDelta != v.OffsetOfMaxDelta || &w.Batch[0] != &v.Batch[0] {
				t.Fatalf("validated again: %+v, %v", w, err)
			}
		}
	})
}
