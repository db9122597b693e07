package broker

import (
	"encoding/binary"

	"github.com/varvelog/varve/broker/replica"
)

// fetchReply is a framed Fetch response: buf, with the record ranges of cuts between its bytes.
type fetchReply struct {
	buf  []byte
	cuts []fetchCut
	data int // bytes in the cuts
}

// fetchCut says: the slice's bytes come before buf[at].
type fetchCut struct {
	at    int
	slice replica.Slice
}

// keepFetchParts bounds what is kept for the next Fetch.
const keepFetchParts = 4096

func (r *fetchReply) dataBytes() int { return r.data }

// release gives the record ranges back; the reply may be built anew afterwards.
func (r *fetchReply) release() {
	for i := range r.cuts {
		r.cuts[i].slice.Release()
	}
	clear(r.cuts)
	r.cuts, r.buf, r.data = r.cuts[:0], r.buf[:0], 0
	if cap(r.buf) > keepOutBytes {
		r.buf = nil
	}
}

// detach moves the reply to one of its own, so that the scratch can be used again.
func (r *fetchReply) detach() *fetchReply {
	own := *r
	*r = fetchReply{}
	return &own
}

// take moves the records of f into the reply: their place is here.
func (r *fetchReply) take(f *fetchPart) {
	if f.slice.Size == 0 || f.err != nil {
		return
	}
	r.data += f.slice.Size
	r.cuts = append(r.cuts, fetchCut{at: len(r.buf), slice: f.slice})
	f.slice = replica.Slice{}
}

// replyFetch frames and queues the response; failed is an error of the whole request.
func (c *conn) replyFetch(h header, ctx *fetchContext, failed error) error {
	sc := &c.fetch
	r := &sc.reply
	r.release()
	if failed != nil {
		r.buf = appendFetchHead(responseHeader(r.buf, h), h.version, code(failed), 0)
		r.buf = appendLength(r.buf, 0, h.flexible)
		r.buf = appendNoTags(r.buf, h.flexible)
	} else {
		session := ctx.finish(sc.parts)
		r.buf = appendFetchHead(responseHeader(r.buf, h), h.version, 0, session)
		c.appendFetchTopics(r, h.version, ctx)
	}
	for i := range sc.parts {
		sc.parts[i].slice.Release()
	}
	clear(sc.parts)
	if cap(sc.parts) > keepFetchParts {
		sc.parts = nil
	}
	binary.BigEndian.PutUint32(r.buf, uint32(len(r.buf)-4+r.data))
	c.s.metrics.fetchBytes.Add(float64(r.data))
	return c.outbox.endFetch(r)
}

func appendFetchHead(dst []byte, version, code int16, session int32) []byte {
	dst = appendInt32(dst, 0) // throttle time
	if version >= 7 {
		dst = appendInt16(dst, code)
		dst = appendInt32(dst, session)
	}
	return dst
}

// appendFetchTopics appends the partitions that the answer includes, grouped where neighbours are of one topic, and ends the response.
func (c *conn) appendFetchTopics(r *fetchReply, version int16, ctx *fetchContext) {
	flexible := version >= 12
	parts := c.fetch.parts
	hints := false
	topics := 0
	for i := ctx.next(parts, 0); i < len(parts); i = ctx.next(parts, ctx.topicEnd(parts, i)) {
		topics++
	}
	r.buf = appendLength(r.buf, topics, flexible)
	for i := ctx.next(parts, 0); i < len(parts); {
		end := ctx.topicEnd(parts, i)
		n := 0
		for j := i; j < end; j = ctx.next(parts, j+1) {
			n++
		}
		if version >= 13 {
			r.buf = append(r.buf, parts[i].id[:]...)
		} else {
			r.buf = appendString(r.buf, parts[i].name, flexible)
		}
		r.buf = appendLength(r.buf, n, flexible)
		for j := i; j < end; j = ctx.next(parts, j+1) {
			r.appendPart(version, flexible, &parts[j])
			hints = hints || parts[j].leader.ok
		}
		r.buf = appendNoTags(r.buf, flexible)
		i = ctx.next(parts, end)
	}
	switch {
	case !flexible:
	case hints && version >= 16:
		r.buf = c.appendEndpointsTag(r.buf)
	default:
		r.buf = append(r.buf, 0)
	}
}

// appendPart appends one partition; its records are cut in.
func (r *fetchReply) appendPart(version int16, flexible bool, f *fetchPart) {
	hw, lso, start := f.slice.HighWatermark, f.slice.LastStable, f.slice.LogStart
	switch {
	case f.err != nil:
		hw, lso, start = -1, -1, -1
		if f.outside {
			lso, start = f.p.LEO(), f.p.LogStart()
		}
	case f.diverging.ok:
		hw, lso, start = f.p.HighWatermark(), f.p.LastStable(), f.p.LogStart()
	}
	b := appendInt32(r.buf, f.partition)
	b = appendInt16(b, code(f.err))
	b = appendInt64(b, hw)
	b = appendInt64(b, lso)
	if version >= 5 {
		b = appendInt64(b, start)
	}
	b = appendAborted(b, flexible, f)
	if version >= 11 {
		preferred := int32(-1)
		if f.prefers && f.err == nil {
			preferred = f.preferred
		}
		b = appendInt32(b, preferred)
	}
	size := f.slice.Size
	appended := f.slice.Appended
	if f.err != nil || f.diverging.ok {
		size = 0
	}
	r.buf = appendLength(b, size, flexible)
	if size > 0 {
		r.take(f)
	}
	if !flexible {
		return
	}
	hint := f.leader.ok && version >= 16
	tags := byte(0)
	if f.diverging.ok {
		tags++
	}
	if hint {
		tags++
	}
	if size == 0 {
		appended = nil
	}
	if len(appended) > 0 {
		tags++
	}
	r.buf = append(r.buf, tags)
	if f.diverging.ok {
		r.buf = append(r.buf, 0, 4+8+1)
		r.buf = appendInt32(r.buf, f.diverging.epoch)
		r.buf = appendInt64(r.buf, f.diverging.end)
		r.buf = append(r.buf, 0)
	}
	if hint {
		r.buf = appendLeaderTag(r.buf, 1, f.leader)
	}
	if len(appended) > 0 {
		r.buf = appendAppendTimes(r.buf, appended)
	}
}

// appendAborted appends the aborted transactions, null for readers that did not ask for committed records only (BUG-062).
func appendAborted(b []byte, flexible bool, f *fetchPart) []byte {
	if f.slice.Aborted == nil || f.err != nil {
		return appendLength(b, -1, flexible)
	}
	b = appendLength(b, len(f.slice.Aborted), flexible)
	for _, a := range f.slice.Aborted {
		b = appendInt64(b, a.ProducerID)
		b = appendInt64(b, a.First)
		b = appendNoTags(b, flexible)
	}
	return b
}

// sameTopic says that two partitions go under one topic of the response.
func sameTopic(a, b *fetchPart) bool { return a.name == b.name && a.id == b.id }
