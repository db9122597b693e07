package etcdkv

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/varvelog/varve/meta"
)

// The in-process client hands out etcd's errors as gRPC statuses, the remote one as rpctypes.EtcdError: both have a
// code, and rpctypes.Error makes the second of the first.
func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(rpctypes.Error(err), &e) {
		return e.Code()
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return codes.Unknown
}

func is(err, target error) bool { return errors.Is(rpctypes.Error(err), target) }

func isCompacted(err error) bool { return is(err, rpctypes.ErrCompacted) }
func isLeaseLost(err error) bool { return errors.Is(err, meta.ErrLeaseLost) }

// classify makes one of meta's errors of an error of etcd's. What says nothing certain is ErrUnavailable.
func classify(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, meta.ErrUnavailable), errors.Is(err, meta.ErrCompacted):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case is(err, rpctypes.ErrCompacted), is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: %w", meta.ErrCompacted, err)
	case is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("%w: %w", meta.ErrLeaseLost, err)
	case is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%w: %w", meta.ErrTooManyOps, err)
	case code(err) == codes.InvalidArgument:
		return fmt.Errorf("%w: %w", meta.ErrInvalid, err)
	}
	return fmt.Errorf("%w: %w", meta.ErrUnavailable, err)
}

// classifyWrite is classify for what may have been done although the caller no longer waits.
func classifyWrite(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", meta.ErrUnavailable, ctx.Err())
	}
	return classify(ctx, err)
}
