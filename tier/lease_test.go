package tier

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
)

func (w *world) leases() []string { return w.keys(manifest.LeasePrefix) }

func TestLeaseIsTakenBeforeTheArchiveIsReadAndGivenBack(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		var l *Lease
		read := 0
		l = NewLease(w.fault, LeaseOptions{TTL: 10 * time.Minute, Reread: func(context.Context) error {
			read++
			if len(w.leases()) == 0 || read == 1 && l.Live() {
				t.Errorf("leases %v, live %t while the archive is read", w.leases(), l.Live())
			}
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		if !l.Live() || read < 1 {
			t.Fatalf("live %t after %d readings", l.Live(), read)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		wantEqual(t, "leases", w.leases(), nil)
		if l.Live() {
			t.Fatal("live after it was given back")
		}
	})
}

func TestLeaseLapsesByTheStoresClockAndComesBackUnderANewId(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		read := 0
		l := NewLease(w.fault, LeaseOptions{TTL: 10 * time.Minute, Reread: func(context.Context) error { read++; return nil }})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = l.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		first := w.leases()
		w.fault.SetRules(fault.Rule{Effect: fault.Fail})
		time.Sleep(8 * time.Minute)
		synctest.Wait()
		if !l.Live() {
			t.Fatal("lapsed before its time")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if l.Live() {
			t.Fatal("live after its ttl without a renewal")
		}
		w.fault.SetRules()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		second := w.leases()
		if !l.Live() || read != 2 || len(second) != 2 || second[0] == second[1] || len(first) != 1 {
			t.Fatalf("live %t after %d readings, leases %v then %v", l.Live(), read, first, second)
		}
	})
}

func TestRenewalThatLandsTooLateDoesNotCount(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		l := NewLease(w.fault, LeaseOptions{TTL: time.Minute})
		if err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.fault.SetRules(fault.Rule{Op: fault.Put, Effect: fault.Slow, Latency: 90 * time.Second})
		if err := l.current().renew(t.Context()); !errors.Is(err, ErrLeaseLapsed) {
			t.Fatalf("renewal sent in time, landed late: %v", err)
		}
		if l.Live() {
			t.Fatal("live")
		}
	})
}

func TestRenewalWithoutAnswerIsFoundLater(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		l := NewLease(w.fault, LeaseOptions{TTL: time.Minute})
		if err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		w.fault.SetRules(fault.Rule{Op: fault.Put, Effect: fault.Lost, Count: 1})
		if err := l.current().renew(t.Context()); err == nil {
			t.Fatal("a lost answer is no success")
		}
		if err := l.current().renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(45 * time.Second) // past the first expiry
		if !l.Live() {
			t.Fatal("the renewal that landed does not count")
		}
	})
}

func TestALeaseThatWasDeletedIsNotRaised(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		l := NewLease(w.fault, LeaseOptions{TTL: time.Hour})
		if err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = w.mem.Delete(t.Context(), w.leases()...)
		if err := l.current().renew(t.Context()); !errors.Is(err, ErrLeaseLapsed) {
			t.Fatalf("renewal of a deleted lease: %v", err)
		}
		if l.Live() || len(w.leases()) != 0 {
			t.Fatalf("live %t, leases %v", l.Live(), w.leases())
		}
	})
}

func TestLeaseWithoutAnswerToItsCreateTakesAnotherId(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		l := NewLease(w.fault, LeaseOptions{TTL: time.Hour})
		w.fault.SetRules(fault.Rule{Op: fault.Put, Effect: fault.Lost, Count: 1})
		if err := l.Acquire(t.Context()); err == nil || l.Live() {
			t.Fatalf("acquire: %v, live %t", err, l.Live())
		}
		if err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := w.leases(); len(got) != 2 {
			t.Fatalf("leases %v", got)
		}
	})
}

func TestLeaseChangesItsIdInTimeSoThatTheOwnerCanCollect(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		read := 0
		l := NewLease(w.fault, LeaseOptions{TTL: 10 * time.Minute, Reread: func(context.Context) error { read++; return nil }})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = l.Run(ctx) }()
		w.dying()
		for range 3 * 60 {
			time.Sleep(time.Minute)
			if !l.Live() && read > 0 {
				t.Fatal("not live during the change")
			}
		}
		synctest.Wait()
		if got := w.segments(); got != 1 {
			t.Fatalf("%d objects: an attached cluster blocks collection for ever", got)
		}
		if read < 2 {
			t.Fatalf("%d readings: a new id needs a new reading", read)
		}
	})
}

func TestForeignObjectsAreReadOnlyUnderALiveLease(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(34, TopicConfig{})
		m := *n.p.Manifest()
		m.Entries = append([]manifest.Entry(nil), m.Entries...)
		for i := range m.Entries {
			m.Entries[i].Archive = "src"
		}
		l := NewLease(w.fault, LeaseOptions{TTL: time.Minute})
		r, err := OpenBucket(t.Context(), w.mem, ReaderOptions{
			Foreign: func(string) (objstore.Bucket, error) { return w.fault, nil },
			Lease:   func(string) *Lease { return l },
		})
		if err != nil {
			t.Fatal(err)
		}
		read := func() error {
			d, err := r.Read(t.Context(), &m, 0, 1000)
			d.Release()
			return err
		}
		if err := read(); !errors.Is(err, ErrLeaseLapsed) {
			t.Fatalf("without a lease: %v", err)
		}
		if err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := read(); err != nil {
			t.Fatalf("under a lease: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if err := read(); !errors.Is(err, ErrLeaseLapsed) {
			t.Fatalf("after the lapse: %v", err)
		}
	})
}

func TestALeaseThatIsKeptOutlivesItsProcessUnderOneId(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		first := NewLease(w.fault, LeaseOptions{TTL: time.Hour, Keep: true})
		if err := first.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		id := first.ID()
		run := func(o LeaseOptions, d time.Duration) *Lease {
			l := NewLease(w.fault, o)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- l.Run(ctx) }()
			time.Sleep(d)
			synctest.Wait()
			if !l.Live() {
				t.Fatalf("lease %s does not live", l.ID())
			}
			cancel()
			<-done
			return l
		}
		reread := 0
		again := LeaseOptions{TTL: 2 * time.Hour, Keep: true, ID: id, Reread: func(context.Context) error { reread++; return nil }}
		time.Sleep(30 * time.Minute)
		if l := run(again, 100*time.Hour); l.ID() != id || reread != 0 {
			t.Fatalf("lease %s after %s, %d readings", l.ID(), id, reread)
		}
		wantEqual(t, "leases", w.leases(), []string{manifest.LeaseKey(id)})
		time.Sleep(90 * time.Minute) // it lives for what the last renewal said
		if l := run(again, time.Minute); l.ID() != id {
			t.Fatalf("lease %s after %s", l.ID(), id)
		}
		time.Sleep(3 * time.Hour)
		var taken []string
		again.Taken = func(_ context.Context, id string) error { taken = append(taken, id); return nil }
		if l := run(again, time.Minute); l.ID() == id || reread != 1 || len(taken) != 1 || taken[0] != l.ID() {
			t.Fatalf("a lapsed lease goes on: %s, %d readings, taken %v", l.ID(), reread, taken)
		}
	})
}
