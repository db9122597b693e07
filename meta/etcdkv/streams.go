package etcdkv

import (
	"context"

	"google.golang.org/grpc"
)

// streams ends the watches and keepalives of other clients when the server closes. etcd would wait for them to end by
// themselves, for six seconds, and cut them off then.
type streams struct {
	done context.Context // not of a request: it is the server's life
	end  context.CancelFunc
}

func newStreams() *streams {
	s := &streams{}
	s.done, s.end = context.WithCancel(context.Background())
	return s
}

func (s *streams) intercept(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(ss.Context())
	defer cancel()
	stop := context.AfterFunc(s.done, cancel)
	defer stop()
	return h(srv, &stream{ss, ctx})
}

type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *stream) Context() context.Context { return s.ctx }
