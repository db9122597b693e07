package broker

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// InitProducerId v0-v5 (KIP-98, 360), for idempotent producers. A transactional id is refused: there is no transaction
// coordinator yet.
func handleInitProducerID(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		if *req.TransactionalID == "" {
			resp.ErrorCode = kerr.InvalidRequest.Code
		} else {
			resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code // not retriable: clients say so at once
		}
		return resp, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout(0)*5)
	defer cancel()
	id, err := s.producerIDs.next(ctx, s.Store)
	if err != nil {
		s.Options.Logger.Warn("allocate producer ids", "err", err)
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code // retriable: the metadata store is away
		return resp, nil
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp, nil
}

// producerIDs hands out ids from blocks of the metadata store; what is left of a block at a stop is never used.
type producerIDs struct {
	fetching chan struct{} // holds one token: who has it fetches the next block

	mu        sync.Mutex
	first, to int64 // guarded by mu: [first, to) is left
}

const producerIDBlock = 1000

func newProducerIDs() *producerIDs { return &producerIDs{fetching: make(chan struct{}, 1)} }

func (p *producerIDs) take() (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == p.to {
		return 0, false
	}
	p.first++
	return p.first - 1, true
}

func (p *producerIDs) next(ctx context.Context, store *meta.Store) (int64, error) {
	if id, ok := p.take(); ok {
		return id, nil
	}
	select {
	case p.fetching <- struct{}{}:
		defer func() { <-p.fetching }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if id, ok := p.take(); ok {
		return id, nil // somebody else fetched meanwhile
	}
	first, err := store.AllocateProducerIDs(ctx, producerIDBlock)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first, p.to = first+1, first+producerIDBlock
	return first, nil
}
