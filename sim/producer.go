package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/record"
)

// producer sends batches to all partitions, one request at a time; an idempotent one repeats what was not answered.
type producer struct {
	w    *stage
	rng  *rand.Rand
	c    caller
	name string
	n    int // batches made

	idempotent bool
	id         int64 // -1: none yet
	epoch      int16
	next       map[*part]int32 // sequences
	begun      map[*part]int   // generation in which a sequence began
}

func newProducer(w *stage, i int) *producer {
	p := &producer{w: w, name: fmt.Sprintf("p%d", i), rng: w.rand(fmt.Sprint("producer", i)), id: -1}
	p.c = w.caller(p.rng)
	p.idempotent = p.rng.IntN(3) > 0
	return p
}

func (p *producer) run(ctx context.Context) {
	defer p.c.close()
	for ctx.Err() == nil {
		pause(ctx, time.Duration(1+p.rng.Int64N(int64(p.w.plan.think))))
		part := p.w.history.pick(p.rng)
		if part == nil || ctx.Err() != nil {
			continue
		}
		if p.idempotent && p.id < 0 && !p.init(ctx) {
			continue
		}
		p.produce(ctx, part)
	}
}

// init gets a producer id; every partition begins anew with it.
func (p *producer) init(ctx context.Context) bool {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.ProducerID, req.ProducerEpoch = 4, -1, -1
	resp, err := p.c.do(ctx, nil, req)
	if err != nil || resp.(*kmsg.InitProducerIDResponse).ErrorCode != 0 {
		return false
	}
	r := resp.(*kmsg.InitProducerIDResponse)
	p.id, p.epoch, p.next, p.begun = r.ProducerID, r.ProducerEpoch, map[*part]int32{}, map[*part]int{}
	return true
}

// batch makes records whose values are unique in the run.
func (p *producer) batch(part *part) (values []string, b []byte) {
	p.n++
	var recs []record.Record
	now := time.Now().UnixMilli()
	for i := range 1 + p.rng.IntN(8) {
		v := fmt.Sprintf("%s-%d-%d:%s", p.name, p.n, i, strings.Repeat(string(rune('a'+p.rng.IntN(26))), p.rng.IntN(300)))
		values = append(values, v)
		recs = append(recs, record.Record{Offset: int64(i), Timestamp: now, Key: []byte(p.name), Value: []byte(v)})
	}
	o := record.BatchOptions{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Codec: record.Codec(p.rng.IntN(5))}
	if p.idempotent {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = p.id, p.epoch, p.next[part]
	}
	b, err := record.Build(nil, o, recs)
	if err != nil {
		panic(err) // built from nothing but ours
	}
	return values, b
}

func (p *producer) produce(ctx context.Context, part *part) {
	values, b := p.batch(part)
	acks := int16(-1)
	if !p.idempotent {
		acks = []int16{-1, -1, 1, 0}[p.rng.IntN(4)]
	}
	first := p.w.history.ask(part)
	if _, ok := p.begun[part]; p.idempotent && !ok {
		p.begun[part] = first.gen
	}
	for {
		r := p.w.history.try(part, values)
		base, code := p.send(ctx, part, acks, b)
		r = r.by(p.c)
		switch {
		case code == 0 && base >= 0 && acks == 1 && p.w.history.replicated && !part.topic.fixed:
			p.w.history.briefly(r, base, values)
			return
		case code == 0 && base >= 0:
			p.w.history.acked(r, base, values)
			if p.idempotent {
				p.next[part] += int32(len(values))
				p.repeat(ctx, part, b, values)
			}
			return
		case !p.idempotent:
			return
		case code == kerr.OutOfOrderSequenceNumber.Code, code == kerr.UnknownProducerID.Code, code == kerr.InvalidProducerEpoch.Code:
			p.w.history.lostSequence(part, p.begun[part], code)
			p.id = -1
			return
		case code == kerr.UnknownTopicID.Code, code == kerr.UnknownTopicOrPartition.Code, ctx.Err() != nil:
			p.id = -1 // whether it was appended is not known: what comes next could not be in sequence
			return
		}
		pause(ctx, time.Duration(50+p.rng.IntN(500))*time.Millisecond)
	}
}

// repeat sends now and then what has been acknowledged once more: the answer is the same.
func (p *producer) repeat(ctx context.Context, part *part, b []byte, values []string) {
	if p.rng.IntN(8) > 0 {
		return
	}
	r := p.w.history.try(part, values)
	if base, code := p.send(ctx, part, -1, b); code == 0 && base >= 0 {
		p.w.history.acked(r.by(p.c), base, values)
	}
}

// send returns the base offset, or -1 and the code, 0 if there was no answer.
func (p *producer) send(ctx context.Context, part *part, acks int16, b []byte) (base int64, code int16) {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 13, acks, 5000
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = part.id.Partition, append([]byte(nil), b...)
	rt := kmsg.NewProduceRequestTopic()
	rt.TopicID, rt.Partitions = part.id.Topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	if acks == 0 {
		p.c.send(ctx, part, req)
		return -1, 0
	}
	resp, err := p.c.do(ctx, part, req)
	if err != nil {
		return -1, 0
	}
	a := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if a.ErrorCode != 0 {
		p.w.history.refused(part, "produce", a.ErrorCode)
		return -1, a.ErrorCode
	}
	return a.BaseOffset, 0
}

// retriable are the codes that a broker in trouble may answer with; anything else to a well formed request is a fault of its own.
var retriable = map[int16]bool{
	kerr.NotLeaderForPartition.Code: true, kerr.LeaderNotAvailable.Code: true, kerr.KafkaStorageError.Code: true, kerr.NotEnoughReplicas.Code: true,
	kerr.RequestTimedOut.Code: true, kerr.UnknownTopicID.Code: true, kerr.UnknownTopicOrPartition.Code: true, kerr.NotEnoughReplicasAfterAppend.Code: true,
	kerr.ReplicaNotAvailable.Code: true, kerr.OffsetNotAvailable.Code: true, kerr.FencedLeaderEpoch.Code: true, kerr.UnknownLeaderEpoch.Code: true,
	kerr.OutOfOrderSequenceNumber.Code: true, kerr.UnknownProducerID.Code: true, kerr.InvalidProducerEpoch.Code: true, // lostSequence judges these
}

// refused judges the code of an answer.
func (h *History) refused(p *part, what string, code int16) {
	if !retriable[code] {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.fail("troubles are answered with retriable errors", p, "%s: %v", what, kerr.ErrorForCode(code))
	}
}

// lostSequence judges an answer that an idempotent producer gets only where records were lost.
func (h *History) lostSequence(p *part, gen int, code int16) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if gen == p.gen && !p.topic.lossy && h.names[p.topic.name] == p.topic && !p.topic.deleting {
		h.fail("producer states survive", p, "%v to a producer in sequence", kerr.ErrorForCode(code))
	}
}
