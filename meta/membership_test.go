package meta_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
)

func TestRegistrationIsFencedUntilTheControllerHasDealtWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := memkv.New()
		defer kv.Close()
		s, other := open(t, kv), open(t, kv)
		run(t, s)
		run(t, other)
		synctest.Wait()
		b := meta.Broker{ID: 1, Directory: "d", Previous: 7, Listeners: []meta.Listener{{Name: "P", Host: "h", Port: 9092}}}
		e1, _, err := s.Register(t.Context(), b, 60_000)
		fatal(t, err)
		won, err := s.TakeControl(t.Context(), 1)
		if err != nil || !won || s.Term() == 0 || s.Image().Term != s.Term() {
			t.Fatal(won, err, s.Term(), s.Image().Term)
		}
		img := s.Image()
		if x := img.Brokers[1]; x.Fenced || x.Previous != 7 || img.Admitted(1, e1) || !img.Alive(1) {
			t.Fatalf("%+v: one that was never seen before is not fenced, nor admitted", x)
		}
		fatal(t, s.Admit(t.Context(), s.Term(), img.Brokers[1]))
		if !s.Image().Admitted(1, e1) {
			t.Fatal("not admitted")
		}
		stale := s.Image().Brokers[1]
		term := s.Term()
		e2, _, err := other.Register(t.Context(), b, 60_000)
		fatal(t, err)
		synctest.Wait()
		img = other.Image()
		if x := img.Brokers[1]; !x.Fenced || img.Admitted(1, e2) || img.Alive(1) || img.Eligible(1) || img.Controller != -1 {
			t.Fatalf("%+v after a restart", x)
		}
		wants(t, s.Admit(t.Context(), term, stale), meta.ErrNotController)
		won, err = other.TakeControl(t.Context(), 1)
		if err != nil || !won {
			t.Fatal(won, err)
		}
		wants(t, other.Admit(t.Context(), other.Term(), stale), meta.ErrConflict)
		fatal(t, other.Admit(t.Context(), other.Term(), img.Brokers[1]))
		if img := other.Image(); !img.Admitted(1, e2) || img.Admitted(1, e1) || img.Brokers[1].Fenced {
			t.Fatalf("%+v", img.Brokers[1])
		}
		fresh := open(t, kv).Image()
		if k := fresh.Known[1]; k == nil || k.Epoch != e2 || k.Fenced || k.Listeners[0].Port != 9092 {
			t.Fatalf("read anew: %+v", k)
		}
	})
}

func TestBrokerThatIsGoneIsKnownUntilItIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := memkv.New()
		defer kv.Close()
		s, other := open(t, kv), open(t, kv)
		run(t, s)
		synctest.Wait()
		_, _, err := s.Register(t.Context(), meta.Broker{ID: 1}, 60_000)
		fatal(t, err)
		_, err = s.TakeControl(t.Context(), 1)
		fatal(t, err)
		e, _, err := other.Register(t.Context(), meta.Broker{ID: 2}, 60_000)
		fatal(t, err)
		synctest.Wait()
		fatal(t, s.Admit(t.Context(), s.Term(), s.Image().Brokers[2]))
		wants(t, s.ForgetBroker(t.Context(), 2), meta.ErrBrokerIDInUse)
		wants(t, s.ForgetBroker(t.Context(), 3), meta.ErrInvalid)
		fatal(t, s.Evict(t.Context(), 2, e+1)) // another registration than the present one: nothing happens
		synctest.Wait()
		if s.Image().Brokers[2] == nil {
			t.Fatal("evicted by a wrong epoch")
		}
		fatal(t, s.Evict(t.Context(), 2, e))
		synctest.Wait()
		if img := s.Image(); img.Brokers[2] != nil || img.Known[2] == nil || !img.Known[2].Fenced {
			t.Fatalf("%+v, %+v", img.Brokers[2], img.Known[2])
		}
		fatal(t, s.ForgetBroker(t.Context(), 2))
		if k := s.Image().Known[2]; k != nil || !s.Image().Forgotten[2] {
			t.Fatalf("%+v is still known", k)
		}
		wants(t, s.ForgetBroker(t.Context(), 2), meta.ErrInvalid)
		// Who comes by its id is another one, and takes part only once the controller knows.
		e, _, err = other.Register(t.Context(), meta.Broker{ID: 2}, 60_000)
		fatal(t, err)
		synctest.Wait()
		for _, img := range []*meta.Image{s.Image(), open(t, kv).Image()} {
			if b := img.Brokers[2]; b == nil || !b.Fenced || !img.Forgotten[2] || img.Admitted(2, e) {
				t.Fatalf("%+v, forgotten %v", b, img.Forgotten)
			}
		}
		fatal(t, s.Admit(t.Context(), s.Term(), s.Image().Brokers[2]))
		synctest.Wait()
		for _, img := range []*meta.Image{s.Image(), open(t, kv).Image()} {
			if b := img.Brokers[2]; b.Fenced || len(img.Forgotten) != 0 || !img.Admitted(2, e) {
				t.Fatalf("%+v, forgotten %v", b, img.Forgotten)
			}
		}
	})
}

func TestDrainingEndsWithTheRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := memkv.New()
		defer kv.Close()
		s := open(t, kv)
		run(t, s)
		synctest.Wait()
		b := meta.Broker{ID: 1, Directory: "d"}
		wants(t, s.Drain(t.Context()), meta.ErrInvalid)
		_, _, err := s.Register(t.Context(), b, 60_000)
		fatal(t, err)
		fatal(t, s.Drain(t.Context()))
		if img := s.Image(); !img.Brokers[1].Draining || img.Eligible(1) || !img.Alive(1) {
			t.Fatalf("%+v", img.Brokers[1])
		}
		_, _, err = s.Register(t.Context(), b, 60_000)
		fatal(t, err)
		synctest.Wait()
		if img := s.Image(); img.Brokers[1].Draining || !img.Eligible(1) {
			t.Fatalf("%+v", img.Brokers[1])
		}
	})
}

func TestResignLetsAnotherTakeControlAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := memkv.New()
		defer kv.Close()
		a, b := open(t, kv), open(t, kv)
		_, _, err := a.Register(t.Context(), meta.Broker{ID: 1}, 60_000)
		fatal(t, err)
		_, _, err = b.Register(t.Context(), meta.Broker{ID: 2}, 60_000)
		fatal(t, err)
		_, err = a.TakeControl(t.Context(), 1)
		fatal(t, err)
		if won, err := b.TakeControl(t.Context(), 2); won || err != nil {
			t.Fatal(won, err)
		}
		fatal(t, b.Resign(t.Context())) // it is not its to give
		began := time.Now()
		fatal(t, a.Resign(t.Context()))
		if won, err := b.TakeControl(t.Context(), 2); !won || err != nil || time.Since(began) > 0 {
			t.Fatal(won, err)
		}
		if a.Term() != 0 {
			t.Fatal("a keeps its term")
		}
	})
}

func TestEditsKeepWhatHasMovedOnAndElectNobodyWhoHasRestarted(t *testing.T) {
	kv := memkv.New()
	s := open(t, kv)
	topic := create(t, s, "t", 400)
	e1, _, err := s.Register(t.Context(), meta.Broker{ID: 1, Directory: "d"}, 60_000)
	fatal(t, err)
	pointer, err := s.GetPartition(t.Context(), topic.Partitions[5].ID)
	fatal(t, err)
	pointer.Pointer.N = 9
	_, err = s.UpdatePartition(t.Context(), pointer)
	fatal(t, err)
	moved, err := s.GetPartition(t.Context(), topic.Partitions[6].ID)
	fatal(t, err)
	moved.Adding, moved.PartitionEpoch = []int32{7}, 1
	_, err = s.UpdatePartition(t.Context(), moved)
	fatal(t, err)
	var edits []meta.Edit
	for i, p := range topic.Partitions {
		e := meta.Edit{Base: p, Replicas: append(slices.Clone(p.Replicas), 9), ISR: p.ISR[:1], Adding: []int32{9}, Leader: p.ISR[0]}
		if i%2 == 0 {
			e.Elect, e.Leader, e.Registration = true, 1, e1
		}
		edits = append(edits, e)
	}
	wants(t, s.EditPartitions(t.Context(), 0, edits), meta.ErrConflict)
	for i, p := range open(t, kv).Image().Topics["t"].Partitions {
		switch {
		case i == 6:
			if p.PartitionEpoch != 1 || len(p.Replicas) != 2 {
				t.Fatalf("%+v was overwritten", p)
			}
		case p.PartitionEpoch != 1 || len(p.Replicas) != 3 || !slices.Equal(p.Adding, []int32{9}) || p.LeaderEpoch != int32(1-i%2):
			t.Fatalf("partition %d: %+v", i, p)
		case i == 5 && p.Pointer.N != 9:
			t.Fatal("the edit undid a pointer")
		}
	}
	_, _, err = s.Register(t.Context(), meta.Broker{ID: 1, Directory: "d"}, 60_000)
	fatal(t, err)
	p := open(t, kv).Image().Topics["t"].Partitions[0]
	again := []meta.Edit{{Base: p, Replicas: p.Replicas, ISR: p.ISR, Leader: 1, Elect: true, Registration: e1}}
	wants(t, s.EditPartitions(t.Context(), 0, again), meta.ErrConflict)
	if now := open(t, kv).Image().Topics["t"].Partitions[0]; now.PartitionEpoch != p.PartitionEpoch {
		t.Fatalf("%+v: elected for a registration that has ended", now)
	}
	fatal(t, s.EditPartitions(context.Background(), 0, nil))
}
