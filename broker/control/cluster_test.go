package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/memkv"
)

// world is a cluster of brokers that do nothing but be members, control and detect, over a network in memory. It lives in a bubble.
type world struct {
	t  *testing.T
	kv *memkv.KV

	mu        sync.Mutex
	listening map[int32]*peer // guarded by mu
	cut       map[int32]bool  // guarded by mu; dials to it time out
}

// peer is one process of a broker.
type peer struct {
	w        *world
	id       int32
	kv       *memkv.KV // its own connection
	store    *meta.Store
	member   *Membership
	detector *Detector
	stopRun  context.CancelFunc
	done     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

func newWorld(t *testing.T) *world {
	return &world{t: t, kv: memkv.New(), listening: map[int32]*peer{}, cut: map[int32]bool{}}
}

const session = 9 * time.Second

// start runs a process of a broker; previous is its clean-shutdown mark.
func (w *world) start(id int32, previous int64, set ...func(*Options)) *peer {
	w.t.Helper()
	p := &peer{w: w, id: id, kv: w.kv.Client()}
	ctx, cancel := context.WithCancel(context.Background())
	p.stopRun = cancel
	quiet := slog.New(slog.DiscardHandler)
	var err error
	if p.store, err = meta.Open(ctx, p.kv, "c", meta.Options{Logger: quiet}); err != nil {
		w.t.Fatal(err)
	}
	p.done.Go(func() { p.store.Run(ctx) })
	p.member = &Membership{Store: p.store, TTL: session, Logger: quiet, Broker: meta.Broker{
		ID: id, Directory: fmt.Sprint(id), Previous: previous, Listeners: []meta.Listener{{Name: "P", Host: "h", Port: id}},
	}}
	o := Options{NodeID: id, Logger: quiet}
	for _, f := range set {
		f(&o)
	}
	c := New(p.store, o)
	p.detector = NewDetector(p.store, DetectorOptions{NodeID: id, Dial: w.dial, Session: session, Logger: quiet})
	w.mu.Lock()
	w.listening[id] = p
	w.mu.Unlock()
	if err := p.member.Join(ctx); err != nil {
		w.t.Fatal(err)
	}
	p.done.Go(func() { p.member.Run(ctx) })
	p.done.Go(func() { c.Run(ctx) })
	p.done.Go(func() { p.detector.Run(ctx) })
	return p
}

// dial is the network.
func (w *world) dial(ctx context.Context, b *meta.Broker) (net.Conn, error) {
	w.mu.Lock()
	p, cut := w.listening[b.ID], w.cut[b.ID]
	w.mu.Unlock()
	if cut {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if p == nil {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	here, there := net.Pipe()
	p.mu.Lock()
	p.conns = append(p.conns, there)
	p.mu.Unlock()
	return here, nil
}

// close ends the sockets of a process.
func (p *peer) close() {
	p.w.mu.Lock()
	if p.w.listening[p.id] == p {
		delete(p.w.listening, p.id)
	}
	p.w.mu.Unlock()
	p.breakConns()
}

func (p *peer) breakConns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// kill is kill -9: nothing is given back, the sockets close.
func (p *peer) kill() {
	p.kv.Disconnect()
	p.stopRun()
	p.close()
}

// stop is the end of an orderly stop, after Drain.
func (p *peer) stop() {
	p.close()
	p.stopRun()
	p.done.Wait()
}

func (w *world) end(peers ...*peer) {
	for _, p := range peers {
		p.kv.Connect()
		p.stop()
	}
	w.kv.Close()
}

// until waits, in the bubble's time, and tells how long it took.
func (w *world) until(what string, ok func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > time.Minute {
			w.t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

func (p *peer) image() *meta.Image { return p.store.Image() }

func (p *peer) topic(name string, assignment ...[]int32) {
	p.w.t.Helper()
	if _, err := p.store.CreateTopic(context.Background(), meta.TopicSpec{Name: name, Assignment: assignment}); err != nil {
		p.w.t.Fatal(err)
	}
}

func (p *peer) partition(name string, n int) *meta.Partition {
	return p.image().Topics[name].Partitions[n]
}

// three starts three brokers, of which the first is the controller, and waits until all are admitted.
func (w *world) three(set ...func(*Options)) []*peer {
	w.t.Helper()
	a := w.start(1, 0, set...)
	w.until("broker 1 is the controller", func() bool { return a.image().Controller == 1 })
	peers := []*peer{a, w.start(2, 0, set...), w.start(3, 0, set...)}
	w.until("all are admitted", func() bool {
		return !slices.ContainsFunc(peers, func(p *peer) bool { return len(p.image().Known) != 3 || len(p.image().Brokers) != 3 })
	})
	return peers
}

func TestCrashOfALeaderIsRepairedLongBeforeItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[0].topic("t", []int32{3, 2, 1}, []int32{2, 3, 1})
		time.Sleep(time.Second)
		p[2].kill()
		took := w.until("another leads", func() bool { return p[1].partition("t", 0).Leader == 2 })
		if took > 200*time.Millisecond {
			t.Fatalf("it took %v", took)
		}
		a, b := p[1].partition("t", 0), p[1].partition("t", 1)
		if a.LeaderEpoch != 1 || !slices.Equal(a.ISR, []int32{2, 1}) {
			t.Fatalf("partition 0: %+v", a)
		}
		if b.Leader != 2 || b.LeaderEpoch != 0 || !slices.Equal(b.ISR, []int32{2, 1}) {
			t.Fatalf("partition 1: %+v: the dead follower must leave the ISR, the leader stays", b)
		}
		w.end(p...)
	})
}

func TestCrashOfTheControllerIsRepairedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[0].topic("t", []int32{1, 2, 3})
		time.Sleep(time.Second)
		p[0].kill()
		took := w.until("another leads", func() bool { return p[2].partition("t", 0).Leader == 2 })
		if took > 300*time.Millisecond {
			t.Fatalf("it took %v", took)
		}
		if c := p[2].image().Controller; c != 2 && c != 3 {
			t.Fatalf("controller %d", c)
		}
		w.end(p...)
	})
}

