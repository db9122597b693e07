package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

// Produce (0), versions 3 to 13. Parsed by hand (produce_wire.go): record batches alias the frame until they are written, nothing
// is allocated for a request whose answer is known at once. Deviations: transactional batches are refused with INVALID_TXN_STATE,
// since no transaction can have been begun.

// produceScratch is what a connection reuses from one Produce to the next.
type produceScratch struct {
	topics []produceTopic
	parts  []producePart
	names  map[string]string // interned topic names
	one    [1]record.Batch
}

// produceTopic is parts[from:to) of one topic.
type produceTopic struct {
	name     string
	id       manifest.TopicID
	from, to int
}

// producePart is one partition of the request and its outcome.
type producePart struct {
	partition int32
	records   []byte // aliases the frame; nil: null

	p          *replica.Partition
	epoch      int32 // leader epoch before the append, at the latest
	done       localseg.Appended
	stamp      int64 // the timestamp that the batch was given, -1 where the client's stand
	err        error
	recordErrs []record.RecordError
	leader     leaderHint
}

// produceRequest is a parsed request.
type produceRequest struct {
	acks          int16
	timeout       time.Duration
	transactional bool
	patience      replica.Patience // shared by its partitions
}

// handleProduce appends all partitions, then answers: at once, when acks=all holds (later, by the outbox), or not at all (acks=0).
func (c *conn) handleProduce(h header, body []byte) error {
	sc := &c.produce
	req, err := sc.parse(h, body)
	if err != nil {
		return err
	}
	now := c.s.Options.Wall.Ms()
	for i := range sc.topics {
		t := &sc.topics[i]
		for j := t.from; j < t.to; j++ {
			c.s.produceOne(h.version, &req, t, &sc.parts[j], &sc.one, now)
		}
	}
	switch {
	case req.acks == 0:
		return produceFailed(sc.parts)
	case req.acks == -1 && c.s.waits(sc.topics, sc.parts):
		return c.ackLater(h, req)
	}
	dst := c.outbox.begin()
	start := len(dst)
	dst = c.s.appendProduceResponse(responseHeader(dst, h), c, h.version, sc.topics, sc.parts)
	clear(sc.parts)
	return c.outbox.end(dst, start)
}

// produceFailed tells a client that waits for no answer the only way there is: by ending the connection, as Kafka does.
func produceFailed(parts []producePart) error {
	for i := range parts {
		if err := parts[i].err; err != nil {
			return fmt.Errorf("acks=0, partition %d: %w: %w", parts[i].partition, err, errDone)
		}
	}
	return nil
}

// waits tells whether some partition's records are not committed yet.
func (s *Server) waits(topics []produceTopic, parts []producePart) bool {
	waits := false
	for i := range topics {
		for j := topics[i].from; j < topics[i].to; j++ {
			p := &parts[j]
			if p.err != nil {
				continue
			}
			ok, err := p.p.CommittedIn(p.done.Last, p.epoch)
			if err != nil {
				s.produceLost(&topics[i], p, err)
			}
			waits = waits || !ok && err == nil
		}
	}
	return waits
}

// produceLost notes that what was appended will not be acknowledged here.
func (s *Server) produceLost(t *produceTopic, p *producePart, err error) {
	p.err = err
	if errors.Is(err, replica.ErrNotLeader) {
		p.leader = s.leaderHint(t.name, t.id, p.partition)
	}
}

// ackLater hands the response to the outbox, which waits for the high watermarks; the connection goes on with the next request.
func (c *conn) ackLater(h header, req produceRequest) error {
	topics := append([]produceTopic(nil), c.produce.topics...)
	parts := append([]producePart(nil), c.produce.parts...)
	clear(c.produce.parts)
	for i := range parts {
		parts[i].records = nil // the frame is not ours any more
	}
	deadline := time.Now().Add(req.timeout)
	h.clientID = nil
	return c.outbox.later(func() []byte {
		ctx, cancel := context.WithDeadline(c.gone, deadline)
		defer cancel()
		for i := range topics {
			for j := topics[i].from; j < topics[i].to; j++ {
				if p := &parts[j]; p.err == nil {
					if err := p.p.WaitCommitted(ctx, p.done.Last, p.epoch); err != nil {
						c.s.produceLost(&topics[i], p, err)
					}
				}
			}
		}
		dst := c.s.appendProduceResponse(responseHeader(nil, h), c, h.version, topics, parts)
		return endResponse(dst)
	})
}

