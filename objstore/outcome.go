package objstore

import (
	"context"
	"errors"
)

// outcomes in the order in which they are looked for: an error that is both unavailable and cancelled is cancelled.
var outcomes = []struct {
	err  error
	name string
}{
	{context.Canceled, "canceled"},
	{ErrNotFound, "not_found"},
	{ErrExists, "exists"},
	{ErrPrecondition, "precondition"},
	{ErrThrottled, "throttled"},
	{ErrUnavailable, "unavailable"},
	{ErrUnsupported, "unsupported"},
	{ErrDenied, "denied"},
	{ErrChecksum, "checksum"},
}

// Outcome is the name of an error's class, one of a bounded set, for metrics and logs: "ok" for nil, "error" for the rest.
func Outcome(err error) string {
	if err == nil {
		return "ok"
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return "error"
}

// Retryable tells whether the same call may succeed later: ErrThrottled and ErrUnavailable.
func Retryable(err error) bool {
	return errors.Is(err, ErrThrottled) || errors.Is(err, ErrUnavailable)
}