func TestBrokerThatIsCutOffKeepsItsPlaceUntilItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[0].topic("t", []int32{3, 1})
		time.Sleep(time.Second)
		w.mu.Lock()
		w.cut[3] = true
		w.mu.Unlock()
		p[2].breakConns()
		p[2].kv.Disconnect()
		began := time.Now()
		time.Sleep(session / 2)
		if l := p[0].partition("t", 0).Leader; l != 3 {
			t.Fatalf("leader %d after half a session: a time-out proves nothing", l)
		}
		w.until("another leads", func() bool { return p[0].partition("t", 0).Leader == 1 })
		if took := time.Since(began); took > session+time.Second {
			t.Fatalf("it took %v", took)
		}
		w.end(p...)
	})
}

func TestBrokenConnectionOfALivingBrokerCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[0].topic("t", []int32{3, 1})
		for range 5 {
			p[2].breakConns()
			p[1].detector.Suspect(3)
			time.Sleep(3 * time.Second)
		}
		if x := p[0].partition("t", 0); x.Leader != 3 || x.PartitionEpoch != 0 {
			t.Fatalf("partition %+v", x)
		}
		w.end(p...)
	})
}

func TestSuspicionOfAFollowerEndsACrashedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[0].topic("t", []int32{3, 2})
		time.Sleep(time.Second)
		// The connection of the controller does not break: it does not see that broker 3 has crashed.
		p[2].kv.Disconnect()
		w.mu.Lock()
		delete(w.listening, 3)
		w.mu.Unlock()
		p[1].detector.Suspect(3)
		took := w.until("another leads", func() bool { return p[1].partition("t", 0).Leader == 2 })
		if took > 200*time.Millisecond {
			t.Fatalf("it took %v", took)
		}
		p[2].stopRun()
		w.end(p...)
	})
}

