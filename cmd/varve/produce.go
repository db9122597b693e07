package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

func produceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Write each line of standard input as a record",
		Args:  exactly(1, "one topic name"),
	}
	at := bootstrap(cmd)
	sep := cmd.Flags().String("key-separator", "", "text between key and value in a line; none: lines have no key")
	partition := cmd.Flags().Int32("partition", -1, "partition to write to (-1: by key, or spread)")
	codec := cmd.Flags().String("compression", "none", "none, gzip, snappy, lz4 or zstd")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		opts := []kgo.Opt{kgo.AllowAutoTopicCreation()}
		c, ok := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[*codec]
		if !ok {
			return usagef("--compression %q must be none, gzip, snappy, lz4 or zstd", *codec)
		}
		opts = append(opts, kgo.ProducerBatchCompression(c))
		if *partition >= 0 {
			opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		}
		cl, err := dial(cmd.Context(), *at, opts...)
		if err != nil {
			return err
		}
		defer cl.Close()
		return produceLines(cmd.Context(), cl, args[0], *sep, *partition)
	}
	return cmd
}

// maxLine is the longest line taken as a record, bytes.
const maxLine = 16 << 20

// produceLines sends standard input; it fails if any record failed, and says how many did not.
func produceLines(ctx context.Context, cl *kgo.Client, topic, sep string, partition int32) error {
	var failed, sent atomic.Int64
	var first atomic.Pointer[error]
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 64<<10), maxLine)
	for in.Scan() && ctx.Err() == nil {
		r := &kgo.Record{Topic: topic, Partition: max(partition, 0)}
		line := in.Text()
		if k, v, ok := strings.Cut(line, sep); ok && sep != "" {
			r.Key, r.Value = []byte(k), []byte(v)
		} else {
			r.Value = []byte(line)
		}
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err == nil {
				sent.Add(1)
				return
			}
			failed.Add(1)
			first.CompareAndSwap(nil, &err)
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d records were not written: %w", n, n+sent.Load(), *first.Load())
	}
	return nil
}
