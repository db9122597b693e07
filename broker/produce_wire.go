package broker

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

const (
	// maxInterned bounds the topic names that a connection remembers.
	maxInterned = 1000
	// maxProduceParts bounds topics and partitions of one request: an empty one costs few bytes on the wire and many here.
	maxProduceParts = 100_000
	// keepProduceParts bounds what is kept for the next request.
	keepProduceParts = 4096
)

// intern returns b as a string, the same one each time.
func (sc *produceScratch) intern(b []byte) string {
	if s, ok := sc.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(s) > maxTopicName {
		return s // no topic has it
	}
	if sc.names == nil || len(sc.names) >= maxInterned {
		sc.names = map[string]string{}
	}
	sc.names[s] = s
	return s
}

// parse reads a request into topics and parts, which are at most maxProduceParts.
func (sc *produceScratch) parse(h header, body []byte) (produceRequest, error) {
	flexible := produceFlexible(h.version)
	c := cursor{b: body}
	sc.topics, sc.parts = sc.topics[:0], sc.parts[:0]
	if cap(sc.parts) > keepProduceParts || cap(sc.topics) > keepProduceParts {
		sc.topics, sc.parts = nil, nil
	}

	req := produceRequest{transactional: c.string(flexible) != nil}
	req.acks = c.int16()
	req.timeout = time.Duration(max(0, c.int32())) * time.Millisecond
	for n := c.length(flexible); n > 0 && !c.bad; n-- {
		if len(sc.topics) >= maxProduceParts {
			return req, sc.tooMany()
		}
		t := produceTopic{from: len(sc.parts)}
		if h.version >= 13 {
			copy(t.id[:], c.take(len(manifest.TopicID{})))
		} else {
			t.name = sc.intern(c.string(flexible))
		}
		for m := c.length(flexible); m > 0 && !c.bad; m-- {
			if len(sc.parts) >= maxProduceParts {
				return req, sc.tooMany()
			}
			sc.parts = append(sc.parts, producePart{partition: c.int32(), records: c.bytes(flexible)})
			if flexible {
				c.tags()
			}
		}
		if flexible {
			c.tags()
		}
		t.to = len(sc.parts)
		sc.topics = append(sc.topics, t)
	}
	if flexible {
		c.tags()
	}
	if c.bad || len(c.b) > 0 {
		clear(sc.parts)
		return req, fmt.Errorf("request body: %w", errMalformed)
	}
	return req, nil
}

func (sc *produceScratch) tooMany() error {
	sc.topics, sc.parts = nil, nil
	return fmt.Errorf("more than %d partitions: %w", maxProduceParts, errMalformed)
}

// appendProduceResponse appends the body of a response.
func (s *Server) appendProduceResponse(dst []byte, c *conn, version int16, topics []produceTopic, parts []producePart) []byte {
	flexible := produceFlexible(version)
	hints := false
	dst = appendLength(dst, len(topics), flexible)
	for i := range topics {
		t := &topics[i]
		if version >= 13 {
			dst = append(dst, t.id[:]...)
		} else {
			dst = appendString(dst, t.name, flexible)
		}
		dst = appendLength(dst, t.to-t.from, flexible)
		for j := t.from; j < t.to; j++ {
			dst = appendProducePart(dst, version, flexible, &parts[j])
			hints = hints || parts[j].leader.ok
		}
		dst = appendNoTags(dst, flexible)
	}
	dst = appendInt32(dst, 0) // throttle time
	if !flexible {
		return dst
	}
	if hints && version >= 10 {
		return c.appendEndpointsTag(dst)
	}
	return append(dst, 0)
}

func appendProducePart(dst []byte, version int16, flexible bool, p *producePart) []byte {
	dst = appendInt32(dst, p.partition)
	dst = appendInt16(dst, code(p.err))
	dst = appendInt64(dst, p.done.First)
	stamp := p.stamp
	if p.err != nil {
		stamp = -1
	}
	dst = appendInt64(dst, stamp)
	if version >= 5 {
		dst = appendInt64(dst, p.done.LogStart)
	}
	if version >= 8 {
		dst = appendRecordErrors(dst, flexible, p.recordErrs)
		dst = appendNullableString(dst, message(p.err), flexible)
	}
	if !flexible {
		return dst
	}
	if !p.leader.ok || version < 10 {
		return append(dst, 0)
	}
	return appendLeaderTag(append(dst, 1), 0, p.leader)
}

func appendRecordErrors(dst []byte, flexible bool, errs []record.RecordError) []byte {
	dst = appendLength(dst, len(errs), flexible)
	for i := range errs {
		dst = appendInt32(dst, errs[i].Index)
		dst = appendNullableString(dst, &errs[i].Reason, flexible)
		dst = appendNoTags(dst, flexible)
	}
	return dst
}

// appendLeaderTag appends the tagged field CurrentLeader: leader id, epoch.
func appendLeaderTag(dst []byte, tag byte, l leaderHint) []byte {
	dst = append(dst, tag, 4+4+1)
	dst = appendInt32(dst, l.id)
	dst = appendInt32(dst, l.epoch)
	return append(dst, 0)
}

// appendEndpointsTag ends a response with its only tagged field, NodeEndpoints: where each broker is (KIP-951).
func (c *conn) appendEndpointsTag(dst []byte) []byte {
	nodes := c.nodes()
	var body []byte
	body = appendLength(body, len(nodes), true)
	for i := range nodes {
		n := &nodes[i]
		body = appendInt32(body, n.id)
		body = appendString(body, n.host, true)
		body = appendInt32(body, n.port)
		body = appendNullableString(body, n.rack, true)
		body = append(body, 0)
	}
	dst = append(dst, 1, 0) // one tagged field, number 0
	dst = binary.AppendUvarint(dst, uint64(len(body)))
	return append(dst, body...)
}

// endResponse patches the length of a response that begins at the start of dst.
func endResponse(dst []byte) []byte {
	binary.BigEndian.PutUint32(dst, uint32(len(dst)-4))
	return dst
}
