package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func modeConsume(ctx context.Context) {
	acl, err := kgo.NewClient(base()...)
	die(err)
	adm := kadm.NewClient(acl)
	starts, err := adm.ListStartOffsets(ctx, *fTopic)
	die(err)
	ends, err := adm.ListEndOffsets(ctx, *fTopic)
	die(err)
	var want int64
	type pr struct{ s, e int64 }
	parts := map[int32]pr{}
	var order []int32
	ends.Each(func(o kadm.ListedOffset) {
		s, _ := starts.Lookup(*fTopic, o.Partition)
		want += o.Offset - s.Offset
		parts[o.Partition] = pr{s.Offset, o.Offset}
		if o.Offset > s.Offset {
			order = append(order, o.Partition)
		}
	})
	acl.Close()
	if *fRecords > 0 && *fRecords < want {
		want = *fRecords
	}
	ctx, cancel := context.WithTimeout(ctx, *fTimeout)
	defer cancel()
	var recs, bytes atomic.Int64
	var first atomic.Int64
	a := now()
	var wg sync.WaitGroup
	var clients []*kgo.Client
	for i := 0; i < *fCons; i++ {
		o := consumeOpts()
		if *fGroup != "" {
			o = append(o, kgo.ConsumerGroup(*fGroup), kgo.ConsumeTopics(*fTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		} else {
			m := map[int32]kgo.Offset{}
			for j, p := range order {
				if j%*fCons == i {
					m[p] = kgo.NewOffset().At(parts[p].s)
				}
			}
			if len(m) == 0 {
				continue
			}
			o = append(o, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{*fTopic: m}))
		}
		cl, err := kgo.NewClient(o...)
		die(err)
		clients = append(clients, cl)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for ctx.Err() == nil {
				fs := cl.PollFetches(ctx)
				var n, by int64
				fs.EachRecord(func(r *kgo.Record) { n++; by += int64(len(r.Value) + len(r.Key)) })
				if n > 0 {
					first.CompareAndSwap(0, time.Now().UnixNano())
				}
				bytes.Add(by)
				if recs.Add(n) >= want {
					cancel()
					return
				}
			}
		}()
	}
	wg.Wait()
	b := now()
	for _, c := range clients {
		c.Close()
	}
	out := common()
	fill(out, a, b, recs.Load(), bytes.Load())
	out["want"] = want
	out["consumers"] = *fCons
	if f := first.Load(); f > 0 {
		out["first_record_ms"] = r3(float64(f-a.t.UnixNano()) / 1e6)
		out["mb_per_s_after_first"] = r3(float64(bytes.Load()) / 1e6 / (float64(b.t.UnixNano()-f) / 1e9))
	}
	emit(out)
}
