package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/replica"
)

// router is a client of a cluster. It sends to whom it believes to lead, which it learns from what any broker says, and unlearns when it
// is told otherwise or hears nothing: so it stays with a leader that has been deposed for as long as that answers.
type router struct {
	c       *Cluster
	rng     *rand.Rand
	host    int32
	conns   map[int32]*client
	belief  map[*part]int32
	epoch   map[*part]int32 // the newest that was told: who tells an older one is behind (KIP-320)
	binding *lead           // whose the last answer is; nil: that is not certain
}

func newRouter(c *Cluster, rng *rand.Rand) *router {
	return &router{c: c, rng: rng, host: c.nextClient(), conns: map[int32]*client{}, belief: map[*part]int32{}, epoch: map[*part]int32{}}
}

func (r *router) certain() (int32, bool) {
	if r.binding == nil {
		return -1, false
	}
	return r.binding.epoch, true
}

func (r *router) close() {
	for _, c := range r.conns {
		c.close()
	}
}

// to is the connection to a broker.
func (r *router) to(id int32) *client {
	c := r.conns[id]
	if c == nil {
		c = &client{patience: routerWait, dial: func() (net.Conn, error) {
			ctx, cancel := context.WithTimeout(r.c.ctx, routerWait)
			defer cancel()
			return r.c.fabric.dial(ctx, r.host, id)
		}}
		r.conns[id] = c
	}
	return c
}

const routerWait = 6 * time.Second

func (r *router) any() int32 { return int32(1 + r.rng.IntN(len(r.c.nodes))) }

var errNoLeader = errors.New("no leader is known")

// find is whom the client believes to lead, after asking somebody where it has no belief.
func (r *router) find(ctx context.Context, p *part) (int32, error) {
	if id, ok := r.belief[p]; ok {
		return id, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	t := kmsg.NewMetadataRequestTopic()
	t.TopicID = p.id.Topic
	req.Topics = append(req.Topics, t)
	resp, err := r.to(r.any()).do(ctx, nil, req)
	if err != nil {
		return 0, err
	}
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		for _, mp := range t.Partitions {
			if t.TopicID == p.id.Topic && mp.Partition == p.id.Partition && mp.Leader > 0 && mp.LeaderEpoch >= r.epoch[p] {
				r.belief[p], r.epoch[p] = mp.Leader, mp.LeaderEpoch
				return mp.Leader, nil
			}
		}
	}
	return 0, errNoLeader
}

// do sends what is about a partition to its leader, some of the fetches to another replica, and all else to any broker.
func (r *router) do(ctx context.Context, p *part, req kmsg.Request) (kmsg.Response, error) {
	r.binding = nil
	if q, ok := req.(*kmsg.ProduceRequest); ok && r.c.mutant.Hasty && q.Acks == -1 {
		hasty := *q
		hasty.Acks, req = 1, &hasty
	}
	if p == nil {
		return r.to(r.any()).do(ctx, nil, req)
	}
	if req.Key() == kmsg.Fetch.Int16() && r.rng.IntN(4) == 0 {
		return r.to(r.any()).do(ctx, p, req)
	}
	id, err := r.find(ctx, p)
	if err != nil {
		pause(ctx, 200*time.Millisecond)
		return nil, err
	}
	before := r.c.leads(id, p)
	resp, err := r.to(id).do(ctx, p, req)
	if err != nil || refuses(resp) {
		delete(r.belief, p)
	}
	if err == nil && before != nil && *before == *orNone(r.c.leads(id, p)) {
		r.binding = before
	}
	return resp, err
}

func (r *router) send(ctx context.Context, p *part, req kmsg.Request) error {
	id, err := r.find(ctx, p)
	if err != nil {
		return err
	}
	return r.to(id).send(ctx, p, req)
}

// refuses says that an answer sends the client elsewhere.
func refuses(resp kmsg.Response) bool {
	code := int16(0)
	switch a := resp.(type) {
	case *kmsg.ProduceResponse:
		code = a.Topics[0].Partitions[0].ErrorCode
	case *kmsg.FetchResponse:
		if len(a.Topics) > 0 && len(a.Topics[0].Partitions) > 0 {
			code = a.Topics[0].Partitions[0].ErrorCode
		}
	case *kmsg.DeleteRecordsResponse:
		code = a.Topics[0].Partitions[0].ErrorCode
	case *kmsg.ListOffsetsResponse:
		code = a.Topics[0].Partitions[0].ErrorCode
	}
	return code != 0 && code != kerr.OffsetOutOfRange.Code
}

// lead is a process that leads in an epoch.
type lead struct {
	life  *life
	epoch int32
}

func orNone(l *lead) *lead {
	if l == nil {
		return &lead{epoch: -1}
	}
	return l
}

// leads tells whether a broker leads p, by the metadata as they are and by its own knowledge, and has everything from before its
// election committed; nil if not.
func (c *Cluster) leads(id int32, p *part) *lead {
	l := c.node(id).now()
	rp := c.led(p)
	if l == nil || rp == nil || l.partition(p) != rp {
		return nil
	}
	if _, err := rp.OffsetFor(c.ctx, replica.Latest, replica.ReadUncommitted); err != nil {
		return nil
	}
	return &lead{l, rp.LeaderEpoch()}
}
