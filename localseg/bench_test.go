package localseg_test

import (
	"bytes"
	"fmt"
	"path"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/localseg/localsegtest"
	"github.com/varvelog/varve/record"
)

func batchOf(b testing.TB, size int) record.Batch {
	recs := []record.Record{{Timestamp: 1700000000000, Value: bytes.Repeat([]byte("x"), size-75)}}
	out, err := record.Build(nil, record.BatchOptions{ProducerID: -1}, recs)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{16 << 10, 256 << 10} {
		for _, producer := range []int64{-1, 5} {
			b.Run(fmt.Sprintf("%dKiB/producer%d", size>>10, producer), func(b *testing.B) {
				c := localseg.Config{SegmentBytes: 256 << 20, RetentionBytes: 512 << 20, FileDeleteDelayMs: 1}
				l, err := localseg.Open(vfs.OS{}, path.Join(b.TempDir(), "t-0"), localseg.Options{Config: c})
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				batch := batchOf(b, size)
				one := []record.Batch{batch}
				now := int64(1)
				b.ReportAllocs()
				b.SetBytes(int64(size))
				seq := int32(0)
				for b.Loop() {
					if producer >= 0 {
						setProducer(batch, producer, seq)
						seq++
					}
					a, err := l.Append(one, 1, localseg.OriginClient)
					if err != nil {
						b.Fatal(err)
					}
					if a.Rolled {
						now += 1000
						if _, err := l.Retain(now, 0); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// setProducer patches the header; the log does not look at the CRC of a batch that was validated.
func setProducer(b record.Batch, id int64, seq int32) {
	copy(b[43:], []byte{0, 0, 0, 0, 0, 0, 0, byte(id), 0, 0, byte(seq >> 24), byte(seq >> 16), byte(seq >> 8), byte(seq)})
}

// The write alone, to compare with.
func BenchmarkWriteOnly(b *testing.B) {
	for _, size := range []int{16 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			f, err := vfs.OS{}.OpenFile(path.Join(b.TempDir(), "x"), 0o102, 0o644)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			p := batchOf(b, size)
			b.SetBytes(int64(size))
			at := int64(0)
			for b.Loop() {
				if _, err := f.WriteAt(p, at); err != nil {
					b.Fatal(err)
				}
				if at += int64(size); at >= 256<<20 {
					at = 0
					if err := f.Truncate(0); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	l, err := localseg.Open(vfs.OS{}, path.Join(b.TempDir(), "t-0"), localseg.Options{Config: localseg.Config{SegmentBytes: 32 << 20, RetentionMs: -1}})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	batch := []record.Batch{batchOf(b, 1024)}
	for range 100_000 {
		if _, err := l.Append(batch, 1, localseg.OriginClient); err != nil {
			b.Fatal(err)
		}
	}
	run := func(name string, off func(i int64) int64, max int) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				s, err := l.Read(off(i), l.LEO(), max)
				if err != nil {
					b.Fatal(err)
				}
				s.Release()
			}
		})
	}
	run("tail", func(i int64) int64 { return l.LEO() - 1 - i%16 }, 1<<20)
	run("middle", func(i int64) int64 { return i * 7919 % 100_000 }, 1<<20)
}

func BenchmarkOpen1000Clean(b *testing.B) {
	dir := b.TempDir()
	for i := range 1000 {
		l, err := localseg.Open(vfs.OS{}, path.Join(dir, fmt.Sprintf("t-%d", i)), localseg.Options{TopicID: [16]byte{1}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.Append([]record.Batch{localsegtest.Plain(b, 1)}, 1, localseg.OriginClient); err != nil {
			b.Fatal(err)
		}
		if err := l.CloseClean(); err != nil {
			b.Fatal(err)
		}
	}
	for _, clean := range []bool{true, false} {
		b.Run(fmt.Sprintf("clean=%v", clean), func(b *testing.B) {
			files := localseg.NewFileCache(100)
			for b.Loop() {
				for i := range 1000 {
					l, err := localseg.Open(vfs.OS{}, path.Join(dir, fmt.Sprintf("t-%d", i)), localseg.Options{TopicID: [16]byte{1}, Clean: clean, Files: files})
					if err != nil {
						b.Fatal(err)
					}
					l.Close()
				}
			}
		})
	}
}

func BenchmarkCreate1000(b *testing.B) {
	for n := 0; b.Loop(); n++ {
		dir := b.TempDir()
		files := localseg.NewFileCache(100)
		for i := range 1000 {
			l, err := localseg.Open(vfs.OS{}, path.Join(dir, fmt.Sprintf("%d-t-%d", n, i)), localseg.Options{TopicID: [16]byte{1}, Files: files})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := l.Append([]record.Batch{localsegtest.Plain(b, 1)}, 1, localseg.OriginClient); err != nil {
				b.Fatal(err)
			}
		}
	}
}
