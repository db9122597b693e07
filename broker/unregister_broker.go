package broker

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// UnregisterBroker v0 (KIP-631): the cluster forgets a broker that will not come back. One that is alive is refused, where Kafka would
// fence it: it would register again at once. Replicas that it had stay assigned to it.
func handleUnregisterBroker(s *Server, c *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.UnregisterBrokerRequest)
	resp := req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout(0))
	defer cancel()
	err := s.Store.ForgetBroker(ctx, req.BrokerID)
	switch {
	case errors.Is(err, meta.ErrBrokerIDInUse):
		err = refuse(kerr.InvalidRequest, "broker %d is alive; stop it first", req.BrokerID)
	case errors.Is(err, meta.ErrInvalid):
		err = refuse(kerr.BrokerIDNotRegistered, "broker %d is not known", req.BrokerID)
	}
	resp.ErrorCode, resp.ErrorMessage = code(err), message(err)
	return resp, nil
}
