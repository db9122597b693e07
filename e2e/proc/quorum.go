package proc

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// statusMax is how long a member of etcd may take to say who leads; one that is paused does not answer.
const statusMax = 2 * time.Second

// QuorumLeader finds the member of etcd that leads: its place among the client addresses HOST:PORT given. Members that do not answer are
// passed over.
func QuorumLeader(ctx context.Context, members []string) (int, error) {
	var last error
	for i, m := range members {
		st, err := status(ctx, m)
		if err == nil && st.Leader == st.Header.MemberId {
			return i, nil
		}
		if err != nil {
			last = err
		}
	}
	return 0, errors.Join(errors.New("no etcd member leads"), last)
}

// MoveQuorum has the member of etcd at another of the client addresses lead, without that anybody dies.
func MoveQuorum(ctx context.Context, members []string, to int) error {
	from, err := QuorumLeader(ctx, members)
	if err != nil {
		return err
	}
	st, err := status(ctx, members[to])
	if err != nil {
		return err
	}
	return member(ctx, members[from], func(ctx context.Context, cl *clientv3.Client) error {
		_, err := cl.MoveLeader(ctx, st.Header.MemberId)
		return err
	})
}

func status(ctx context.Context, at string) (st *clientv3.StatusResponse, err error) {
	err = member(ctx, at, func(ctx context.Context, cl *clientv3.Client) error {
		st, err = cl.Status(ctx, at)
		return err
	})
	return st, err
}

// member calls f with a client of one member.
func member(ctx context.Context, at string, f func(context.Context, *clientv3.Client) error) error {
	cl, err := clientv3.New(clientv3.Config{Endpoints: []string{at}, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("etcd at %s: %w", at, err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, statusMax)
	defer cancel()
	if err := f(ctx, cl); err != nil {
		return fmt.Errorf("etcd at %s: %w", at, err)
	}
	return nil
}
