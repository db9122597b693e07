package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/record"

	"github.com/varvelog/varve/e2e/proc"
)

// stamped is n records of one partition with timestamps base, base+1 s, ... and values of about size bytes.
func stamped(topic string, base time.Time, n, size int) []*kgo.Record {
	recs := numbered(topic, 0, 0, n)
	for i, r := range recs {
		r.Timestamp = base.Add(time.Duration(i) * time.Second)
		r.Value = append(r.Value, make([]byte, size)...)
	}
	return recs
}

// raw bytes on the wire are as many as the test says.
func plain(t *testing.T, addr string) *client {
	return connect(t, addr, kgo.ProducerBatchCompression(kgo.NoCompression()))
}

// BUG-087.
func TestFutureTimestampsDoNotBlockRetentionWhereTheBrokersTimeCounts(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := plain(t, n.Listen)
	c.create("logappend", 1, "message.timestamp.type", "LogAppendTime", "retention.ms", "2000", "segment.bytes", "1048576", "archive.restore.window.ms", "0")
	c.write(stamped("logappend", time.Now().AddDate(10, 0, 0), 40, 100_000)...)
	c.untilTiered("logappend", 0, 30)
	proc.Until(t, 30*time.Second, "old segments expire", func() error {
		if o, _ := c.offset("logappend", 0, earliest); o < 20 {
			return fmt.Errorf("earliest is %d", o)
		}
		return nil
	})
	c.write(numbered("logappend", 0, 0, 1)...)
	proc.Until(t, 30*time.Second, "their objects are deleted", func() error {
		if left := n.objects("/s/"); len(left) > 3 {
			return fmt.Errorf("%d objects are left", len(left))
		}
		return nil
	})
}

// BUG-091.
func TestPastTimestampsExpireAndOffsetsGoOn(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("past", 1, "retention.ms", "604800000")
	c.write(&kgo.Record{Topic: "past", Timestamp: time.UnixMilli(100), Value: []byte("old")})
	for range 20 { // over some rounds of retention
		if o, _ := c.offset("past", 0, latest); o != 1 {
			t.Fatalf("latest is %d, want 1", o)
		}
		if o, _ := c.offset("past", 0, earliest); o > 1 {
			t.Fatalf("earliest is %d", o)
		}
		proc.Pause(50 * time.Millisecond)
	}
	r := &kgo.Record{Topic: "past", Value: []byte("new")}
	c.write(r)
	if r.Offset != 1 {
		t.Errorf("the next record has offset %d, want 1", r.Offset)
	}
	n.stop()
	n.start()
	if o, _ := c.offset("past", 0, latest); o != 2 {
		t.Errorf("latest is %d after a restart, want 2", o)
	}
}

// BUG-102.
func TestLocalRetentionMinus2MeansAsTheTotalOne(t *testing.T) {
	t.Parallel()
	const MiB = 1 << 20
	n := start(t)
	c := plain(t, n.Listen)
	c.create("sizes", 1, "retention.bytes", fmt.Sprint(5*MiB), "local.retention.bytes", "-2", "segment.bytes", fmt.Sprint(MiB))
	pad := make([]byte, 100_000)
	write := func() {
		for i := range 200 {
			c.write(&kgo.Record{Topic: "sizes", Key: fmt.Append(nil, i), Value: pad})
		}
	}
	local := func() int64 { return dirBytes(t, n, "sizes-0") }
	kept := func(kind int64) int64 {
		start, _ := c.offset("sizes", 0, kind)
		end, _ := c.offset("sizes", 0, latest)
		return (end - start) * 100_000
	}
	settled := func(what string, f func() int64) {
		t.Helper()
		proc.Until(t, 30*time.Second, what, func() error {
			if got := f(); got < 4*MiB || got > 7*MiB {
				return fmt.Errorf("%d MiB, want 5 to 6", got/MiB)
			}
			return nil
		})
	}
	write()
	settled("local data", func() int64 { return kept(earliestLocal) })
	settled("all data", func() int64 { return kept(earliest) })
	settled("files", local)

	err := c.tryAlter("sizes", "local.retention.bytes", fmt.Sprint(6*MiB))
	if !errors.Is(err, kerr.InvalidConfig) {
		t.Errorf("local.retention.bytes above retention.bytes: %v", err)
	}
	end, _ := c.offset("sizes", 0, latest)
	c.untilTiered("sizes", 0, end)
	c.alter("sizes", "local.retention.bytes", fmt.Sprint(MiB), "remote.log.copy.disable", "true")
	tiered, _ := c.offset("sizes", 0, latestTiered)
	write()
	settled("local data with copying off", func() int64 { return kept(earliestLocal) })
	if now, _ := c.offset("sizes", 0, latestTiered); now > tiered {
		t.Errorf("the archive grew from %d to %d although copying is off", tiered, now)
	}
	from, _ := c.offset("sizes", 0, earliest)
	end, _ = c.offset("sizes", 0, latest)
	dense(t, c.read("sizes")[0], from, end)
}

