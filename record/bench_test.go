package record

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// kib are records of 1 KiB, somewhat compressible, of n KiB in all.
func kib(n int) []Record {
	r := rand.New(rand.NewPCG(1, 2))
	recs := make([]Record, n)
	for i := range recs {
		v := make([]byte, 1000)
		for j := range v {
			v[j] = "abcdefgh01234567"[r.IntN(16)]
			if j > 40 && r.IntN(4) > 0 {
				v[j] = v[j-37]
			}
		}
		recs[i] = Record{Offset: int64(i), Timestamp: now + int64(i), Key: fmt.Appendf(nil, "key-%d", i), Value: v}
	}
	return recs
}

func batchOf(b *testing.B, c Codec, n int) Batch {
	o := plain
	o.Codec = c
	return build(b, o, kib(n))
}

func BenchmarkCheck(b *testing.B) {
	for _, n := range []int{16, 256} {
		b.Run(fmt.Sprintf("%dKiB", n), func(b *testing.B) {
			batch := batchOf(b, None, n)
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if batch.Check() != nil {
					b.Fatal()
				}
			}
		})
	}
}

func BenchmarkScan16KiB(b *testing.B) {
	batch := batchOf(b, None, 16)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := asSent.scan(batch, batch[HeaderSize:]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	for _, c := range codecs {
		for _, n := range []int{16, 256} {
			b.Run(fmt.Sprintf("%s/%dKiB", c, n), func(b *testing.B) {
				batch := batchOf(b, c, n)
				b.SetBytes(int64(n) << 10) // as uncompressed
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := Validate(batch, asSent); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, c := range codecs {
		for _, n := range []int{16, 256} {
			b.Run(fmt.Sprintf("%s/%dKiB", c, n), func(b *testing.B) {
				recs := kib(n)
				o := plain
				o.Codec = c
				var dst []byte
				b.SetBytes(int64(n) << 10)
				b.ReportAllocs()
				for b.Loop() {
					batch, err := Build(dst[:0], o, recs)
					if err != nil {
						b.Fatal(err)
					}
					dst = batch
				}
			})
		}
	}
}
