package meta_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
)

func open(t testing.TB, kv meta.KV) *meta.Store {
	t.Helper()
	s, err := meta.Open(t.Context(), kv, "c1", meta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run starts Run and waits for its end when the test ends.
func run(t testing.TB, s *meta.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func spread(n int) [][]int32 {
	a := make([][]int32, n)
	for i := range a {
		a[i] = []int32{int32(i % 3), int32((i + 1) % 3)}
	}
	return a
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func create(t testing.TB, s *meta.Store, name string, n int) *meta.Topic {
	t.Helper()
	topic, err := s.CreateTopic(t.Context(), meta.TopicSpec{Name: name, Assignment: spread(n)})
	fatal(t, err)
	return topic
}

func TestTopicLife(t *testing.T) {
	kv := memkv.New()
	s := open(t, kv)
	create(t, s, "small", 1)
	big := create(t, s, "big", 1000)
	_, err := s.CreateTopic(t.Context(), meta.TopicSpec{Name: "big", Assignment: spread(2)})
	wants(t, err, meta.ErrTopicExists)
	_, err = s.CreateTopic(t.Context(), meta.TopicSpec{Name: "other", ID: big.ID, Assignment: spread(2)})
	wants(t, err, meta.ErrTopicExists)

	img := open(t, kv).Image()
	if len(img.Topics) != 2 || len(img.Topics["big"].Partitions) != 1000 || img.TopicsByID[big.ID] != img.Topics["big"] {
		t.Fatalf("image has %d topics", len(img.Topics))
	}
	if !reflect.DeepEqual(img.Topics["big"].Partitions[999], big.Partitions[999]) {
		t.Fatalf("partition = %+v, want what CreateTopic returned, %+v", img.Topics["big"].Partitions[999], big.Partitions[999])
	}
	fatal(t, s.CreatePartitions(t.Context(), "big", spread(300)))
	fatal(t, s.AlterTopic(t.Context(), "big", func(m map[string]string) (map[string]string, error) {
		m["retention.ms"] = "1"
		return m, nil
	}))
	fatal(t, s.SetTopicArchived(t.Context(), big.ID, 2))
	wants(t, s.SetTopicArchived(t.Context(), big.ID, 9), meta.ErrInvalid)
	fatal(t, s.DeleteTopic(t.Context(), "big"))
	wants(t, s.DeleteTopic(t.Context(), "big"), meta.ErrUnknownTopic)
	img = open(t, kv).Image()
	d := img.Deleted[big.ID]
	if img.Topics["big"] != nil || d == nil || len(d.Partitions) != 1300 || d.DeletedMs == 0 || d.Version != 4 || d.Archived != 2 || d.Configs["retention.ms"] != "1" {
		t.Fatalf("deleted topic = %+v", d)
	}
	again := create(t, s, "big", 3)
	wants(t, s.UndeleteTopic(t.Context(), big.ID), meta.ErrTopicExists)
	fatal(t, s.DeleteTopic(t.Context(), "big"))
	fatal(t, s.UndeleteTopic(t.Context(), big.ID))
	img = open(t, kv).Image()
	if p := img.Topics["big"].Partitions[7]; p.LeaderEpoch != 1 || p.PartitionEpoch != 1 || len(img.Deleted) != 1 {
		t.Fatalf("undeleted partition = %+v, want the next epoch", p)
	}
	fatal(t, s.ForgetTopic(t.Context(), again.ID))
	fatal(t, s.DeleteTopic(t.Context(), "big"))
	fatal(t, s.ForgetTopic(t.Context(), big.ID))
	fatal(t, s.ForgetTopic(t.Context(), big.ID))
	fatal(t, s.DeleteTopic(t.Context(), "small"))
	for id := range open(t, kv).Image().Deleted {
		fatal(t, s.ForgetTopic(t.Context(), id))
	}
	if pairs, _, _ := kv.Range(t.Context(), "/varve/c1/"); len(pairs) != 0 {
		t.Fatalf("%d keys are left, the first %s", len(pairs), pairs[0].Key)
	}
}

// A crash is a client that answers nothing any more after its n-th transaction, which may or may not have landed.
func TestCrashBetweenTransactionsLeavesNothingVisibleAndSweepCollects(t *testing.T) {
	for _, landed := range []memkv.Outcome{memkv.Refuse, memkv.Unknown} {
		for n := int64(1); n <= 7; n++ {
			kv := memkv.New()
			client := kv.Client()
			s := open(t, client)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			txns := int64(0)
			var mu sync.Mutex
			client.Hook(func(c memkv.Call) memkv.Outcome {
				mu.Lock()
				defer mu.Unlock()
				if c.Kind != "txn" {
					return memkv.OK
				}
				if txns++; txns == n {
					cancel()
					return landed
				}
				if txns > n {
					return memkv.Refuse
				}
				return memkv.OK
			})
			_, err := s.CreateTopic(ctx, meta.TopicSpec{Name: "t", Assignment: spread(500)})
			cancel()
			other := open(t, kv)
			if topic := other.Image().Topics["t"]; topic != nil && len(topic.Partitions) != 500 {
				t.Fatalf("crash at %d: half a topic is visible", n)
			} else if topic == nil && err == nil {
				t.Fatalf("crash at %d: success, and no topic", n)
			}
			if _, err := other.Sweep(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			pairs, _, _ := kv.Range(t.Context(), "/varve/c1/")
			if want := 501; len(pairs) != 0 && len(pairs) != want {
				t.Fatalf("crash at %d: %d keys are left, want 0 or %d", n, len(pairs), want)
			}
			if _, err := other.CreateTopic(t.Context(), meta.TopicSpec{Name: "t2", Assignment: spread(500)}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestUnknownOutcomesAreReadBack(t *testing.T) {
	for _, o := range []memkv.Outcome{memkv.Refuse, memkv.Unknown} {
		kv := memkv.New()
		s := open(t, kv)
		kv.FailTxn(1, o)
		topic := create(t, s, "t", 2)
		kv.FailTxn(1, o)
		fatal(t, s.CreatePartitions(t.Context(), "t", spread(1)))
		kv.FailTxn(2, o)
		fatal(t, s.CreatePartitions(t.Context(), "t", spread(1)))
		kv.FailTxn(1, o)
		fatal(t, s.DeleteTopic(t.Context(), "t"))
		kv.FailTxn(2, o)
		fatal(t, s.UndeleteTopic(t.Context(), topic.ID))
		kv.FailTxn(1, o)
		a, err := s.AllocateProducerIDs(t.Context(), 1000)
		fatal(t, err)
		b, err := s.AllocateProducerIDs(t.Context(), 1000)
		fatal(t, err)
		if b < a+1000 {
			t.Fatalf("blocks at %d and %d overlap", a, b)
		}
		p, err := s.GetPartition(t.Context(), topic.Partitions[0].ID)
		fatal(t, err)
		kv.FailTxn(1, o)
		p.Pointer.N = 7
		_, err = s.UpdatePartition(t.Context(), p)
		wants(t, err, meta.ErrUnavailable)
		q, err := s.GetPartition(t.Context(), p.ID)
		fatal(t, err)
		if got := q.Pointer.N == 7; got != (o == memkv.Unknown) {
			t.Fatalf("landed: %v", got)
		}
		if n := len(open(t, kv).Image().Topics["t"].Partitions); n != 4 {
			t.Fatalf("%d partitions, want 4", n)
		}
	}
}

func TestElectLeavesOutWhatHasChanged(t *testing.T) {
	kv := memkv.New()
	s := open(t, kv)
	topic := create(t, s, "t", 300)
	s = open(t, kv) // its image is of now
	moved, err := s.GetPartition(t.Context(), topic.Partitions[3].ID)
	fatal(t, err)
	moved.Pointer.N = 5 // a pointer alone does not matter
	_, err = s.UpdatePartition(t.Context(), moved)
	fatal(t, err)
	shrunk, err := s.GetPartition(t.Context(), topic.Partitions[200].ID)
	fatal(t, err)
	shrunk.ISR, shrunk.PartitionEpoch = shrunk.ISR[:1], 1
	_, err = s.UpdatePartition(t.Context(), shrunk)
	fatal(t, err)
	_, err = s.UpdatePartition(t.Context(), shrunk)
	wants(t, err, meta.ErrConflict)
	var e []meta.Election
	for _, p := range topic.Partitions {
		e = append(e, meta.Election{ID: p.ID, Leader: p.Replicas[1], ISR: p.Replicas[1:]})
	}
	wants(t, s.Elect(t.Context(), e), meta.ErrConflict)
	for i, p := range open(t, kv).Image().Topics["t"].Partitions {
		if elected := p.LeaderEpoch == 1 && p.Leader == p.Replicas[1] && len(p.ISR) == 1; elected == (i == 200) {
			t.Fatalf("partition %d = %+v", i, p)
		}
		if i == 3 && p.Pointer.N != 5 {
			t.Fatal("the election undid a pointer")
		}
	}
}

func TestRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := memkv.New()
		defer kv.Close()
		s, other := open(t, kv), open(t, kv)
		b := meta.Broker{ID: 1, Directory: "d1", Listeners: []meta.Listener{{Name: "PLAINTEXT", Host: "h", Port: 9092}}}
		e1, _, err := s.Register(t.Context(), b, 9000)
		fatal(t, err)
		// The process dies; its successor with the same directory need not wait.
		began := time.Now()
		e2, keep, err := other.Register(t.Context(), b, 9000)
		fatal(t, err)
		if e2 <= e1 || time.Since(began) > 0 {
			t.Fatalf("epochs %d, %d after %v", e1, e2, time.Since(began))
		}
		b.Directory = "d2"
		_, _, err = s.Register(t.Context(), b, 9000)
		wants(t, err, meta.ErrBrokerIDInUse)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		won, err := other.TakeControl(t.Context(), 1)
		if err != nil || !won {
			t.Fatal(won, err)
		}
		wants(t, keep(ctx), context.DeadlineExceeded)
		img := open(t, kv).Image()
		if len(img.Brokers) != 0 || img.Controller != -1 {
			t.Fatalf("after the end of keep: %d brokers, controller %d", len(img.Brokers), img.Controller)
		}
		_, _, err = s.Register(t.Context(), b, 9000)
		fatal(t, err)
		time.Sleep(10 * time.Second)
		if n := len(open(t, kv).Image().Brokers); n != 0 {
			t.Fatalf("%d brokers after the ttl", n)
		}
	})
}

func TestJoinerMustNotHaveRestarted(t *testing.T) {
	kv := memkv.New()
	s := open(t, kv)
	topic := create(t, s, "t", 1)
	b := meta.Broker{ID: 1, Directory: "d"}
	old, _, err := s.Register(t.Context(), b, 60000)
	fatal(t, err)
	now, _, err := s.Register(t.Context(), b, 60000)
	fatal(t, err)
	_, err = s.UpdatePartition(t.Context(), topic.Partitions[0], meta.BrokerEpoch{ID: 1, Epoch: old})
	wants(t, err, meta.ErrConflict)
	_, err = s.UpdatePartition(t.Context(), topic.Partitions[0], meta.BrokerEpoch{ID: 1, Epoch: now})
	fatal(t, err)
}

func TestOldIncarnationIsFenced(t *testing.T) {
	kv := memkv.New()
	s := open(t, kv)
	topic := create(t, s, "t", 1)
	next, err := meta.Open(t.Context(), kv, "c1", meta.Options{Incarnation: 5})
	fatal(t, err)
	if img := next.Image(); img.Incarnation != 5 || len(img.Topics) != 0 {
		t.Fatalf("incarnation %d with %d topics", img.Incarnation, len(img.Topics))
	}
	_, err = s.UpdatePartition(t.Context(), topic.Partitions[0])
	wants(t, err, meta.ErrIncarnation)
	wants(t, s.DeleteTopic(t.Context(), "t"), meta.ErrIncarnation)
	_, err = s.AllocateProducerIDs(t.Context(), 1)
	wants(t, err, meta.ErrIncarnation)
	_, err = meta.Open(t.Context(), kv, "c1", meta.Options{Incarnation: 4})
	wants(t, err, meta.ErrIncarnation)
}

func TestOpenMakesOneClusterForAll(t *testing.T) {
	kv := memkv.New()
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			s, err := meta.Open(t.Context(), kv, "", meta.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = s.Image().Cluster
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("clusters %v", ids)
		}
	}
}

func TestBadRecordsAreNamed(t *testing.T) {
	kv := memkv.New()
	topic := create(t, open(t, kv), "t", 1)
	pairs, _, _ := kv.Range(t.Context(), "/varve/c1/")
	for _, p := range pairs {
		for value, want := range map[string]error{`{"v":1`: nil, `{"v":2}`: meta.ErrUnsupported, `{}`: nil, `{"v":1}`: nil} {
			_, _, err := kv.Txn(t.Context(), nil, []meta.Op{{Key: p.Key, Value: []byte(value)}})
			fatal(t, err)
			_, err = meta.Open(t.Context(), kv, "c1", meta.Options{})
			var bad *meta.CorruptError
			if !errors.As(err, &bad) || (want != nil && !errors.Is(err, want)) {
				t.Fatalf("%s = %s: %v", p.Key, value, err)
			}
		}
		_, _, err := kv.Txn(t.Context(), nil, []meta.Op{{Key: p.Key, Value: p.Value}})
		fatal(t, err)
	}
	if open(t, kv).Image().TopicsByID[topic.ID] == nil {
		t.Fatal("the topic has gone")
	}
}

// The image that watches make equals the one that is read afresh, after any operations, and with resyncs between.
func TestWatchedImageEqualsReadImage(t *testing.T) {
	for seed := range uint64(6) {
		kv := memkv.New()
		s := open(t, kv)
		run(t, s)
		lossy := kv.Client()
		follower := open(t, lossy)
		run(t, follower)
		var mu sync.Mutex
		var last *meta.Image
		follower.Subscribe(func(old, now *meta.Image) {
			mu.Lock()
			defer mu.Unlock()
			if now.Rev < old.Rev || last != nil && last != old {
				t.Errorf("swap from %d to %d out of order", old.Rev, now.Rev)
			}
			last = now
		})
		r := rand.New(rand.NewPCG(seed, 1))
		var ids []manifest.TopicID
		for i := range 150 {
			name := "t" + strconv.Itoa(r.IntN(5))
			var err error
			switch r.IntN(9) {
			case 0, 1:
				var topic *meta.Topic
				if topic, err = s.CreateTopic(t.Context(), meta.TopicSpec{Name: name, Assignment: spread(1 + r.IntN(200))}); err == nil {
					ids = append(ids, topic.ID)
				}
			case 2:
				err = s.DeleteTopic(t.Context(), name)
			case 3:
				if len(ids) > 0 {
					err = s.UndeleteTopic(t.Context(), ids[r.IntN(len(ids))])
				}
			case 4:
				if len(ids) > 0 {
					err = s.ForgetTopic(t.Context(), ids[r.IntN(len(ids))])
				}
			case 5:
				err = s.CreatePartitions(t.Context(), name, spread(1+r.IntN(150)))
			case 6:
				err = s.AlterConfigs(t.Context(), "broker/"+name, func(m map[string]string) (map[string]string, error) {
					if len(m) > 0 {
						return nil, nil
					}
					return map[string]string{"k": strconv.Itoa(i)}, nil
				})
			case 7:
				if topic := s.Image().Topics[name]; topic != nil {
					p := *topic.Partitions[r.IntN(len(topic.Partitions))]
					p.Pointer.N++
					_, err = s.UpdatePartition(t.Context(), &p)
				}
			case 8:
				lossy.Disconnect()
				fatal(t, s.Attach(t.Context(), meta.Attached{Archive: name, URL: strconv.Itoa(i)}))
				kv.Compact(1 << 40)
				lossy.Connect()
			}
			if err != nil && !errors.Is(err, meta.ErrUnknownTopic) && !errors.Is(err, meta.ErrTopicExists) && !errors.Is(err, meta.ErrConflict) {
				t.Fatal(err)
			}
			if i%10 == 0 {
				fresh := open(t, kv).Image()
				for _, x := range []*meta.Store{s, follower} {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					fatal(t, x.Sync(ctx, fresh.Rev))
					cancel()
					if !reflect.DeepEqual(x.Image(), fresh) {
						t.Fatalf("seed %d, step %d: watched image at %d differs from the one read at %d", seed, i, x.Image().Rev, fresh.Rev)
					}
				}
			}
		}
	}
}

func TestPointerCommitSharesEverythingElse(t *testing.T) {
	kv := memkv.New()
	s := open(t, kv)
	for i := range 5 {
		create(t, s, fmt.Sprint("t", i), 100)
	}
	s = open(t, kv)
	run(t, s)
	old := s.Image()
	p := *old.Topics["t2"].Partitions[50]
	p.Pointer.N = 9
	q, err := s.UpdatePartition(t.Context(), &p)
	fatal(t, err)
	fatal(t, s.Sync(t.Context(), q.ModRev))
	img := s.Image()
	for name, topic := range img.Topics {
		if (topic != old.Topics[name]) != (name == "t2") {
			t.Fatalf("topic %s: shared %v", name, topic == old.Topics[name])
		}
	}
	for i, x := range img.Topics["t2"].Partitions {
		if (x != old.Topics["t2"].Partitions[i]) != (i == 50) {
			t.Fatalf("partition %d: shared %v", i, i == 50)
		}
	}
	if old.Topics["t2"].Partitions[50].Pointer.N != 0 {
		t.Fatal("the old image has changed")
	}
}

func TestATopicIsEitherUndeletedOrCollected(t *testing.T) {
	s := open(t, memkv.New())
	topic := create(t, s, "t", 2)
	wants(t, s.BeginCollect(t.Context(), topic.ID), meta.ErrUnknownTopic) // it lives
	fatal(t, s.DeleteTopic(t.Context(), "t"))
	fatal(t, s.BeginCollect(t.Context(), topic.ID))
	fatal(t, s.BeginCollect(t.Context(), topic.ID))
	wants(t, s.UndeleteTopic(t.Context(), topic.ID), meta.ErrUnknownTopic)
	fatal(t, s.ForgetTopic(t.Context(), topic.ID))
}

// An undelete changes the partitions' records before the topic's: who read one in between, to collect the topic, comes too late.
func TestAPartitionOfAnUndeletedTopicIsNotUpdatedAsADeletedOne(t *testing.T) {
	s := open(t, memkv.New())
	topic := create(t, s, "t", 1)
	id := topic.Partitions[0].ID
	get := func() *meta.Partition {
		t.Helper()
		p, err := s.GetPartition(t.Context(), id)
		fatal(t, err)
		return p
	}
	update := func() error {
		_, err := s.UpdateDeletedPartition(t.Context(), get())
		return err
	}
	wants(t, update(), meta.ErrConflict) // it lives
	fatal(t, s.DeleteTopic(t.Context(), "t"))
	fatal(t, update())
	old := get()
	fatal(t, s.UndeleteTopic(t.Context(), topic.ID))
	_, err := s.UpdateDeletedPartition(t.Context(), old)
	wants(t, err, meta.ErrConflict)
	wants(t, update(), meta.ErrConflict)
	if old.Undeleted || !get().Undeleted {
		t.Fatal("the partition does not say that it was brought back")
	}
	_, err = s.UpdatePartition(t.Context(), get())
	fatal(t, err)
}

// Who collects a deleted topic takes an epoch of its own. If it has read the record after an undeletion has raised the epoch, and before the
// topic lives, the leader does not lead in the collector's: both would write manifests of that epoch.
func TestNobodyLeadsAnUndeletedTopicInTheEpochOfItsCollector(t *testing.T) {
	kv := memkv.New()
	s, collector := open(t, kv), open(t, kv.Client())
	topic := create(t, s, "t", 1)
	id := topic.Partitions[0].ID
	fatal(t, s.DeleteTopic(t.Context(), "t"))
	var taken int32
	txns := 0
	kv.Hook(func(c memkv.Call) memkv.Outcome {
		if c.Kind != "txn" {
			return memkv.OK
		}
		if txns++; txns == 2 { // the epochs are raised, the topic is not back
			p, err := collector.GetPartition(t.Context(), id)
			fatal(t, err)
			p.LeaderEpoch++
			p.PartitionEpoch++
			p, err = collector.ElectDeletedPartition(t.Context(), p)
			fatal(t, err)
			taken = p.LeaderEpoch
		}
		return memkv.OK
	})
	fatal(t, s.UndeleteTopic(t.Context(), topic.ID))
	kv.Hook(nil)
	p, err := s.GetPartition(t.Context(), id)
	fatal(t, err)
	if taken == 0 || p.LeaderEpoch <= taken {
		t.Fatalf("the collector has epoch %d, the leader %d", taken, p.LeaderEpoch)
	}
}
