package tier

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/file"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/record"
)

const benchBytes = 256 << 20

// benchLog is a log of benchBytes in batches of 16 KiB, 64 MiB a segment.
func benchLog(b *testing.B) *source {
	b.Helper()
	l, err := localseg.Open(vfs.OS{}, b.TempDir()+"/a-0", localseg.Options{Topic: "a", TopicID: topicA,
		Config: localseg.Config{SegmentBytes: 64 << 20, Tiered: true}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	recs := make([]record.Record, 16)
	for i := range recs {
		recs[i] = record.Record{Offset: int64(i), Timestamp: 1700000000000, Value: make([]byte, 1000)}
	}
	for l.SizeBytes() < benchBytes {
		batch, err := record.Build(nil, record.BatchOptions{ProducerID: -1}, recs)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.Append([]record.Batch{batch}, 1, localseg.OriginClient); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Roll(); err != nil {
		b.Fatal(err)
	}
	s := &source{log: l}
	s.hw.Store(-1)
	return s
}

func benchBuckets(b *testing.B, f func(b *testing.B, bucket objstore.Bucket)) {
	b.Run("mem", func(b *testing.B) { f(b, mem.New(mem.Options{})) })
	b.Run("file", func(b *testing.B) {
		bucket, err := file.New(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		f(b, bucket)
	})
}

func benchArchive(b *testing.B, bucket objstore.Bucket, src *source) *Partition {
	b.Helper()
	info, inc, err := OpenArchive(b.Context(), bucket, "c1")
	if err != nil {
		b.Fatal(err)
	}
	c, err := cache.New(cache.Options{MemoryBytes: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	ptrs := &pointers{records: map[manifest.PartitionID]Pointer{partA: {LeaderEpoch: 1, Incarnation: inc}}}
	a := New(bucket, info, ptrs, c, Options{Cluster: "c1", Incarnation: inc})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done; _ = c.Close() })
	p, err := a.Lead(b.Context(), partA, 1, src, TopicConfig{Name: "a"})
	if err != nil {
		b.Fatal(err)
	}
	if err := p.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	return p
}

// BenchmarkSequentialRead reads the whole archive once an iteration, 1 MiB a read, four times what the cache holds.
func BenchmarkSequentialRead(b *testing.B) {
	src := benchLog(b)
	benchBuckets(b, func(b *testing.B, bucket objstore.Bucket) {
		p := benchArchive(b, bucket, src)
		end := p.Through()
		b.ReportAllocs()
		b.SetBytes(src.log.SizeBytes())
		for b.Loop() {
			for off := int64(0); off < end; {
				d, err := p.Read(b.Context(), off, 1<<20)
				if err != nil {
					b.Fatal(err)
				}
				off = d.Next
				d.Release()
			}
		}
	})
}

// BenchmarkUpload describes and sends the whole log once an iteration, to a partition of its own.
func BenchmarkUpload(b *testing.B) {
	src := benchLog(b)
	bucket := mem.New(mem.Options{})
	b.ReportAllocs()
	b.SetBytes(src.log.SizeBytes())
	begin := time.Now()
	for i := 0; b.Loop(); i++ {
		id := manifest.PartitionID{Topic: topicA, Partition: int32(i)}
		for _, s := range src.log.Segments() {
			if s.Active {
				continue
			}
			seg, err := buildSegment(b.Context(), src.log, part{base: s.Base, end: s.End}, segmentOf{partition: id, chunkBytes: 4 << 20})
			if err != nil {
				b.Fatal(err)
			}
			key := fmt.Sprintf("x/%d-%d", time.Since(begin), s.Base)
			if _, err := bucket.Put(b.Context(), key, seg.body, objstore.Cond{IfNoneMatch: true}); err != nil {
				b.Fatal(err)
			}
			_ = bucket.Delete(b.Context(), key)
			seg.release()
		}
	}
}