func TestRestartWithoutTheMarkLeavesTheISRsAndIsElectedWhereItIsTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[0].topic("shared", []int32{3, 2})
		p[0].topic("alone", []int32{3})
		time.Sleep(time.Second)
		p[2].kill()
		w.until("nobody leads what it had alone", func() bool { return p[0].partition("alone", 0).Leader == -1 })
		again := w.start(3, 0)
		w.until("it is admitted", func() bool { return again.image().Admitted(3, again.store.Registration().Epoch) })
		if x := again.partition("alone", 0); x.Leader != 3 || x.LeaderEpoch != 2 {
			t.Fatalf("alone: %+v", x)
		}
		if x := again.partition("shared", 0); x.Leader != 2 || !slices.Equal(x.ISR, []int32{2}) {
			t.Fatalf("shared: %+v", x)
		}
		w.end(append(p, again)...)
	})
}

// A restart so quick that nobody has seen the end of the former process.
func TestQuickRestartNeverResumesAnEpoch(t *testing.T) {
	for _, clean := range []bool{false, true} {
		t.Run(fmt.Sprintf("clean %v", clean), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				p := w.three()
				p[0].topic("t", []int32{2, 3})
				p[0].topic("alone", []int32{2})
				time.Sleep(time.Second)
				mark := int64(0)
				if clean {
					mark = p[1].store.Registration().Epoch
				}
				p[1].kv.Disconnect()
				p[1].stopRun()
				again := w.start(2, mark)
				w.until("it is admitted", func() bool { return again.image().Admitted(2, again.store.Registration().Epoch) })
				x, alone := again.partition("t", 0), again.partition("alone", 0)
				if alone.Leader != 2 || alone.LeaderEpoch == 0 {
					t.Fatalf("alone: %+v", alone)
				}
				if in := slices.Contains(x.ISR, 2); in != clean || x.LeaderEpoch != 1 || !clean && x.Leader != 3 {
					t.Fatalf("%+v", x)
				}
				w.end(append(p, again)...)
			})
		})
	}
}

func TestDrainHandsOverBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[0].topic("t", []int32{1, 2, 3}, []int32{2, 1}, []int32{1})
		began := time.Now()
		if err := p[0].member.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Fatalf("it took %v", took)
		}
		a, b, alone := p[0].partition("t", 0), p[0].partition("t", 1), p[0].partition("t", 2)
		if a.Leader != 2 || slices.Contains(a.ISR, 1) || slices.Contains(b.ISR, 1) || b.Leader != 2 {
			t.Fatalf("%+v, %+v", a, b)
		}
		if alone.Leader != 1 || alone.PartitionEpoch != 0 {
			t.Fatalf("%+v: it must be served until the end", alone)
		}
		w.until("another is controller", func() bool { c := p[1].image().Controller; return c == 2 || c == 3 })
		p[0].stop()
		w.until("nobody leads it", func() bool { return p[1].partition("t", 2).Leader == -1 })
		again := w.start(1, p[0].store.Registration().Epoch)
		w.until("it is led again", func() bool { return again.partition("t", 2).Leader == 1 })
		w.end(append(p[1:], again)...)
	})
}

func TestDrainGoesOnWhenTheRegistrationIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[0].topic("t", []int32{2, 3})
		w.until("all know of it", func() bool { return p[1].image().Topics["t"] != nil })
		p[0].kv.Disconnect() // nobody acts on it yet
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		drained := make(chan error, 1)
		go func() { drained <- p[1].member.Drain(ctx) }()
		w.until("it drains", func() bool { return p[2].image().Brokers[2].Draining })
		epoch := p[2].image().Brokers[2].Epoch
		if err := p[2].store.Evict(ctx, 2, epoch); err != nil {
			t.Fatal(err)
		}
		w.until("it has registered again", func() bool { b := p[2].image().Brokers[2]; return b != nil && b.Epoch > epoch })
		p[0].kv.Connect()
		if err := <-drained; err != nil {
			t.Error(err)
		}
		if now := p[2].partition("t", 0); now.Leader != 3 || slices.Contains(now.ISR, 2) {
			t.Errorf("leader %d, ISR %v", now.Leader, now.ISR)
		}
		w.end(p...)
	})
}

