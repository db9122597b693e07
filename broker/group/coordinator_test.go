package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/manifest"
)

// inBubble runs f with a coordinator that runs, and ends it.
func inBubble(t *testing.T, logs *memLogs, o Options, f func(t *testing.T, c *Coordinator)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		run(t, logs, o, func(c *Coordinator) { f(t, c) })
	})
}

func run(t *testing.T, logs *memLogs, o Options, f func(c *Coordinator)) {
	t.Helper()
	if o.Partitions == 0 {
		o.Partitions = 4
	}
	if o.InitialDelayMs == 0 {
		o.InitialDelayMs = -1
	}
	if testing.Verbose() {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	ids := 0
	o.NewID = func() string { ids++; return fmt.Sprint(ids) }
	c := New(logs, o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for p := range o.Partitions {
		c.Lead(p, 1)
	}
	synctest.Wait()
	f(c)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
}

func joinReq(group, member string) JoinRequest {
	return JoinRequest{Group: group, Member: member, ClientID: "c", ClientHost: "/h", SessionMs: 10_000, RebalanceMs: 60_000,
		ProtocolType: "consumer", Protocols: []Protocol{{"range", subscription("t")}}}
}

func commitReq(group string, off int64) CommitRequest {
	return CommitRequest{Group: group, Generation: -1, RetentionMs: -1, Offsets: []Offset{{Topic: "t", TopicID: manifest.TopicID{1}, Offset: off, LeaderEpoch: -1}}}
}

func committed(t *testing.T, c *Coordinator, group string) int64 {
	t.Helper()
	fs, err := c.Fetch(group, []FetchTopic{{"t", []int32{0}}}, false)
	if err != nil {
		t.Fatalf("fetch: %v", err)
	}
	return fs[0].Offset.Offset
}

func mustCommit(t *testing.T, c *Coordinator, r CommitRequest) {
	t.Helper()
	if res := c.Commit(t.Context(), r); res.Err != nil || res.Errs[0] != nil {
		t.Fatalf("commit: %v", res)
	}
}

func TestMembersJoinSyncAndAreThrownOut(t *testing.T) {
	inBubble(t, newMemLogs(), Options{}, func(t *testing.T, c *Coordinator) {
		a := c.Join(t.Context(), joinReq("g", ""))
		if a.Err != nil || a.Leader != a.Member || a.Generation != 1 {
			t.Fatalf("first join: %+v", a)
		}
		s := c.Sync(t.Context(), SyncRequest{Group: "g", Member: a.Member, Generation: 1, Assignments: []Assignment{{a.Member, []byte("x")}}})
		if s.Err != nil || string(s.Assignment) != "x" {
			t.Fatalf("sync: %+v", s)
		}
		second := make(chan JoinResult)
		go func() { second <- c.Join(t.Context(), joinReq("g", "")) }()
		synctest.Wait()
		if err := c.Heartbeat(HeartbeatRequest{Group: "g", Member: a.Member, Generation: 1}); !errors.Is(err, ErrRebalanceInProgress) {
			t.Fatalf("heartbeat while another joins: %v", err)
		}
		a = c.Join(t.Context(), joinReq("g", a.Member))
		b := <-second
		if a.Generation != 2 || b.Generation != 2 || len(a.Members) != 2 {
			t.Fatalf("second generation: %+v, %+v", a, b)
		}
		// Nobody syncs or heartbeats: both are gone when their sessions end, and not before.
		time.Sleep(9 * time.Second)
		if d, _ := c.Describe("g"); len(d.Members) != 2 {
			t.Fatalf("after 9 s: %+v", d)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if d, _ := c.Describe("g"); d.State != Empty {
			t.Fatalf("after 11 s: %+v", d)
		}
	})
}

func TestCommitIsAnsweredAndSeenOnlyWhenCommitted(t *testing.T) {
	logs := newMemLogs()
	inBubble(t, logs, Options{}, func(t *testing.T, c *Coordinator) {
		l := logs.log(c.PartitionFor("g"))
		l.change(func() { l.lag = true })
		answered := make(chan CommitResult, 1)
		go func() { answered <- c.Commit(t.Context(), commitReq("g", 5)) }()
		synctest.Wait()
		if len(answered) != 0 || committed(t, c, "g") != -1 {
			t.Fatal("a commit above the high watermark was answered or seen")
		}
		fs, _ := c.Fetch("g", []FetchTopic{{"t", []int32{0}}}, true)
		if !fs[0].Unstable {
			t.Errorf("stable fetch while a commit is written: %+v", fs)
		}
		l.commit()
		if r := <-answered; r.Err != nil {
			t.Fatal(r.Err)
		}
		if got := committed(t, c, "g"); got != 5 {
			t.Errorf("offset %d, want 5", got)
		}
	})
}

func TestCommitTimesOutButItsOutcomeIsNotForgotten(t *testing.T) {
	logs := newMemLogs()
	inBubble(t, logs, Options{}, func(t *testing.T, c *Coordinator) {
		l := logs.log(c.PartitionFor("g"))
		l.change(func() { l.lag = true })
		begun := time.Now()
		if r := c.Commit(t.Context(), commitReq("g", 5)); !errors.Is(r.Err, ErrNotAvailable) || time.Since(begun) != 5*time.Second {
			t.Fatalf("after %v: %v", time.Since(begun), r.Err)
		}
		l.commit()
		synctest.Wait()
		if got := committed(t, c, "g"); got != 5 {
			t.Errorf("offset %d, want 5: the log has it", got)
		}
	})
}

func TestCommitsThatGatherAreWrittenTogether(t *testing.T) {
	logs := newMemLogs()
	inBubble(t, logs, Options{}, func(t *testing.T, c *Coordinator) {
		l := logs.log(c.PartitionFor("g"))
		l.change(func() { l.lag = true })
		var all sync.WaitGroup
		all.Go(func() { mustCommit(t, c, commitReq("g", 1)) })
		synctest.Wait()
		for i := range 20 {
			all.Go(func() { mustCommit(t, c, commitReq("g", int64(i+2))) })
			synctest.Wait()
		}
		l.change(func() { l.lag, l.hw = false, int64(len(l.entries)) })
		all.Wait()
		if l.appends != 2 {
			t.Errorf("%d appends, want 2", l.appends)
		}
		if got := committed(t, c, "g"); got != 21 {
			t.Errorf("offset %d, want that of the last, 21", got)
		}
	})
}

func TestNothingIsServedBeforeTheLogOfTheElectionIsCommitted(t *testing.T) {
	logs := newMemLogs()
	synctest.Test(t, func(t *testing.T) {
		run(t, logs, Options{}, func(c *Coordinator) {
			mustCommit(t, c, commitReq("g", 5))
		})
		// A new leader whose log has one commit more, above its high watermark.
		p := PartitionFor("g", 4)
		l := logs.log(p)
		r, _ := offsetRecord("g", Offset{Topic: "t", Offset: 6, LeaderEpoch: -1, ExpireMs: -1})
		l.change(func() { l.lag = true })
		if _, err := l.Append(0, []Record{r}); err != nil {
			t.Fatal(err)
		}
		run(t, logs, Options{}, func(c *Coordinator) {
			if _, err := c.Fetch("g", nil, false); !errors.Is(err, ErrLoading) {
				t.Errorf("fetch: %v, want loading", err)
			}
			if res := c.Commit(t.Context(), commitReq("g", 7)); !errors.Is(res.Err, ErrLoading) {
				t.Errorf("commit: %v, want loading", res.Err)
			}
			if _, err := c.List(); !errors.Is(err, ErrLoading) {
				t.Errorf("list: %v, want loading", err)
			}
			other := "g2"
			for PartitionFor(other, 4) == p {
				other += "x"
			}
			mustCommit(t, c, commitReq(other, 1)) // others are served
			l.commit()
			synctest.Wait()
			if got := committed(t, c, "g"); got != 6 {
				t.Errorf("offset %d, want 6", got)
			}
		})
	})
}

func TestLosingThePartitionAnswersAllWhoWait(t *testing.T) {
	logs := newMemLogs()
	inBubble(t, logs, Options{}, func(t *testing.T, c *Coordinator) {
		p := c.PartitionFor("g")
		l := logs.log(p)
		c.Join(t.Context(), joinReq("g", ""))
		l.change(func() { l.lag = true })
		joined, done := make(chan JoinResult, 1), make(chan CommitResult, 1)
		go func() { joined <- c.Join(t.Context(), joinReq("g", "")) }()
		go func() { done <- c.Commit(t.Context(), commitReq("g", 5)) }()
		synctest.Wait()
		c.Resign(p)
		if r := <-joined; !errors.Is(r.Err, ErrNotCoordinator) {
			t.Errorf("join: %v", r.Err)
		}
		if r := <-done; r.Err == nil {
			t.Error("commit was answered without error")
		}
		if _, err := c.Describe("g"); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("describe: %v", err)
		}
		c.Lead(p, 2)
		l.commit()
		synctest.Wait()
		if d, err := c.Describe("g"); err != nil && !errors.Is(err, ErrGroupNotFound) {
			t.Errorf("led again: %+v, %v", d, err)
		}
	})
}

func TestWriteOfUnknownOutcomeLoadsAgain(t *testing.T) {
	logs := newMemLogs()
	inBubble(t, logs, Options{}, func(t *testing.T, c *Coordinator) {
		l := logs.log(c.PartitionFor("g"))
		mustCommit(t, c, commitReq("g", 4))
		l.change(func() { l.lag, l.wait = true, errors.New("disk") })
		if r := c.Commit(t.Context(), commitReq("g", 5)); !errors.Is(r.Err, ErrNotCoordinator) {
			t.Fatalf("commit: %v", r.Err)
		}
		l.change(func() { l.lag, l.wait, l.hw = false, nil, int64(len(l.entries)) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := committed(t, c, "g"); got != 5 {
			t.Errorf("offset %d, want what the log has, 5", got)
		}
	})
}

func TestRefusedWriteIsReportedAndForgotten(t *testing.T) {
	logs := newMemLogs()
	inBubble(t, logs, Options{}, func(t *testing.T, c *Coordinator) {
		l := logs.log(c.PartitionFor("g"))
		mustCommit(t, c, commitReq("g", 4))
		l.change(func() { l.append = errors.New("not enough replicas") })
		if r := c.Commit(t.Context(), commitReq("g", 5)); !errors.Is(r.Err, ErrNotAvailable) {
			t.Fatalf("commit: %v", r.Err)
		}
		l.change(func() { l.append = nil })
		if got := committed(t, c, "g"); got != 4 {
			t.Errorf("offset %d, want 4", got)
		}
		mustCommit(t, c, commitReq("g", 6))
	})
}

func TestQueueIsBounded(t *testing.T) {
	logs := newMemLogs()
	inBubble(t, logs, Options{QueueBytes: 200}, func(t *testing.T, c *Coordinator) {
		l := logs.log(c.PartitionFor("g"))
		l.change(func() { l.lag = true })
		refused := 0
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			before := time.Now()
			r := c.Commit(ctx, commitReq("g", int64(i)))
			if errors.Is(r.Err, ErrNotAvailable) && time.Since(before) == 0 {
				refused++
			}
			cancel()
		}
		if refused < 15 {
			t.Errorf("%d of 20 commits refused", refused)
		}
		l.change(func() { l.lag, l.hw = false, int64(len(l.entries)) })
		synctest.Wait()
		mustCommit(t, c, commitReq("g", 99))
	})
}

func TestAskerThatGoesAwayIsForgotten(t *testing.T) {
	inBubble(t, newMemLogs(), Options{Config: Config{InitialDelayMs: 3000}}, func(t *testing.T, c *Coordinator) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := c.Join(ctx, joinReq("g", "")); !errors.Is(r.Err, ErrNotAvailable) {
			t.Fatalf("join: %+v", r)
		}
		s, _ := c.shardOf("g")
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.waiting) != 0 {
			t.Errorf("%d still wait", len(s.waiting))
		}
	})
}

// BUG-052, over the shell: retention runs by itself, and what it removed stays removed after a restart.
func TestOffsetsExpireAndDeletedGroupsStayDeleted(t *testing.T) {
	logs := newMemLogs()
	o := Options{Config: Config{RetentionMs: 60_000}, RetentionCheck: 5 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		run(t, logs, o, func(c *Coordinator) {
			mustCommit(t, c, commitReq("g4", 4))
			mustCommit(t, c, commitReq("g5", 5))
			if errs := c.DeleteGroups(t.Context(), []string{"g5", "none"}); errs[0] != nil || !errors.Is(errs[1], ErrGroupNotFound) {
				t.Fatalf("delete: %v", errs)
			}
			time.Sleep(59 * time.Second)
			if committed(t, c, "g4") != 4 {
				t.Error("g4 expired early")
			}
		})
		run(t, logs, o, func(c *Coordinator) {
			if _, err := c.Describe("g5"); !errors.Is(err, ErrGroupNotFound) || committed(t, c, "g5") != -1 {
				t.Errorf("g5 came back: %v", err)
			}
			if committed(t, c, "g4") != 4 {
				t.Error("g4 is gone after a restart")
			}
			time.Sleep(16 * time.Second)
			if committed(t, c, "g4") != -1 {
				t.Error("g4 has not expired")
			}
			if _, err := c.Describe("g4"); !errors.Is(err, ErrGroupNotFound) {
				t.Errorf("g4: %v", err)
			}
		})
	})
}