// BUG-048.
func TestTrimInsideASegmentThatWaitsForUpload(t *testing.T) {
	t.Parallel()
	p := startProxy(t)
	n := startS3(t, p.url("trim", "aws"))
	c := plain(t, n.Listen)
	c.create("trim", 1, tiering...)
	p.down()
	for i := range 100 { // ten records a batch, ten segments
		c.write(padded("trim", i*10, 10, 10_000)...)
	}
	if _, err := c.adm.DeleteRecords(c.ctx, kadm.Offsets{"trim": {0: {Topic: "trim", At: 455}}}); err != nil {
		t.Fatal(err)
	}
	p.up()
	c.untilTiered("trim", 0, 990)
	c.untilEvicted("trim", 0, 800)
	if o, _ := c.offset("trim", 0, earliest); o != 455 {
		t.Errorf("earliest is %d, want 455", o)
	}
	dense(t, c.read("trim")[0], 455, 1000)
	n.stop()
	n.start()
	if o, _ := c.offset("trim", 0, earliest); o != 455 {
		t.Errorf("earliest is %d after a restart, want 455", o)
	}
	dense(t, c.read("trim")[0], 455, 1000)
	want(t, verb(t, n.Env, "archive", "verify", "--repo", n.archive), 0)
}

// padded is numbered with values of about size bytes.
func padded(topic string, from, n, size int) []*kgo.Record {
	recs := numbered(topic, 0, from, n)
	for _, r := range recs {
		r.Value = append(append(r.Value, '-'), make([]byte, size)...)
	}
	return recs
}

// BUG-085, the short version.
func TestReadersMeetNothingButDataWhileTheLogMovesUnderThem(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := plain(t, n.Listen)
	c.create("moving", 1, "segment.bytes", "1048576", "local.retention.ms", "200", "retention.ms", "1000", "archive.restore.window.ms", "0")
	l := startLoadAt(t, n.Listen, "moving", 1, 5000, 1)
	l.more(200)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	var readers sync.WaitGroup
	for range 5 {
		readers.Go(func() { readInLoop(t, ctx, n.Listen, "moving") })
	}
	proc.Pause(5 * time.Second)
	begin, _ := c.offset("moving", 0, earliest)
	proc.Until(t, 30*time.Second, "records expire under the readers", func() error {
		if from, _ := c.offset("moving", 0, earliest); from == 0 || from == begin {
			return fmt.Errorf("earliest is %d", from)
		}
		return nil
	})
	cancel()
	readers.Wait()
	l.stop()
	want(t, varve(t, "archive", "verify", "--repo", n.archive), 0)
}

// readInLoop reads from the start to the end, again and again, until ctx ends.
func readInLoop(t *testing.T, ctx context.Context, addr, topic string) {
	for ctx.Err() == nil {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
			kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(100*time.Millisecond))
		if err != nil {
			t.Error(err)
			return
		}
		next, lastSeen := int64(-1), time.Now()
		for n := 0; n < 500 && ctx.Err() == nil; {
			f := cl.PollFetches(ctx)
			for _, e := range f.Errors() {
				if ctx.Err() == nil && !errors.Is(e.Err, kerr.OffsetOutOfRange) {
					t.Errorf("a reader met %v", e.Err)
				}
				n = 500
			}
			f.EachRecord(func(r *kgo.Record) {
				if next >= 0 && r.Offset != next || !bytes.Contains(r.Value[:min(len(r.Value), 12)], []byte("-")) {
					t.Errorf("a reader got offset %d after %d", r.Offset, next-1)
				}
				next = r.Offset + 1
				n++
				lastSeen = time.Now()
			})
			if stall := time.Since(lastSeen); stall > 10*time.Second {
				t.Errorf("a reader stood still for %s", stall)
				n = 500
			}
		}
		cl.Close()
	}
}

