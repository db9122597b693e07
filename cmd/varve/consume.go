package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type consumeOptions struct {
	at, fromTime, tz, output string
	partition                int32
	offset, count            int64
	follow                   bool
}

func consumeCommand() *cobra.Command {
	var o consumeOptions
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Print a topic's records, from its start to its present end",
		Args:  exactly(1, "one topic name"),
	}
	at := bootstrap(cmd)
	f := cmd.Flags()
	f.StringVar(&o.fromTime, "from-time", "", "begin with the first record at or after this time (RFC 3339)")
	f.StringVar(&o.tz, "tz", "", "zone of a --from-time without one, e.g. Europe/Berlin")
	f.Int64Var(&o.offset, "at-offset", -1, "begin with this offset")
	f.Int32Var(&o.partition, "partition", -1, "one partition (-1: all)")
	f.Int64Var(&o.count, "count", -1, "stop after so many records (-1: at the end)")
	f.BoolVar(&o.follow, "follow", false, "go on at the end, waiting for more")
	f.StringVar(&o.output, "output", "text", "text (the value a line), keyed (key TAB value) or json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.at = *at
		if o.fromTime != "" && o.offset >= 0 {
			return usagef("--from-time and --at-offset are both given; give one")
		}
		if o.output != "text" && o.output != "keyed" && o.output != "json" {
			return usagef("--output %q must be text, keyed or json", o.output)
		}
		return consume(cmd.Context(), cmd.OutOrStdout(), args[0], o)
	}
	return cmd
}

// span is what is left to read of a partition: [next, end).
type span struct{ next, end int64 }

func consume(ctx context.Context, out io.Writer, topic string, o consumeOptions) error {
	cl, err := dial(ctx, o.at)
	if err != nil {
		return err
	}
	defer cl.Close()
	spans, err := plan(ctx, kadm.NewClient(cl), topic, o)
	if err != nil {
		return err
	}
	from, left := map[int32]kgo.Offset{}, int64(0)
	for p, s := range spans {
		if s.next < s.end || o.follow {
			from[p] = kgo.NewOffset().At(s.next)
			left++
		}
	}
	if left == 0 {
		return nil
	}
	reader, err := dial(ctx, o.at, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer reader.Close()
	w := bufio.NewWriterSize(out, 256<<10)
	defer w.Flush()
	return copyRecords(ctx, reader, w, spans, left, o)
}

// plan finds where each partition begins and ends.
func plan(ctx context.Context, adm *kadm.Client, topic string, o consumeOptions) (map[int32]span, error) {
	topics, err := adm.ListTopicsWithInternal(ctx, topic)
	if err != nil {
		return nil, err
	}
	if t := topics[topic]; t.Err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, t.Err)
	}
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	if o.fromTime != "" {
		t, err := parseMoment("--from-time", o.fromTime, o.tz, time.Now())
		if err != nil {
			return nil, err
		}
		if starts, err = adm.ListOffsetsAfterMilli(ctx, t.UnixMilli(), topic); err != nil {
			return nil, err
		}
	}
	out := map[int32]span{}
	ends.Each(func(e kadm.ListedOffset) {
		if e.Err != nil {
			err = fmt.Errorf("partition %d: %w", e.Partition, e.Err)
		}
		s, _ := starts.Lookup(topic, e.Partition)
		first := s.Offset
		if o.offset >= 0 {
			first = max(first, o.offset)
		}
		if o.partition < 0 || o.partition == e.Partition {
			out[e.Partition] = span{first, e.Offset}
		}
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("topic %s has no partition %d", topic, o.partition)
	}
	return out, err
}

// copyRecords prints until every partition has come to its end; left is how many have not.
func copyRecords(ctx context.Context, cl *kgo.Client, w *bufio.Writer, spans map[int32]span, left int64, o consumeOptions) error {
	var printed int64
	for left > 0 || o.follow {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.Canceled) {
				return fmt.Errorf("partition %d: %w", e.Partition, e.Err)
			}
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			s := spans[r.Partition]
			if r.Offset >= s.end && !o.follow {
				continue
			}
			if !r.Attrs.IsControl() {
				if err := printRecord(w, r, o.output); err != nil {
					return err
				}
				if printed++; printed == o.count {
					return nil
				}
			}
			if s.next < s.end && r.Offset+1 >= s.end {
				left--
			}
			s.next = r.Offset + 1
			spans[r.Partition] = s
		}
		if o.follow {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

type recordJSON struct {
	Topic     string            `json:"topic"`
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Timestamp string            `json:"timestamp"`
	Key       *string           `json:"key"`
	Value     *string           `json:"value"`
	Headers   map[string]string `json:"headers,omitempty"`
}

func printRecord(w *bufio.Writer, r *kgo.Record, output string) error {
	switch output {
	case "json":
		j := recordJSON{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: stamp(r.Timestamp.UnixMilli())}
		if r.Key != nil {
			k := string(r.Key)
			j.Key = &k
		}
		if r.Value != nil {
			v := string(r.Value)
			j.Value = &v
		}
		for _, h := range r.Headers {
			if j.Headers == nil {
				j.Headers = map[string]string{}
			}
			j.Headers[h.Key] = string(h.Value)
		}
		text, err := json.Marshal(j)
		if err != nil {
			return err
		}
		w.Write(text)
	case "keyed":
		w.Write(r.Key)
		w.WriteByte('\t')
		w.Write(r.Value)
	default:
		w.Write(r.Value)
	}
	return w.WriteByte('\n')
}