// BUG-040, over the shell: at once, also for a partition that is loaded after the deletion.
func TestOffsetsOfDeletedTopicsAreGoneAtOnce(t *testing.T) {
	logs := newMemLogs()
	gone := map[manifest.TopicID]bool{}
	o := Options{Deleted: func(id manifest.TopicID) bool { return gone[id] }}
	synctest.Test(t, func(t *testing.T) {
		run(t, logs, o, func(c *Coordinator) {
			mustCommit(t, c, commitReq("g", 10))
			c.TopicsDeleted([]DeletedTopic{{"t", manifest.TopicID{1}}})
			if got := committed(t, c, "g"); got != -1 {
				t.Errorf("straight after the deletion: %d", got)
			}
			if fs, _ := c.Fetch("g", nil, false); len(fs) != 0 {
				t.Errorf("all offsets straight after the deletion: %v", fs)
			}
			synctest.Wait()
			if got := committed(t, c, "g"); got != -1 {
				t.Errorf("later: %d", got)
			}
			again := commitReq("g", 3)
			again.Offsets[0].TopicID = manifest.TopicID{2}
			mustCommit(t, c, again)
			if got := committed(t, c, "g"); got != 3 {
				t.Errorf("of the new topic: %d, want 3", got)
			}
		})
		run(t, logs, o, func(c *Coordinator) {
			if got := committed(t, c, "g"); got != 3 {
				t.Errorf("after a restart: %d, want 3", got)
			}
		})
		gone[manifest.TopicID{2}] = true
		run(t, logs, o, func(c *Coordinator) {
			if got := committed(t, c, "g"); got != -1 {
				t.Errorf("deleted while nobody led the partition: %d", got)
			}
		})
	})
}

