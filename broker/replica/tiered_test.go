package replica

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/record"
)

// evicted waits until the archive has all of p but the active segment, and the disk no more than that.
func evicted(t testing.TB, p *Partition) {
	t.Helper()
	until(t, "archived and evicted", func() bool {
		segs := p.Log().Segments()
		return p.Archive() != nil && p.Archive().Through() == p.HighWatermark() && len(segs) <= 1 && p.Log().LocalStart() > 0
	})
}

func TestArchivedRecordsAreReadAsIfTheyWereLocal(t *testing.T) {
	b := tieredCluster(t).start()
	b.topic("t", 1)
	p := b.leader("t", 0)
	fill(t, p, 1000)
	evicted(t, p)
	if _, err := p.ReadHot(0, 4096, ReadUncommitted); !isBelow(err) {
		t.Fatalf("read below the local log: %v", err)
	}
	if n := readAll(t, p, 0); n != 1000 {
		t.Fatalf("%d records, want 1000", n)
	}
	if n := readAll(t, p, 505); n != 495 {
		t.Fatalf("%d records from 505", n)
	}
	s, err := p.ReadCold(t.Context(), 0, 1, ReadUncommitted)
	if err != nil || s.Size == 0 || s.LogStart != 0 || s.HighWatermark != 1000 || s.Aborted != nil {
		t.Fatalf("%+v, %v", s, err)
	}
	s.Release()
	for _, off := range []int64{-1, 1001} {
		if _, err := p.ReadCold(t.Context(), off, 1, ReadUncommitted); !errors.Is(err, localseg.ErrOffsetOutOfRange) {
			t.Fatalf("offset %d: %v", off, err)
		}
	}
}

func TestOffsetsAreFoundInBothTiers(t *testing.T) { // BUG-015 (tiered), BUG-039
	c := tieredCluster(t)
	b := c.start()
	b.topic("t", 1)
	p := b.leader("t", 0)
	ts := []int64{1000, 9000, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009}
	if _, err := p.Append([]record.Batch{one(t, 0, ts...)}, localseg.OriginClient, true); err != nil {
		t.Fatal(err)
	}
	fill(t, p, 990)
	evicted(t, p)
	local := p.Log().LocalStart()
	for _, tc := range []struct {
		name       string
		ts, off, t int64
	}{
		{"earliest", Earliest, 0, -1},
		{"earliest local", EarliestLocal, local, -1},
		{"latest tiered", LatestTiered, 999, -1},
		{"earliest not tiered", EarliestUntiered, 1000, -1},
		{"latest", Latest, 1000, -1},
		{"max timestamp, archived only", MaxTimestamp, 1, 9000},
		{"below all", 0, 0, 1000},
		{"archived", 1003, 1, 9000},
		{"above all", 9001, -1, -1},
	} {
		got, err := p.OffsetFor(t.Context(), tc.ts, ReadUncommitted)
		if err != nil || got.Offset != tc.off || got.Timestamp != tc.t {
			t.Errorf("%s: %+v, %v, want offset %d timestamp %d", tc.name, got, err, tc.off, tc.t)
		}
	}
	// The log start inside an archived segment hides what lies below it.
	if start, err := p.DeleteRecords(15); err != nil || start != 15 {
		t.Fatalf("delete records: %d, %v", start, err)
	}
	for _, tc := range []struct{ ts, off int64 }{{Earliest, 15}, {0, 15}, {1003, 15}, {1020, 20}, {1500, 500}} {
		got, err := p.OffsetFor(t.Context(), tc.ts, ReadUncommitted)
		if err != nil || got.Offset != tc.off {
			t.Errorf("after DeleteRecords(15), timestamp %d: %+v, %v, want %d", tc.ts, got, err, tc.off)
		}
	}
	if n := readAll(t, p, 15); n != 985 {
		t.Fatalf("%d records from 15, want 985", n)
	}
	if _, err := p.ReadCold(t.Context(), 14, 1, ReadUncommitted); !errors.Is(err, localseg.ErrOffsetOutOfRange) {
		t.Fatalf("below the log start: %v", err)
	}
}

