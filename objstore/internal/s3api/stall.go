package s3api

import (
	"context"
	"errors"
	"io"
	"time"
)

var errStalled = errors.New("no byte came in time")

// stallReader cancels the request of a body that has stopped flowing. Time that its reader does not read is not counted.
type stallReader struct {
	rc     io.ReadCloser
	limit  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func newStallReader(rc io.ReadCloser, limit time.Duration, cancel context.CancelCauseFunc) *stallReader {
	t := time.AfterFunc(limit, func() { cancel(errStalled) })
	t.Stop()
	return &stallReader{rc: rc, limit: limit, timer: t, cancel: cancel}
}

func (r *stallReader) Read(p []byte) (int, error) {
	r.timer.Reset(r.limit)
	n, err := r.rc.Read(p)
	r.timer.Stop()
	return n, err
}

func (r *stallReader) Close() error {
	r.timer.Stop()
	err := r.rc.Close()
	r.cancel(nil)
	return err
}