func TestDrainEndsWhenThereIsNobodyToHandOverTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[0].topic("t", []int32{1, 2, 3})
		time.Sleep(time.Second)
		var all sync.WaitGroup
		for _, x := range p {
			all.Go(func() {
				if err := x.member.Drain(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		w.end(p...)
	})
}

func TestLostLeaseIsReplacedAndTheProcessKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[0].topic("alone", []int32{3})
		time.Sleep(time.Second)
		p[2].kv.Disconnect()
		w.until("nobody leads", func() bool { return p[0].partition("alone", 0).Leader == -1 })
		p[2].kv.Connect()
		w.until("it leads again", func() bool { return p[0].partition("alone", 0).Leader == 3 })
		if x := p[0].partition("alone", 0); x.LeaderEpoch != 2 {
			t.Fatalf("%+v", x)
		}
		w.end(p...)
	})
}

// While it was away its mark may have been removed, and it may lead again at once.
func TestWhoRegistersAgainIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		var told atomic.Int64
		p[1].member.Again = func(context.Context) { told.Store(p[1].store.Registration().Epoch) }
		was := p[1].store.Registration().Epoch
		p[1].kv.Disconnect()
		w.until("its lease has ended", func() bool { return p[0].image().Brokers[2] == nil })
		if told.Load() != 0 {
			t.Error("told while it is away")
		}
		p[1].kv.Connect()
		w.until("it is back", func() bool { return p[0].image().Admitted(2, p[1].store.Registration().Epoch) })
		w.until("it is told", func() bool { return told.Load() > was })
		w.end(p...)
	})
}

func TestDeposedControllerCannotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[0].topic("t", []int32{1, 2})
		term := p[0].store.Term()
		if err := p[1].store.Evict(t.Context(), 1, p[1].image().Brokers[1].Epoch); err != nil {
			t.Fatal(err)
		}
		base := p[0].partition("t", 0)
		err := p[0].store.EditPartitions(t.Context(), term, []meta.Edit{{Base: base, Replicas: base.Replicas, ISR: []int32{1}, Leader: 1, Elect: true}})
		if !errors.Is(err, meta.ErrNotController) {
			t.Fatalf("got %v", err)
		}
		if err := p[0].store.Admit(t.Context(), term, p[1].image().Brokers[2]); !errors.Is(err, meta.ErrNotController) {
			t.Fatalf("got %v", err)
		}
		w.until("another is controller, or the same in another term", func() bool { i := p[1].image(); return i.Controller > 0 && i.Term > term })
		w.end(p...)
	})
}

func TestLeadersMoveBackByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three(func(o *Options) { o.Rebalance, o.Imbalance = time.Minute, 10 })
		p[0].topic("t", []int32{2, 3})
		x := *p[0].partition("t", 0)
		x.Leader, x.LeaderEpoch, x.PartitionEpoch = 3, 1, 1
		if _, err := p[0].store.UpdatePartition(t.Context(), &x); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if l := p[0].partition("t", 0).Leader; l != 3 {
			t.Fatalf("leader %d", l)
		}
		w.until("the preferred leader leads", func() bool { return p[0].partition("t", 0).Leader == 2 })
		w.end(p...)
	})
}