func TestAbortedTransactionsAreFoundAcrossTheTiers(t *testing.T) { // BUG-002
	b := tieredCluster(t).start()
	b.topic("t", 1)
	p := b.leader("t", 0)
	put := func(batch record.Batch, from localseg.Origin) {
		t.Helper()
		if _, err := p.Append([]record.Batch{batch}, from, true); err != nil {
			t.Fatal(err)
		}
	}
	txn, err := record.Build(nil, record.BatchOptions{ProducerID: 7, Transactional: true}, []record.Record{{Timestamp: 1, Value: []byte("value 0")}})
	if err != nil {
		t.Fatal(err)
	}
	put(txn, localseg.OriginClient) // 0
	for range 20 {
		put(one(t, p.LEO(), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), localseg.OriginClient) // 1..200, several segments
	}
	if lso := p.LastStable(); lso != 0 {
		t.Fatalf("last stable offset %d with an open transaction at 0", lso)
	}
	if p.Archive() != nil && p.Archive().Through() > 0 {
		t.Fatal("an undecided transaction was archived")
	}
	put(record.BuildMarker(nil, 7, 0, 1, record.Marker{}), localseg.OriginInternal) // 201
	for range 20 {
		put(one(t, p.LEO(), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), localseg.OriginClient)
	}
	evicted(t, p)
	for off := int64(0); off < 200; off += 50 {
		s, err := p.ReadCold(t.Context(), off, 1<<20, ReadCommitted)
		if err != nil {
			t.Fatal(err)
		}
		if off == 0 && (len(s.Aborted) != 1 || s.Aborted[0].ProducerID != 7 || s.Aborted[0].First != 0) {
			t.Fatalf("aborted at 0: %+v", s.Aborted)
		}
		if s.Aborted == nil {
			t.Fatalf("aborted at %d is null for a reader of committed records", off)
		}
		s.Release()
	}
}

func TestReadersNeverSeeTheLocalCopyGo(t *testing.T) { // BUG-085
	b := tieredCluster(t).start()
	b.topic("t", 1)
	p := b.leader("t", 0)
	fill(t, p, 100)
	var stop atomic.Bool
	var g sync.WaitGroup
	for range 2 {
		g.Go(func() {
			for ; !stop.Load(); time.Sleep(time.Millisecond) {
				for off := int64(0); off < p.HighWatermark(); {
					recs, next, err := read(p, off)
					if err != nil || next <= off || len(recs) == 0 || recs[0].Offset != off {
						t.Errorf("at %d: %d records, next %d, %v", off, len(recs), next, err)
						return
					}
					off = next
				}
			}
		})
	}
	for range 12 {
		fill(t, p, 100)
		time.Sleep(10 * time.Millisecond) // real time: uploads and retention run meanwhile
	}
	stop.Store(true)
	g.Wait()
	evicted(t, p)
}

