package main

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func modeE2E(ctx context.Context) {
	ensureTopic(ctx)
	*fSize = max(*fSize, 16)
	e2e := newHist()
	cl, err := kgo.NewClient(append(consumeOpts(), kgo.ConsumeTopics(*fTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))...)
	die(err)
	cctx, cancel := context.WithCancel(ctx)
	t0 := time.Now().Add(*fWarm + 2*time.Second)
	var got atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			fs := cl.PollFetches(cctx)
			if cctx.Err() != nil || fs.IsClientClosed() {
				return
			}
			t := time.Now()
			fs.EachRecord(func(r *kgo.Record) {
				if len(r.Value) < 16 || binary.BigEndian.Uint64(r.Value) != 0x10ad6e4b10ad6e4b {
					return
				}
				s := time.Unix(0, int64(binary.BigEndian.Uint64(r.Value[8:])))
				if s.Before(t0) {
					return
				}
				e2e.add(t.Sub(s))
				got.Add(1)
			})
		}
	}()
	time.Sleep(1500 * time.Millisecond) // let the consumer find the end
	t0 = time.Now().Add(*fWarm + 50*time.Millisecond)
	res, a, b := produce(ctx, true)
	for i := 0; i < 100 && got.Load() < res.lat.count(); i++ {
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	cl.Close()
	<-done
	out := common()
	fill(out, a, b, res.acked.Load(), res.ackedBytes.Load())
	out["produce_latency"] = res.lat.out()
	out["latency"] = e2e.out()
	out["received"] = got.Load()
	out["errors"] = res.errs.Load()
	emit(out)
}