// unclean.leader.election.enable and min.insync.replicas may be set for the whole cluster, which changes no topic's record.
func TestLeaderlessPartitionIsElectedUncleanlyOnceTheClusterAllowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const key = "unclean.leader.election.enable"
		var stores [4]atomic.Pointer[meta.Store]
		w := newWorld(t)
		p := w.three(func(o *Options) {
			id := o.NodeID
			o.Unclean = func(*meta.Topic) bool {
				s := stores[id].Load()
				return s != nil && s.Image().Configs["broker/"][key] == "true"
			}
		})
		for _, x := range p {
			stores[x.id].Store(x.store)
		}
		p[0].topic("t", []int32{3, 2})
		x := *p[0].partition("t", 0)
		x.ISR, x.PartitionEpoch = []int32{3}, 1
		if _, err := p[0].store.UpdatePartition(t.Context(), &x); err != nil {
			t.Fatal(err)
		}
		p[2].kill()
		w.until("nobody leads", func() bool { return p[0].partition("t", 0).Leader == -1 })
		time.Sleep(30 * time.Second) // nothing else is going on
		err := p[0].store.AlterConfigs(t.Context(), "broker/", func(c map[string]string) (map[string]string, error) {
			c[key] = "true"
			return c, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.until("who lives leads", func() bool { return p[0].partition("t", 0).Leader == 2 })
		w.end(p[:2]...)
	})
}

// The metadata store answers nothing for a while, or loses answers: the controller comes to the same in the end.
func TestControllerGetsOverLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[0].topic("t", []int32{3, 2, 1})
		time.Sleep(time.Second)
		n := 0
		var mu sync.Mutex
		p[0].kv.Hook(func(c memkv.Call) memkv.Outcome {
			mu.Lock()
			defer mu.Unlock()
			if c.Kind != "txn" && c.Kind != "revoke" {
				return memkv.OK
			}
			n++
			if n > 12 {
				return memkv.OK
			}
			return []memkv.Outcome{memkv.Refuse, memkv.Unknown}[n%2]
		})
		p[2].kill()
		took := w.until("another leads", func() bool { return p[1].partition("t", 0).Leader == 2 })
		if x := p[1].partition("t", 0); x.LeaderEpoch != 1 || took > 3*time.Second {
			t.Fatalf("%+v after %v", x, took)
		}
		w.end(p...)
	})
}

// TakeControl lands, its answer does not: the broker must not wait for ever for a controller that it is itself.
func TestControlWonWithoutAnAnswerIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.three()
		p[1].kv.Hook(func(c memkv.Call) memkv.Outcome {
			if c.Kind == "txn" && slices.ContainsFunc(c.Keys, func(k string) bool { return len(k) > 11 && k[len(k)-11:] == "/controller" }) {
				return memkv.Unknown
			}
			return memkv.OK
		})
		p[2].kv.Hook(func(c memkv.Call) memkv.Outcome {
			if c.Kind == "txn" && slices.ContainsFunc(c.Keys, func(k string) bool { return len(k) > 11 && k[len(k)-11:] == "/controller" }) {
				return memkv.Refuse
			}
			return memkv.OK
		})
		p[0].topic("t", []int32{1, 2})
		w.until("broker 2 has the topic", func() bool { return p[1].store.Image().Topics["t"] != nil })
		p[0].kill()
		w.until("broker 2 controls", func() bool { return p[1].partition("t", 0).Leader == 2 })
		w.end(p...)
	})
}

// Only who continues the very process that the cluster dealt with last is known to have all that was in its directory.
func TestOnlyTheSuccessorOfACleanStopIsIntact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one := w.start(1, 0)
		defer w.end(one)
		last := int64(0)
		for _, c := range []struct {
			was    string
			mark   func() int64
			intact bool
		}{
			{"never there", func() int64 { return 0 }, false},
			{"stopped in order", func() int64 { return last }, true},
			{"killed", func() int64 { return 0 }, false},
			{"an older disk's", func() int64 { return last - 1 }, false},
			{"stopped in order again", func() int64 { return last }, true},
		} {
			two := w.start(2, c.mark())
			w.until("it is admitted", func() bool { return two.image().Admitted(2, two.store.Registration().Epoch) })
			if two.member.Intact() != c.intact {
				t.Errorf("%s: intact %t", c.was, !c.intact)
			}
			last = two.store.Registration().Epoch
			two.stop()
			w.until("it is gone", func() bool { return one.image().Brokers[2] == nil })
		}
	})
}