func TestTransactionalOffsetsCountFromTheirMarker(t *testing.T) {
	logs := newMemLogs()
	l := logs.log(PartitionFor("g", 4))
	add := func(e Entry) {
		e.Offset = int64(len(l.entries))
		l.entries = append(l.entries, e)
		l.hw++
	}
	rec := func(p int32, off int64) Record {
		r, _ := offsetRecord("g", Offset{Topic: "t", Partition: p, Offset: off, LeaderEpoch: -1, ExpireMs: -1})
		return r
	}
	for p := range int32(4) {
		add(Entry{Producer: -1, Record: rec(p, 100)})
	}
	add(Entry{Producer: 7, Record: rec(0, 200)}) // committed
	add(Entry{Producer: 8, Record: rec(1, 200)}) // aborted
	add(Entry{Producer: 9, Record: rec(2, 200)}) // open
	add(Entry{Producer: 7, Record: rec(3, 200)}) // committed, but a plain commit came after it
	add(Entry{Producer: -1, Record: rec(3, 300)})
	add(Entry{Producer: 7, Marker: CommitMarker})
	add(Entry{Producer: 8, Marker: AbortMarker})
	inBubble(t, logs, Options{}, func(t *testing.T, c *Coordinator) {
		fs, err := c.Fetch("g", []FetchTopic{{"t", []int32{0, 1, 2, 3}}}, true)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(fs[0].Offset.Offset, fs[1].Offset.Offset, fs[2].Unstable, fs[3].Offset.Offset)
		if got != "200 100 true 300" {
			t.Errorf("offsets %s", got)
		}
		if fs, _ = c.Fetch("g", []FetchTopic{{"t", []int32{2}}}, false); fs[0].Offset.Offset != 100 {
			t.Errorf("of an open transaction, not stable: %d, want 100", fs[0].Offset.Offset)
		}
	})
}

