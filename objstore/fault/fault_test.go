package fault_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/mem"
)

func body(s string) objstore.Body { return objstore.BytesBody([]byte(s)) }

func TestARuleHitsTheNthCallBelowItsPrefix(t *testing.T) {
	f := fault.New(mem.New(mem.Options{}), fault.Options{Rules: []fault.Rule{
		{Op: fault.Put, Prefix: "m/", From: 2, Count: 2, Effect: fault.Fail, Err: objstore.ErrDenied},
	}})
	var hit []int
	for i := range 6 {
		if _, err := f.Put(t.Context(), "s/x", body("x"), objstore.Cond{}); err != nil {
			t.Fatal(err)
		}
		_, err := f.Put(t.Context(), "m/x", body("x"), objstore.Cond{})
		if errors.Is(err, objstore.ErrDenied) {
			hit = append(hit, i)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(hit, []int{1, 2}) {
		t.Fatalf("hit calls %v, want 1 and 2", hit)
	}
}

func TestTheSameSeedGivesTheSameFaults(t *testing.T) {
	run := func(seed uint64) (s string) {
		f := fault.New(mem.New(mem.Options{}), fault.Options{Seed: seed, Rules: []fault.Rule{{Chance: 0.3, Effect: fault.Fail}}})
		for range 64 {
			_, err := f.Head(t.Context(), "k")
			s += fmt.Sprint(errors.Is(err, objstore.ErrUnavailable))[:1]
		}
		return s
	}
	if a, b, c := run(1), run(1), run(2); a != b || a == c {
		t.Fatalf("seed 1 %s\nseed 1 %s\nseed 2 %s", a, b, c)
	}
}

func TestLostIsAppliedAndFailIsNot(t *testing.T) {
	store := mem.New(mem.Options{})
	f := fault.New(store, fault.Options{Rules: []fault.Rule{{Prefix: "lost", Effect: fault.Lost}, {Prefix: "fail", Effect: fault.Fail}}})
	for _, key := range []string{"lost", "fail"} {
		if _, err := f.Put(t.Context(), key, body(key), objstore.Cond{}); !errors.Is(err, objstore.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if _, err := store.Head(t.Context(), "lost"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Head(t.Context(), "fail"); !errors.Is(err, objstore.ErrNotFound) {
		t.Fatal(err)
	}
}

func TestLateLandsLaterWithTheBytesOfThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(mem.Options{})
		f := fault.New(store, fault.Options{Rules: []fault.Rule{{Effect: fault.Late, Delay: time.Minute}}})
		p := []byte("then")
		if _, err := f.Put(t.Context(), "k", objstore.BytesBody(p), objstore.Cond{}); !errors.Is(err, objstore.ErrUnavailable) {
			t.Fatal(err)
		}
		copy(p, "now!")
		if _, err := store.Head(t.Context(), "k"); !errors.Is(err, objstore.ErrNotFound) {
			t.Fatal(err)
		}
		f.Wait()
		if got, _, err := objstore.ReadAll(t.Context(), store, "k", 10); err != nil || string(got) != "then" {
			t.Fatalf("%q, %v", got, err)
		}
		if err := f.Delete(t.Context(), "k"); !errors.Is(err, objstore.ErrUnavailable) {
			t.Fatal(err)
		}
		f.Wait()
		if _, err := store.Head(t.Context(), "k"); !errors.Is(err, objstore.ErrNotFound) {
			t.Fatal(err)
		}
	})
}

func TestBodiesBreakAndFlip(t *testing.T) {
	f := fault.New(mem.New(mem.Options{}), fault.Options{Rules: []fault.Rule{
		{Op: fault.Get, Effect: fault.Truncate, At: 4, Count: 1}, {Op: fault.Get, Effect: fault.Flip, At: 2, Count: 1},
	}})
	if _, err := f.Put(t.Context(), "k", body("abcdefgh"), objstore.Cond{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		bytes string
		err   error
	}{{"abcd", objstore.ErrUnavailable}, {"abbdefgh", nil}, {"abcdefgh", nil}} {
		rc, err := f.Get(t.Context(), "k", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(rc)
		if string(got) != want.bytes || !errors.Is(err, want.err) {
			t.Fatalf("%q, %v, want %q, %v", got, err, want.bytes, want.err)
		}
	}
}

func TestListingsLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fault.New(mem.New(mem.Options{}), fault.Options{ListDelay: time.Minute})
		list := func() (keys []string) {
			for info, err := range f.List(t.Context(), "", "") {
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, info.Key)
			}
			return keys
		}
		expect := func(want ...string) {
			t.Helper()
			if got := list(); !slices.Equal(got, want) {
				t.Fatalf("listed %q, want %q", got, want)
			}
		}
		for _, key := range []string{"a", "b", "c"} {
			if _, err := f.Put(t.Context(), key, body(key), objstore.Cond{IfNoneMatch: true}); err != nil {
				t.Fatal(err)
			}
		}
		expect()
		if _, err := f.Head(t.Context(), "b"); err != nil {
			t.Fatal("only listings lag: ", err)
		}
		time.Sleep(time.Minute)
		expect("a", "b", "c")
		if err := f.Delete(t.Context(), "a", "c"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Put(t.Context(), "b", body("again"), objstore.Cond{}); err != nil {
			t.Fatal(err)
		}
		expect("a", "b", "c")
		time.Sleep(time.Minute)
		expect("b")
	})
}