// produceOne validates and appends the batch of one partition.
func (s *Server) produceOne(version int16, req *produceRequest, t *produceTopic, part *producePart, one *[1]record.Batch, now int64) {
	part.err = s.tryProduce(version, req, t, part, one, now)
	if part.err != nil {
		part.done = localseg.Appended{First: -1, Last: -1, AppendTime: -1, LogStart: -1}
		if part.p != nil {
			part.done.LogStart = part.p.LogStart()
		}
		if errors.Is(part.err, replica.ErrNotLeader) || errors.Is(part.err, replica.ErrFencedEpoch) {
			part.leader = s.leaderHint(t.name, t.id, part.partition)
		}
		return
	}
	s.metrics.produceBytes.Add(float64(len(part.records)))
}

func (s *Server) tryProduce(version int16, req *produceRequest, t *produceTopic, part *producePart, one *[1]record.Batch, now int64) error {
	part.stamp = -1
	if req.acks < -1 || req.acks > 1 {
		return kerr.InvalidRequiredAcks
	}
	if version >= 13 && t.id == (manifest.TopicID{}) {
		return replica.ErrUnknownTopicID
	}
	if internalTopic(t.name) {
		return fmt.Errorf("topic %s is written by the broker alone: %w", t.name, errInvalidTopic)
	}
	p, err := s.Replicas.LeaderWithin(replica.TopicPartition{Topic: t.name, ID: t.id, Partition: part.partition}, &req.patience)
	if err != nil {
		return err
	}
	part.p = p
	topic := p.Metadata()
	if topic.Internal {
		return fmt.Errorf("topic %s is written by the broker alone: %w", topic.Name, errInvalidTopic)
	}
	batch, err := oneBatch(part.records, version)
	if err != nil {
		return err
	}
	if batch.Transactional() || req.transactional {
		return kerr.InvalidTxnState
	}
	rules := *s.rulesFor(topic)
	rules.NowMs, rules.ClientWrite, rules.AllowZstd = now, true, version >= 7
	valid, recordErrs, err := record.Validate(batch, rules)
	if err != nil {
		part.recordErrs = recordErrs
		return err
	}
	one[0] = valid.Batch
	part.epoch = p.LeaderEpoch()
	part.done, err = p.Append(one[:], localseg.OriginClient, req.acks == -1)
	if one[0].LogAppendTime() {
		part.stamp = one[0].MaxTimestamp() // not the log's append time, which may be a millisecond later
	}
	one[0] = nil
	return err
}

const (
	codecZstd = 4
	magicAt   = 16 // in all formats of batches and message sets; 0 and 1 are the old ones
)

// oneBatch checks that a partition's records are exactly one batch of magic 2, as Produce demands from version 3 on.
func oneBatch(records []byte, version int16) (record.Batch, error) {
	if len(records) == 0 {
		return nil, fmt.Errorf("no record batch: %w", record.ErrInvalid)
	}
	if len(records) > magicAt && records[magicAt] < 2 {
		return nil, fmt.Errorf("record batch of magic %d: %w", records[magicAt], record.ErrInvalid)
	}
	batch, rest, err := record.Next(records)
	switch {
	case err != nil:
		return nil, err
	case len(rest) > 0:
		return nil, fmt.Errorf("more than one record batch: %w", record.ErrInvalid)
	case batch.Codec() == codecZstd && version < 7:
		return nil, kerr.UnsupportedCompressionType
	}
	return batch, nil
}

// leaderHint is what an answer says about a partition's leader (KIP-951). ok false: nothing.
type leaderHint struct {
	ok        bool
	id, epoch int32
}

func (s *Server) leaderHint(name string, id manifest.TopicID, partition int32) leaderHint {
	img := s.Store.Image()
	t := img.Topics[name]
	if id != (manifest.TopicID{}) {
		t = img.TopicsByID[id]
	}
	if t == nil || partition < 0 || int(partition) >= len(t.Partitions) {
		return leaderHint{}
	}
	p := t.Partitions[partition]
	return leaderHint{ok: true, id: p.Leader, epoch: p.LeaderEpoch}
}

// flexible reports whether this Produce version is.
func produceFlexible(version int16) bool { return version >= 9 }