func TestCorruptRecordsArePassedOver(t *testing.T) {
	logs := newMemLogs()
	l := logs.log(PartitionFor("g", 4))
	good, _ := offsetRecord("g", Offset{Topic: "t", Offset: 1, LeaderEpoch: -1, ExpireMs: -1})
	for _, r := range []Record{good, {Key: good.Key, Value: []byte{0, 3, 1}}, {Key: []byte{0}}, {Key: appendGroupKey(nil, "g"), Value: []byte{0, 9}}} {
		l.entries = append(l.entries, Entry{Offset: l.hw, Producer: -1, Record: r})
		l.hw++
	}
	inBubble(t, logs, Options{}, func(t *testing.T, c *Coordinator) {
		if got := committed(t, c, "g"); got != 1 {
			t.Errorf("offset %d, want 1", got)
		}
	})
}

func TestLoadIsTriedUntilItSucceeds(t *testing.T) {
	logs := newMemLogs()
	l := logs.log(PartitionFor("g", 4))
	l.openErr = errors.New("not yet")
	inBubble(t, logs, Options{}, func(t *testing.T, c *Coordinator) {
		if _, err := c.Describe("g"); !errors.Is(err, ErrLoading) {
			t.Errorf("describe: %v", err)
		}
		time.Sleep(time.Minute)
		l.change(func() { l.openErr = nil })
		time.Sleep(10 * time.Second)
		mustCommit(t, c, commitReq("g", 1))
	})
}