// BUG-039.
func TestMaxTimestampIsFoundInTheArchive(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := plain(t, n.Listen)
	c.create("newest", 1, append(slices.Clone(tiering), "retention.ms", "-1")...)
	for i := range 30 {
		r := &kgo.Record{Topic: "newest", Timestamp: time.UnixMilli(int64(1000 + i)), Value: make([]byte, 110_000)}
		if i == 1 {
			r.Timestamp = time.UnixMilli(9000)
		}
		c.write(r)
	}
	c.untilEvicted("newest", 0, 9)
	if o, ts := c.offset("newest", 0, maxTimestamp); o != 1 || ts != 9000 {
		t.Errorf("max timestamp: offset %d at %d, want 1 at 9000", o, ts)
	}
	if o, _ := c.offset("newest", 0, 1005); o != 1 {
		t.Errorf("first record from 1005 on: %d, want 1", o)
	}
	if o, _ := c.offset("newest", 0, 9001); o != -1 {
		t.Errorf("first record from 9001 on: %d, want -1", o)
	}
}

// BUG-015, the tiered part.
func TestListOffsetsOfATieredPartition(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := plain(t, n.Listen)
	c.create("tiered", 1, append(slices.Clone(tiering), "local.retention.bytes", "-2")...)
	for range 25 {
		c.write(&kgo.Record{Topic: "tiered", Value: make([]byte, 110_000)})
	}
	c.untilTiered("tiered", 0, 25)
	c.alter("tiered", "local.retention.bytes", "1", "remote.log.copy.disable", "false")
	c.untilEvicted("tiered", 0, 9)
	local, _ := c.offset("tiered", 0, earliestLocal)
	if local < 9 || local > 24 {
		t.Errorf("earliest local is %d", local)
	}
	for kind, want := range map[int64]int64{earliest: 0, latestTiered: 24, latest: 25} {
		if o, _ := c.offset("tiered", 0, kind); o != want {
			t.Errorf("ListOffsets %d: %d, want %d", kind, o, want)
		}
	}
	if _, _, err := c.tryOffset("tiered", 0, -99); err == nil {
		t.Errorf("ListOffsets -99 is answered")
	}
}

// The shape of BUG-014: a fetch at an offset that is not there goes on behind it, also in the archive.
func TestFetchInsideABatchAndAcrossArchivedSegments(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := plain(t, n.Listen)
	c.create("holes", 1, tiering...)
	for i := range 60 {
		c.write(padded("holes", i*5, 5, 12_000)...)
	}
	c.untilEvicted("holes", 0, 150)
	next := int64(0)
	for rounds := 0; next < 300; rounds++ {
		p, err := c.fetch("holes", 0, next)
		if err != nil || p.ErrorCode != 0 {
			t.Fatalf("fetch at %d: %+v, %v", next, p, err)
		}
		before := next
		for _, b := range c.batches(p.RecordBatches) {
			if b.NextOffset() <= before {
				t.Fatalf("fetch at %d gave a batch that ends before it", before)
			}
			next = b.NextOffset()
		}
		if next == before {
			t.Fatalf("fetch at %d is empty, the log ends at 300", before)
		}
		if rounds > 300 {
			t.Fatal("no progress")
		}
	}
	for _, off := range []int64{1, 4, 88, 147} { // inside a batch
		if r := c.one("holes", 0, off); r.Offset != off {
			t.Errorf("fetch at %d: offset %d", off, r.Offset)
		}
	}
}

// BUG-090.
func TestLeaderEpochOfProducedBatchesIsTheBrokers(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("epochs", 1)
	for range 2 {
		n.stop()
		n.start()
	}
	p := newRaw(c, "epochs", 0)
	for i, field := range []int32{-1, 0, 99} {
		b := record.Batch(p.build(int32(i*3), 3))
		b.SetLeaderEpoch(field)
		p.batch(b)
	}
	saramaWrite(t, n.Listen, "epochs", 0, 5, saramaConfig())
	topics, err := c.adm.ListTopics(c.ctx, "epochs")
	if err != nil {
		t.Fatal(err)
	}
	epoch := topics["epochs"].Partitions[0].LeaderEpoch
	if epoch < 2 {
		t.Errorf("leader epoch %d after two restarts", epoch)
	}
	f, err := c.fetch("epochs", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	count := int32(0)
	for _, b := range c.batches(f.RecordBatches) { // their checksums are right
		count += b.Count()
		if b.LeaderEpoch() != epoch {
			t.Errorf("a batch has leader epoch %d, want %d", b.LeaderEpoch(), epoch)
		}
	}
	if count != 14 {
		t.Errorf("%d records, want 14", count)
	}
}