func TestLostDiskStartsFromTheArchive(t *testing.T) {
	c := tieredCluster(t)
	b := c.start()
	b.topic("t", 1)
	p := b.leader("t", 0)
	epoch := p.LeaderEpoch()
	idempotent := func(seq int32) record.Batch {
		now := time.Now().UnixMilli() // a producer of long ago is forgotten
		raw, err := record.Build(nil, record.BatchOptions{ProducerID: 9, BaseSequence: seq}, []record.Record{{Timestamp: now, Value: []byte("value 0")}})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if _, err := p.Append([]record.Batch{idempotent(0)}, localseg.OriginClient, true); err != nil {
		t.Fatal(err)
	}
	for p.LEO() < 501 {
		if _, err := p.Append([]record.Batch{one(t, p.LEO(), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)}, localseg.OriginClient, true); err != nil {
			t.Fatal(err)
		}
	}
	evicted(t, p)
	b.stop(false)
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	faulty := fault.New(c.bucket, fault.Options{Rules: []fault.Rule{{Op: fault.Get, Effect: fault.Fail, Err: objstore.ErrUnavailable, From: 2}}})
	below := c.bucket
	c.bucket = faulty
	b = c.start()
	// The archive cannot be read: an error that clients repeat, never an empty log.
	if _, err := b.m.Leader(TopicPartition{Topic: "t"}); !errors.Is(err, ErrArchive) {
		t.Fatalf("while the archive is away: %v", err)
	}
	faulty.SetRules()
	until(t, "the log starts from the archive", func() bool {
		_, err := b.m.Leader(TopicPartition{Topic: "t"})
		return err == nil
	})
	p = b.leader("t", 0)
	if p.LEO() != 501 || p.LogStart() != 0 || p.HighWatermark() != 501 {
		t.Fatalf("log [%d, %d), high watermark %d, want [0, 501)", p.LogStart(), p.LEO(), p.HighWatermark())
	}
	if n := readAll(t, p, 1); n != 500 {
		t.Fatalf("%d records, want 500", n)
	}
	if e, end := p.EndOffsetForEpoch(epoch); e != epoch || end != 501 {
		t.Fatalf("end of epoch %d: (%d, %d)", epoch, e, end)
	}
	if done, err := p.Append([]record.Batch{idempotent(0)}, localseg.OriginClient, true); err != nil || !done.Duplicate || done.First != 0 {
		t.Fatalf("duplicate of before: %+v, %v", done, err)
	}
	if done, err := p.Append([]record.Batch{idempotent(1)}, localseg.OriginClient, true); err != nil || done.First != 501 {
		t.Fatalf("next sequence: %+v, %v", done, err)
	}
	c.bucket = below
}

// Who is to lead a log that is in the archive alone may lose the leadership before it could read the archive. Then it follows, or is
// elected again.
func TestALogThatIsToStartFromTheArchiveIsOfUseAfterAnotherElection(t *testing.T) {
	for _, again := range []bool{true, false} {
		c := tieredCluster(t)
		b := c.start()
		topic := b.topic("t", 1)
		p := b.leader("t", 0)
		fill(t, p, 500)
		evicted(t, p)
		b.stop(false)
		if err := os.RemoveAll(c.dir); err != nil {
			t.Fatal(err)
		}
		faulty := fault.New(c.bucket, fault.Options{Rules: []fault.Rule{{Op: fault.Get, Effect: fault.Fail, Err: objstore.ErrUnavailable, From: 2}}})
		c.bucket = faulty
		b = c.start()
		until(t, "the log waits for the archive", func() bool {
			_, err := b.m.Leader(TopicPartition{Topic: "t"})
			return errors.Is(err, ErrArchive)
		})
		id := topic.Partitions[0].ID
		elect := func(leader int32) {
			t.Helper()
			if err := b.store.Elect(t.Context(), []meta.Election{{ID: id, Leader: leader, ISR: []int32{leader}}}); err != nil {
				t.Fatal(err)
			}
		}
		elect(2)
		until(t, "the log can be followed", func() bool {
			p := b.m.All()
			return len(p) == 1 && p[0].ready.Load() && p[0].following.Load() && !p[0].restarting.Load()
		})
		faulty.SetRules()
		if again {
			elect(1)
			until(t, "the log starts from the archive", func() bool {
				_, err := b.m.Leader(TopicPartition{Topic: "t"})
				return err == nil
			})
			until(t, "all of it can be read", func() bool { p := b.leader("t", 0); return p.Archive() != nil && p.HighWatermark() == 500 })
			if n := readAll(t, b.leader("t", 0), 0); n != 500 {
				t.Fatalf("%d records, want 500", n)
			}
		}
		b.stop(false)
	}
}

// A broker comes back with an older disk. The log there ends above archived-through, but in records that were lost with a machine, and that
// the archive has others for.
func TestAnOlderDiskIsNotServedBeforeItIsComparedWithTheArchive(t *testing.T) {
	for _, is := range []struct{ older, intact bool }{{true, false}, {false, false}, {true, true}} {
		older := is.older
		c := tieredCluster(t)
		faulty := fault.New(c.bucket, fault.Options{})
		c.bucket = faulty
		away := fault.Rule{Effect: fault.Fail, Err: objstore.ErrUnavailable, Prefix: "t/"}
		b := c.start()
		b.topic("t", 1)
		p := b.leader("t", 0)
		fill(t, p, 100)
		until(t, "all is archived", func() bool { return p.Archive() != nil && p.Archive().Through() == 100 })
		faulty.SetRules(away)
		b.stop(false)
		short, long := t.TempDir()+"/short", t.TempDir()+"/long"
		keep := func(dir string) {
			t.Helper()
			if err := os.CopyFS(dir, os.DirFS(c.dir)); err != nil {
				t.Fatal(err)
			}
		}
		keep(short)
		b = c.start() // while the store is away: nobody else has written to the archive
		p = b.leader("t", 0)
		fill(t, p, 20)
		b.stop(false)
		keep(long)
		faulty.SetRules()
		home := c.dir
		c.dir = short
		b = c.start()
		p = b.leader("t", 0)
		if p.LEO() != 100 {
			t.Fatalf("the log ends at %d", p.LEO())
		}
		fill(t, p, 10)
		until(t, "all is archived again", func() bool { return p.Archive() != nil && p.Archive().Through() == 110 })
		b.stop(false)

		faulty.SetRules(away)
		if older {
			c.dir = long
		}
		c.intact = is.intact
		b = c.start()
		p = b.leader("t", 0)
		if is.intact { // it is believed, also if it is said of a disk of which it is not true
			if _, err := p.Append([]record.Batch{one(t, p.LEO(), 1)}, localseg.OriginClient, true); err != nil {
				t.Fatalf("known to be whole, while the archive is away: %v", err)
			}
			b.stop(false)
			continue
		}
		_, err := p.Append([]record.Batch{one(t, p.LEO(), 1)}, localseg.OriginClient, true)
		_, rerr := p.ReadHot(105, 1000, ReadUncommitted)
		if older && (!errors.Is(err, ErrNotAvailable) || !errors.Is(rerr, ErrNotAvailable)) || !older && (err != nil || rerr != nil) {
			t.Fatalf("older disk %t, while the archive is away: append says %v, a read %v", older, err, rerr)
		}
		faulty.SetRules()
		end := int64(111)
		if older {
			end = 110
		}
		until(t, "it serves what is archived", func() bool {
			_, err := p.OffsetFor(t.Context(), Latest, ReadUncommitted)
			return err == nil && p.HighWatermark() == end && p.Archive() != nil
		})
		if n := readAll(t, p, 0); int64(n) != end {
			t.Fatalf("%d records, want %d", n, end)
		}
		b.stop(false)
		c.dir = home
	}
}

func TestProduceIsRefusedWhileTheArchiveIsFarBehind(t *testing.T) {
	c := tieredCluster(t)
	c.limit = 20_000
	faulty := fault.New(c.bucket, fault.Options{})
	c.bucket = faulty
	b := c.start()
	b.topic("t", 1)
	p := b.leader("t", 0)
	fill(t, p, 10)
	until(t, "the archive is led", func() bool { return p.Archive() != nil })
	faulty.SetRules(fault.Rule{Op: fault.Put, Effect: fault.Fail, Err: objstore.ErrUnavailable})
	var err error
	for range 2000 {
		if _, err = p.Append([]record.Batch{one(t, p.LEO(), 1, 2, 3)}, localseg.OriginClient, true); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrArchiveBehind) {
		t.Fatalf("err = %v, want ErrArchiveBehind", err)
	}
	leo := p.LEO()
	if n := readAll(t, p, 0); int64(n) != leo {
		t.Fatalf("%d of %d records can be read", n, leo)
	}
	faulty.SetRules()
	until(t, "produce goes on", func() bool {
		_, err := p.Append([]record.Batch{one(t, leo, 1)}, localseg.OriginClient, true)
		return err == nil
	})
	if n := readAll(t, p, 0); int64(n) != leo+1 {
		t.Fatalf("%d records, want %d", n, leo+1)
	}
}

func TestCleanStopArchivesTheTail(t *testing.T) {
	c := tieredCluster(t)
	b := c.start()
	topic := b.topic("t", 1)
	fill(t, b.leader("t", 0), 100)
	b.stop(true)
	store := c.start().store
	got, err := store.GetPartition(context.Background(), topic.Partitions[0].ID)
	if err != nil || got.Pointer.Through != 100 {
		t.Fatalf("archived through %d, %v, want 100", got.Pointer.Through, err)
	}
}

func TestUndeletedTopicHasWhatWasAcknowledged(t *testing.T) {
	c := tieredCluster(t)
	b := c.start()
	topic := b.topic("t", 1)
	p := b.leader("t", 0)
	fill(t, p, 100)
	until(t, "the archive is led", func() bool { return p.Archive() != nil })
	fill(t, p, 100)
	if err := b.store.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	until(t, "the partition is gone", func() bool {
		_, err := os.Stat(c.dir + "/t-0")
		return os.IsNotExist(err)
	})
	if err := b.store.UndeleteTopic(t.Context(), topic.ID); err != nil {
		t.Fatal(err)
	}
	until(t, "the log starts from the archive", func() bool {
		_, err := b.m.Leader(TopicPartition{Topic: "t"})
		return err == nil
	})
	if p := b.leader("t", 0); p.LEO() != 200 || readAll(t, p, 0) != 200 {
		t.Fatalf("LEO %d, want 200", p.LEO())
	}
}
