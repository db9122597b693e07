package retry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/objstore/retry"
)

func TestOnlyThrottledAndUnavailableAreRepeated(t *testing.T) {
	for _, c := range []struct {
		err   error
		tries int
	}{
		{objstore.ErrThrottled, 4}, {objstore.ErrUnavailable, 4},
		{objstore.ErrNotFound, 1}, {objstore.ErrExists, 1}, {objstore.ErrPrecondition, 1}, {objstore.ErrUnsupported, 1},
		{objstore.ErrDenied, 1}, {objstore.ErrChecksum, 1}, {errors.New("unknown"), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := fault.New(mem.New(mem.Options{}), fault.Options{Rules: []fault.Rule{{Effect: fault.Fail, Err: c.err}}})
			b := retry.New(f, retry.Options{Attempts: 4})
			_, err := b.Head(t.Context(), "k")
			if !errors.Is(err, c.err) || f.Calls(fault.Head) != c.tries {
				t.Fatalf("%v: %d tries, error %v, want %d", c.err, f.Calls(fault.Head), err, c.tries)
			}
		})
	}
}

func TestEachOperationSurvivesTwoFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(mem.Options{})
		f := fault.New(store, fault.Options{})
		b := retry.New(f, retry.Options{})
		fail := func(op fault.Op) {
			f.SetRules(fault.Rule{Op: op, Effect: fault.Throttle, Count: 2})
		}
		fail(fault.Put)
		if _, err := b.Put(t.Context(), "k", objstore.BytesBody([]byte("bytes")), objstore.Cond{IfNoneMatch: true}); err != nil {
			t.Fatal(err)
		}
		fail(fault.Head)
		if _, err := b.Head(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		fail(fault.Get)
		if got, _, err := objstore.ReadAll(t.Context(), b, "k", 100); err != nil || string(got) != "bytes" {
			t.Fatal(string(got), err)
		}
		fail(fault.List)
		for info, err := range b.List(t.Context(), "", "") {
			if err != nil || info.Key != "k" {
				t.Fatal(info, err)
			}
		}
		fail(fault.Delete)
		if err := b.Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	})
}

// A create that was applied, its answer lost: the repetition is refused, and the refusal is the caller's to judge.
func TestCreateOfUnknownOutcomeIsReturnedAsExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(mem.Options{})
		f := fault.New(store, fault.Options{Rules: []fault.Rule{{Op: fault.Put, Effect: fault.Lost, Count: 1}}})
		b := retry.New(f, retry.Options{})
		_, err := b.Put(t.Context(), "k", objstore.BytesBody([]byte("mine")), objstore.Cond{IfNoneMatch: true})
		if !errors.Is(err, objstore.ErrExists) {
			t.Fatalf("error %v, want ErrExists", err)
		}
		if got, _, err := objstore.ReadAll(t.Context(), b, "k", 100); err != nil || string(got) != "mine" {
			t.Fatalf("object %q, %v", got, err)
		}
	})
}

// The first request lands only after the repetition has created the object: it must not overwrite, and the repetition
// was a success.
func TestLateCreateDoesNotOverwrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(mem.Options{})
		f := fault.New(store, fault.Options{Rules: []fault.Rule{{Op: fault.Put, Effect: fault.Late, Delay: time.Hour, Count: 1}}})
		b := retry.New(f, retry.Options{})
		info, err := b.Put(t.Context(), "k", objstore.BytesBody([]byte("mine")), objstore.Cond{IfNoneMatch: true})
		if err != nil {
			t.Fatal(err)
		}
		f.Wait()
		if head, err := store.Head(t.Context(), "k"); err != nil || head.ETag != info.ETag {
			t.Fatalf("head %+v, %v, want %s", head, err, info.ETag)
		}
	})
}

func TestPausesGrowAndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fault.New(mem.New(mem.Options{}), fault.Options{Rules: []fault.Rule{{Effect: fault.Throttle}}})
		b := retry.New(f, retry.Options{
			Attempts: 6, Base: time.Second, Max: 5 * time.Second, Elapsed: time.Hour,
			Rand: func() float64 { return 1 }, Breaker: retry.NewBreaker(retry.BreakerOptions{Threshold: 1000}),
		})
		start := time.Now()
		_, err := b.Head(t.Context(), "k")
		if !errors.Is(err, objstore.ErrThrottled) {
			t.Fatal(err)
		}
		if got, want := time.Since(start), (1+2+4+5+5)*time.Second; got != want {
			t.Fatalf("took %s, want %s", got, want)
		}
	})
}

func TestElapsedTimeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fault.New(mem.New(mem.Options{}), fault.Options{Rules: []fault.Rule{{Effect: fault.Fail}}})
		b := retry.New(f, retry.Options{Attempts: 1000, Elapsed: 20 * time.Second})
		start := time.Now()
		_, err := b.Head(t.Context(), "k")
		if took := time.Since(start); !errors.Is(err, objstore.ErrUnavailable) || took > 20*time.Second {
			t.Fatalf("took %s: %v", took, err)
		}
	})
}

func TestATryWithoutAnswerIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fault.New(mem.New(mem.Options{}), fault.Options{Rules: []fault.Rule{{Effect: fault.Slow, Latency: time.Hour, Count: 1}}})
		b := retry.New(f, retry.Options{AttemptTimeout: 5 * time.Second})
		start := time.Now()
		if err := b.Delete(t.Context(), "k"); err != nil || time.Since(start) > 10*time.Second {
			t.Fatalf("took %s: %v", time.Since(start), err)
		}
	})
}

func TestCancelEndsAtOnceAndKeepsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fault.New(mem.New(mem.Options{}), fault.Options{Rules: []fault.Rule{{Effect: fault.Throttle}}})
		b := retry.New(f, retry.Options{Base: time.Hour, Max: time.Hour, Elapsed: 100 * time.Hour, Rand: func() float64 { return 1 }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := b.Head(ctx, "k")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, objstore.ErrThrottled) {
			t.Fatalf("error %v", err)
		}
	})
}

func TestABrokenBodyGoesOnWhereItBroke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := bytes.Repeat([]byte("0123456789"), 1000)
		store := mem.New(mem.Options{})
		f := fault.New(store, fault.Options{Rules: []fault.Rule{{Op: fault.Get, Effect: fault.Truncate, At: 1300, Count: 3}}})
		b := retry.New(f, retry.Options{})
		if _, err := store.Put(t.Context(), "k", objstore.BytesBody(data), objstore.Cond{}); err != nil {
			t.Fatal(err)
		}
		rc, err := b.Get(t.Context(), "k", 5, 9000)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(rc)
		if err != nil || !bytes.Equal(got, data[5:9005]) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if n := f.Calls(fault.Get); n != 4 {
			t.Fatalf("%d gets, want 4", n)
		}
	})
}

func TestABrokenBodyOfAReplacedObjectIsNotMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(mem.Options{})
		f := fault.New(store, fault.Options{Rules: []fault.Rule{{Op: fault.Get, Effect: fault.Truncate, At: 3, Count: 1}}})
		b := retry.New(f, retry.Options{})
		for _, s := range []string{"aaaaaaaaaa", "bbbbbbbbbb"} {
			if _, err := store.Put(t.Context(), "k", objstore.BytesBody([]byte(s)), objstore.Cond{}); err != nil {
				t.Fatal(err)
			}
			if s[0] == 'a' {
				rc, err := b.Get(t.Context(), "k", 0, -1)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					got, err := io.ReadAll(rc)
					if !errors.Is(err, objstore.ErrUnavailable) || string(got) != "aaa" {
						t.Fatalf("%q, %v", got, err)
					}
				}()
			}
		}
	})
}

func TestAListingGoesOnBehindWhatItHasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(mem.Options{})
		for i := range 10 {
			if _, err := store.Put(t.Context(), fmt.Sprintf("k%d", i), objstore.BytesBody(nil), objstore.Cond{}); err != nil {
				t.Fatal(err)
			}
		}
		// Lost fails a listing after its last object.
		f := fault.New(store, fault.Options{Rules: []fault.Rule{{Op: fault.List, Effect: fault.Lost, Count: 1}}})
		var got []string
		for info, err := range retry.New(f, retry.Options{}).List(t.Context(), "k", "k3") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.Key)
		}
		if fmt.Sprint(got) != "[k4 k5 k6 k7 k8 k9]" || f.Calls(fault.List) != 2 {
			t.Fatalf("%v by %d listings", got, f.Calls(fault.List))
		}
	})
}

// BUG-080: an outage with many callers was met by a storm of requests.
func TestOutageIsProbedByFewRequestsWhateverTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		breaker := retry.NewBreaker(retry.BreakerOptions{})
		f := fault.New(mem.New(mem.Options{}), fault.Options{Rules: []fault.Rule{{Effect: fault.Fail}}})
		b := retry.New(f, retry.Options{Elapsed: 10 * time.Minute, Attempts: 1000, Breaker: breaker})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		for i := range 200 {
			done.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					_, err := b.Put(ctx, fmt.Sprintf("k/%d/%d", i, n), objstore.BytesBody(nil), objstore.Cond{IfNoneMatch: true})
					if err == nil {
						return
					}
				}
			})
		}
		time.Sleep(5 * time.Second) // the first failures of those that were under way
		for range 60 {
			before := f.Calls(fault.Any)
			time.Sleep(time.Second)
			if n := f.Calls(fault.Any) - before; n > 9 {
				t.Fatalf("%d requests in a second of outage", n)
			}
		}
		if !breaker.Outage() {
			t.Fatal("no outage seen")
		}
		f.SetRules() // the store is back
		start := time.Now()
		done.Wait()
		if took := time.Since(start); took > 30*time.Second {
			t.Fatalf("resumed after %s", took)
		}
		cancel()
	})
}

// An outage that lasts must not keep a caller longer than its bound, though it never gets a turn.
func TestWaitingForATurnIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fault.New(mem.New(mem.Options{}), fault.Options{Rules: []fault.Rule{{Effect: fault.Fail}}})
		b := retry.New(f, retry.Options{Elapsed: 30 * time.Second})
		var done sync.WaitGroup
		for range 500 {
			done.Go(func() {
				start := time.Now()
				_, err := b.Head(t.Context(), "k")
				if took := time.Since(start); !errors.Is(err, objstore.ErrUnavailable) || took > 31*time.Second {
					t.Errorf("took %s: %v", took, err)
				}
			})
		}
		done.Wait()
	})
}

// Who waits no longer is told why there was something to wait for.
func TestEndOfTheContextTellsTheLastCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fault.New(mem.New(mem.Options{}), fault.Options{Rules: []fault.Rule{
			{Effect: fault.Fail, Err: fmt.Errorf("%w: connection refused", objstore.ErrUnavailable), Count: 1},
			{Effect: fault.Slow, Latency: time.Hour},
		}})
		b := retry.New(f, retry.Options{Attempts: 10, Elapsed: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := b.Head(ctx, "a")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") {
			t.Fatalf("%v", err)
		}
	})
}
