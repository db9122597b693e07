package etcdkv

import (
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/varvelog/varve/meta"
)

func BenchmarkFreshStart(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		s, err := Start(b.Context(), ServerOptions{Dir: b.TempDir(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
}

func BenchmarkStore(b *testing.B) {
	dir := b.TempDir()
	o := ServerOptions{Dir: dir, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	s, err := Start(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	st, err := meta.Open(b.Context(), s.KV(), "c", meta.Options{})
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	b.Run("create 2000 partitions", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a := make([][]int32, 2000)
			for i := range a {
				a[i] = []int32{0, 1, 2}
			}
			if _, err := st.CreateTopic(b.Context(), meta.TopicSpec{Name: fmt.Sprint("t", n), Assignment: a}); err != nil {
				b.Fatal(err)
			}
			n++
		}
	})
	for ; n < 5; n++ {
		if _, err := st.CreateTopic(b.Context(), meta.TopicSpec{Name: fmt.Sprint("t", n), Assignment: make2000()}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("load image of 2000 partitions a topic", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := meta.Open(b.Context(), s.KV(), "c", meta.Options{}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(n*2000), "partitions")
	})
	s.Close()
	b.Run("restart", func(b *testing.B) {
		for b.Loop() {
			s, err := Start(b.Context(), o)
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			s.Close()
			b.StartTimer()
		}
	})
}

func make2000() [][]int32 {
	a := make([][]int32, 2000)
	for i := range a {
		a[i] = []int32{0, 1, 2}
	}
	return a
}