// Partitions have their replicas on different brokers: where one that is in sync is away nothing is committed, for long maybe, and a
// partition that cannot be opened yet is tried again and again. The others are loaded meanwhile.
func TestPartitionsThatCannotBeLoadedYetKeepNoOthersFromIt(t *testing.T) {
	synctest.Test(t, partitionsThatCannotBeLoadedYet)
}

func partitionsThatCannotBeLoadedYet(t *testing.T) {
	logs := newMemLogs()
	for p := range int32(2) {
		logs.log(p).lag = true
		if _, err := logs.log(p).Append(0, []Record{{Key: []byte("k")}}); err != nil {
			t.Fatal(err)
		}
	}
	logs.log(1).wait = ErrNotAvailable
	logs.log(2).openErr = errors.New("not yet")
	run(t, logs, Options{Loaders: 2}, func(c *Coordinator) {
		served := func() (ps []int32) {
			for p := range int32(4) {
				if s := c.shards[p]; s.enter() == nil {
					s.mu.Unlock()
					ps = append(ps, p)
				}
			}
			return ps
		}
		time.Sleep(time.Minute)
		c.Lead(3, 2) // now that all others are at it
		time.Sleep(time.Minute)
		if ps := served(); !slices.Equal(ps, []int32{3}) {
			t.Errorf("partitions %v are served, want 3", ps)
		}
		logs.log(0).commit()
		logs.log(1).change(func() { logs.log(1).wait = nil })
		logs.log(1).commit()
		logs.log(2).change(func() { logs.log(2).openErr = nil })
		time.Sleep(time.Minute)
		if ps := served(); len(ps) != 4 {
			t.Errorf("partitions %v are served, want all", ps)
		}
	})
}

func TestAfterRunNothingIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *Coordinator
		run(t, newMemLogs(), Options{}, func(x *Coordinator) { c = x })
		if r := c.Join(t.Context(), joinReq("g", "")); !errors.Is(r.Err, ErrNotAvailable) {
			t.Errorf("join: %v", r.Err)
		}
		c.Lead(0, 5)
		if _, err := c.Describe("g"); !errors.Is(err, ErrNotAvailable) {
			t.Errorf("describe: %v", err)
		}
	})
}

func TestSessionsDoNotGoByTheClockThatPeopleSet(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		var ahead atomic.Int64
		wall := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		inBubble(t, newMemLogs(), Options{Wall: wall}, func(t *testing.T, c *Coordinator) {
			a := c.Join(t.Context(), joinReq("g", ""))
			if s := c.Sync(t.Context(), SyncRequest{Group: "g", Member: a.Member, Generation: 1, Assignments: []Assignment{{a.Member, []byte("x")}}}); s.Err != nil {
				t.Fatalf("sync: %+v", s)
			}
			ahead.Store(int64(by))
			c.poke()
			time.Sleep(9 * time.Second)
			if err := c.Heartbeat(HeartbeatRequest{Group: "g", Member: a.Member, Generation: 1}); err != nil {
				t.Fatalf("%s: heartbeat after 9 s: %v", by, err)
			}
			time.Sleep(11 * time.Second)
			synctest.Wait()
			if d, _ := c.Describe("g"); d.State != Empty {
				t.Fatalf("%s: 11 s after the last heartbeat: %+v", by, d)
			}
		})
	}
}

func TestCommitsAreStampedByTheClockThatPeopleRead(t *testing.T) {
	wall := func() time.Time { return time.Now().Add(-time.Hour) }
	inBubble(t, newMemLogs(), Options{Wall: wall}, func(t *testing.T, c *Coordinator) {
		mustCommit(t, c, commitReq("g", 7))
		s, err := c.shardOf("g")
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if got, want := s.core.groups["g"].offsets["t"][0].commitMs, wall().UnixMilli(); got != want {
			t.Fatalf("committed at %d, want %d", got, want)
		}
	})
}
