package main

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type gaps struct {
	mu      sync.Mutex
	last    time.Time
	max     time.Duration
	maxAt   time.Time
	byPart  map[int32]time.Time
	maxPart time.Duration
	over    []map[string]any
}

func (g *gaps) ack(p int32, t time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.last.IsZero() {
		d := t.Sub(g.last)
		if d > g.max {
			g.max, g.maxAt = d, t
		}
		if *fGapLog && d > 200*time.Millisecond {
			g.over = append(g.over, map[string]any{"gap_ms": d.Milliseconds(), "end_unix_ms": t.UnixMilli()})
		}
	}
	g.last = t
	if l, ok := g.byPart[p]; ok {
		if d := t.Sub(l); d > g.maxPart {
			g.maxPart = d
		}
	}
	g.byPart[p] = t
}

type prodResult struct {
	acked, ackedBytes, errs atomic.Int64
	firstErr                atomic.Value
	lat                     *hist
	gaps                    gaps
}

// runProducers drives -producers clients until stop; t0 is the end of the warm-up.
func runProducers(ctx context.Context, res *prodResult, t0, tEnd time.Time, stamp bool, onReady func()) {
	pool := payloads()
	var wg sync.WaitGroup
	var sent atomic.Int64
	clients := make([]*kgo.Client, *fProd)
	for i := range clients {
		cl, err := kgo.NewClient(append(producerOpts(), kgo.DefaultProduceTopic(*fTopic))...)
		die(err)
		clients[i] = cl
	}
	if onReady != nil {
		onReady()
	}
	for i := range clients {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			cl := clients[i]
			per := time.Duration(0)
			next := time.Now()
			if *fRate > 0 {
				per = time.Duration(float64(time.Second) * float64(*fProd) / *fRate)
				next = next.Add(per * time.Duration(i) / time.Duration(*fProd))
			}
			for n := i * 131; ; n++ {
				start := time.Now()
				if !start.Before(tEnd) || ctx.Err() != nil {
					break
				}
				if per > 0 {
					if d := next.Sub(start); d > 0 {
						time.Sleep(d)
					}
					start = next // latency from the intended time: no coordinated omission
					next = next.Add(per)
				}
				if *fRecords > 0 && sent.Add(1) > *fRecords {
					break
				}
				v := pool[n%len(pool)]
				if stamp {
					v = append([]byte(nil), v...)
					binary.BigEndian.PutUint64(v, 0x10ad6e4b10ad6e4b)
					binary.BigEndian.PutUint64(v[8:], uint64(start.UnixNano()))
				}
				rec := &kgo.Record{Value: v}
				cl.Produce(ctx, rec, func(r *kgo.Record, err error) {
					t := time.Now()
					if err != nil {
						if !start.Before(t0) {
							res.errs.Add(1)
							res.firstErr.CompareAndSwap(nil, err.Error())
						}
						return
					}
					res.gaps.ack(r.Partition, t)
					if !t.Before(t0) {
						res.acked.Add(1)
						res.ackedBytes.Add(int64(len(r.Value)))
						if !start.Before(t0) {
							res.lat.add(t.Sub(start))
						}
					}
				})
			}
			fctx, c := context.WithTimeout(context.Background(), *fRetry)
			cl.Flush(fctx)
			c()
		}(i)
	}
	wg.Wait()
	for _, cl := range clients {
		cl.Close()
	}
}

func produce(ctx context.Context, stamp bool) (*prodResult, mark, mark) {
	res := &prodResult{lat: newHist()}
	res.gaps.byPart = map[int32]time.Time{}
	var a mark
	var t0 time.Time
	warmDone := make(chan struct{})
	// the clock starts once the clients exist; warm-up is counted from there
	t0 = time.Now().Add(*fWarm + 50*time.Millisecond)
	tEnd := t0.Add(*fDur)
	go func() { time.Sleep(time.Until(t0)); a = now(); close(warmDone) }()
	if *fWarm == 0 {
		<-warmDone
	}
	runProducers(ctx, res, t0, tEnd, stamp, nil)
	<-warmDone
	return res, a, now()
}

func modeProduce(ctx context.Context) {
	ensureTopic(ctx)
	res, a, b := produce(ctx, false)
	out := common()
	fill(out, a, b, res.acked.Load(), res.ackedBytes.Load())
	out["latency"] = res.lat.out()
	out["errors"] = res.errs.Load()
	if e := res.firstErr.Load(); e != nil {
		out["first_error"] = e
	}
	out["max_ack_gap_ms"] = r3(float64(res.gaps.max) / 1e6)
	out["max_ack_gap_end_unix_ms"] = res.gaps.maxAt.UnixMilli()
	out["max_partition_ack_gap_ms"] = r3(float64(res.gaps.maxPart) / 1e6)
	if *fGapLog {
		out["gaps_over_200ms"] = res.gaps.over
	}
	emit(out)
}
