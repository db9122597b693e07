package s3api

import (
	"context"
	"net/http"
	"time"
)

// Answer is what came back over the wire for one call, whatever the client library made of it.
type Answer struct {
	Status int       // 0 if there was no answer
	Date   time.Time // of the Date header; zero if it had none
	Skew   time.Duration
	Header http.Header
}

type answerKey struct{}

// withAnswer returns a context whose last answer lands in the returned Answer. One call at a time uses it.
func withAnswer(ctx context.Context) (context.Context, *Answer) {
	a := new(Answer)
	return context.WithValue(ctx, answerKey{}, a), a
}

// recorder notes the answer of a request in its context. Requests for credentials go past it.
type recorder struct{ below http.RoundTripper }

func (r recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	a, ok := req.Context().Value(answerKey{}).(*Answer)
	if !ok {
		return r.below.RoundTrip(req)
	}
	*a = Answer{}
	resp, err := r.below.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	a.Status, a.Header = resp.StatusCode, resp.Header
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		a.Date, a.Skew = date, time.Until(date)
	}
	return resp, nil
}
