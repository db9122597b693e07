package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/record"
)

// consumer reads partitions from random offsets on.
type consumer struct {
	w   *stage
	rng *rand.Rand
	c   caller
}

func newConsumer(w *stage, i int) *consumer {
	c := &consumer{w: w, rng: w.rand(fmt.Sprint("consumer", i))}
	c.c = w.caller(c.rng)
	return c
}

func (c *consumer) run(ctx context.Context) {
	defer c.c.close()
	for ctx.Err() == nil {
		pause(ctx, time.Duration(1+c.rng.Int64N(int64(c.w.plan.think))))
		p := c.w.history.pick(c.rng)
		if p == nil || ctx.Err() != nil {
			continue
		}
		r := c.w.history.ask(p)
		off := c.rng.Int64N(max(r.hw, r.end) + 3)
		for range 1 + c.rng.IntN(4) {
			next, err := c.fetch(ctx, p, off, int32(1+c.rng.IntN(20_000)))
			if err != nil || next <= off {
				break
			}
			off = next
		}
	}
}

// errCode is an answer with a Kafka error.
type errCode int16

func (e errCode) Error() string { return kerr.ErrorForCode(int16(e)).Error() }

// fetch reads once and enters what it saw. It returns the offset to go on at, off if there was nothing.
func (c *consumer) fetch(ctx context.Context, p *part, off int64, maxBytes int32) (next int64, err error) {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 16, -1, int32(c.rng.IntN(2000)), 1, maxBytes
	req.ReplicaState.ID, req.ReplicaState.Epoch, req.SessionEpoch = -1, -1, -1
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.id.Partition, off, maxBytes
	rt := kmsg.NewFetchRequestTopic()
	rt.TopicID, rt.Partitions = p.id.Topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)

	r := c.w.history.ask(p)
	resp, err := c.c.do(ctx, p, req)
	if err != nil {
		return off, err
	}
	r = r.by(c.c)
	f := resp.(*kmsg.FetchResponse)
	if f.ErrorCode != 0 || len(f.Topics) != 1 || len(f.Topics[0].Partitions) != 1 {
		return off, fmt.Errorf("fetch answer with code %d and %d topics", f.ErrorCode, len(f.Topics))
	}
	a := f.Topics[0].Partitions[0]
	switch {
	case a.ErrorCode == kerr.OffsetOutOfRange.Code:
		if r.sure {
			c.w.history.outOfRange(r, off)
		}
		return off, errCode(a.ErrorCode)
	case a.ErrorCode != 0:
		c.w.history.refused(p, "fetch", a.ErrorCode)
		return off, errCode(a.ErrorCode)
	}
	if r.sure {
		c.w.history.watermark(r, a.HighWatermark, a.LogStartOffset)
	}
	if next, err = c.w.history.batches(r, off, a.RecordBatches); err == nil && c.w.told != nil && !c.w.history.lossy(p) {
		end := a.HighWatermark
		if next > off {
			end = max(end, next)
		}
		c.w.told(p, end)
	}
	return next, err
}

// batches enters what a read from off returned: whole batches, the last one maybe cut short; the first holds off, and nothing is
// missing in between.
func (h *History) batches(r request, off int64, b []byte) (next int64, err error) {
	next = off
	for first := true; len(b) > 0; first = false {
		batch, rest, err := record.Next(b)
		if err != nil {
			break // cut short by the size asked for
		}
		b = rest
		if err := batch.Check(); err != nil {
			h.broken(r, "bytes are what was written", "batch at %d: %v", batch.BaseOffset(), err)
			return next, err
		}
		base := batch.BaseOffset()
		if first && (base > off || batch.NextOffset() <= off) || !first && base != next {
			h.broken(r, "offsets are dense", "read from %d: batch [%d, %d), expected %d", off, base, batch.NextOffset(), next)
			return next, errCode(-1)
		}
		if err := h.records(r, batch); err != nil {
			h.broken(r, "bytes are what was written", "batch at %d: %v", base, err)
			return next, err
		}
		next = batch.NextOffset()
	}
	return next, nil
}

func (h *History) records(r request, b record.Batch) error {
	it := b.Records(1 << 20)
	defer it.Close()
	want := b.BaseOffset()
	for it.Next() {
		rec := it.Record()
		if rec.Offset != want {
			return fmt.Errorf("record %d where %d is expected", rec.Offset, want)
		}
		want++
		if rec.Offset >= r.start {
			h.read(r, rec.Offset, string(rec.Value))
		}
	}
	if it.Err() == nil && want != b.NextOffset() {
		return fmt.Errorf("records end at %d, the batch at %d", want, b.NextOffset())
	}
	return it.Err()
}

// broken is fail for callers without the lock. What is of before an allowed loss is no matter.
func (h *History) broken(r request, rule, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail(rule, r.p, format, args...)
}
