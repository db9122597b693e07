package sim

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// goodbye is how long an operator goes on to unregister a broker that is gone: longer than its registration stands.
const goodbye = 30 * time.Second

// forgets says whether a broker whose process ends in some way is unregistered before it comes back: mostly one whose disk is lost, and
// now and then one that comes back with everything, which nobody can know.
func (s *saboteur) forgets(how ending) bool {
	switch how {
	case lost:
		return s.farewell.IntN(2) == 0 || s.c.shape.partings
	case kill, machine:
		return s.farewell.IntN(6) == 0
	}
	return false
}

// unregister has the cluster forget a broker that is gone.
func (s *saboteur) unregister(ctx context.Context, n *node, seed uint64) {
	to := newRouter(s.c, rand.New(rand.NewPCG(seed, 3)))
	defer to.close()
	for end := time.Now().Add(goodbye); ctx.Err() == nil && time.Now().Before(end); pause(ctx, time.Second) {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = n.id
		resp, err := to.to(to.any()).do(ctx, nil, req)
		if err == nil && resp.(*kmsg.UnregisterBrokerResponse).ErrorCode == 0 {
			s.c.event("broker %d is unregistered", n.id)
			return
		}
	}
}

// amnesiac removes the records of brokers that are unregistered, as if they had never been there.
type amnesiac struct{ meta.KV }

func (k *amnesiac) Txn(ctx context.Context, guards []meta.Guard, ops []meta.Op) (bool, int64, error) {
	if len(ops) == 1 && strings.Contains(ops[0].Key, "/known/") && strings.Contains(string(ops[0].Value), `"forgotten":true`) {
		ops = []meta.Op{{Key: ops[0].Key, Delete: true}}
	}
	return k.KV.Txn(ctx, guards, ops)
}

// Progress implements meta.Progresser.
func (k *amnesiac) Progress(ctx context.Context) error { return k.KV.(meta.Progresser).Progress(ctx) }
