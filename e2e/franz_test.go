package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/digest"

	"github.com/varvelog/varve/e2e/proc"
)

func TestFranzReadsWhatItWroteWithEveryCodec(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	for name, codec := range codecs {
		for _, idempotent := range []bool{true, false} {
			topic := fmt.Sprintf("%s-%v", name, idempotent)
			c.create(topic, 2)
			opts := []kgo.Opt{kgo.ProducerBatchCompression(codec)}
			if !idempotent {
				opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
			}
			w := connect(t, n.Listen, opts...)
			want := digest.New()
			for round := range 3 {
				recs := numbered(topic, int32(round%2), round*40, 40)
				for i, r := range recs {
					r.Key, r.Value = []byte{byte(i)}, append(r.Value, make([]byte, 500)...)
					r.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte(topic)}}
				}
				w.write(recs...)
				for _, r := range recs {
					want.Add(r)
				}
			}
			c.same(topic, want)
		}
	}
}

// groupRead reads n records as a member of the group, commits and leaves.
func groupRead(t *testing.T, addr, topic, group string, n int) (offsets []int64) {
	t.Helper()
	c := connect(t, addr, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	var recs []*kgo.Record
	for len(recs) < n {
		f := c.PollRecords(ctx, n-len(recs))
		if err := f.Err(); err != nil {
			t.Fatalf("group %s: %v after %d of %d records", group, err, len(recs), n)
		}
		recs = append(recs, f.Records()...)
	}
	if err := c.CommitRecords(ctx, recs...); err != nil {
		t.Fatalf("commit: %v", err)
	}
	c.Close()
	for _, r := range recs {
		offsets = append(offsets, r.Offset)
	}
	return offsets
}

func TestFranzGroupGoesOnWhereItCommitted(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("jobs", 1)
	c.write(numbered("jobs", 0, 0, 100)...)
	first := groupRead(t, n.Listen, "jobs", "workers", 40)
	second := groupRead(t, n.Listen, "jobs", "workers", 60)
	for i, o := range append(first, second...) {
		if o != int64(i) {
			t.Fatalf("record %d of the group has offset %d", i, o)
		}
	}
	// Through a clean stop and through a crash.
	n.stop()
	n.start()
	c.write(numbered("jobs", 0, 100, 10)...)
	if got := groupRead(t, n.Listen, "jobs", "workers", 10); got[0] != 100 {
		t.Fatalf("after a restart the group goes on at %d, want 100", got[0])
	}
	n.Kill()
	n.start()
	c.write(numbered("jobs", 0, 110, 10)...)
	if got := groupRead(t, n.Listen, "jobs", "workers", 10); got[0] != 110 {
		t.Fatalf("after a crash the group goes on at %d, want 110", got[0])
	}
	lags, err := c.adm.Lag(c.ctx, "workers")
	if err != nil {
		t.Fatal(err)
	}
	if l := lags["workers"]; l.Error() != nil || l.Lag.Total() != 0 {
		t.Fatalf("lag of the group: %d, %v", l.Lag.Total(), l.Error())
	}
}

func TestFranzTwoMembersShareThePartitions(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("shared", 4)
	opts := []kgo.Opt{kgo.ConsumerGroup("pair"), kgo.ConsumeTopics("shared"), kgo.HeartbeatInterval(100 * time.Millisecond)}
	a, b := connect(t, n.Listen, opts...), connect(t, n.Listen, opts...)
	seen := make(chan string, 1000)
	for name, m := range map[string]*client{"a": a, "b": b} {
		go func() {
			for {
				f := m.PollFetches(m.ctx)
				if f.IsClientClosed() || m.ctx.Err() != nil {
					return
				}
				f.EachRecord(func(*kgo.Record) { seen <- name })
			}
		}()
	}
	proc.Until(t, 30*time.Second, "the group is stable with two members", func() error {
		groups, err := c.adm.DescribeGroups(c.ctx, "pair")
		if err != nil {
			return err
		}
		if g := groups["pair"]; g.State != "Stable" || len(g.Members) != 2 {
			return fmt.Errorf("state %s, %d members", g.State, len(g.Members))
		}
		return nil
	})
	for p := range int32(4) {
		c.write(numbered("shared", p, 0, 10)...)
	}
	got := map[string]int{}
	for range 40 {
		select {
		case who := <-seen:
			got[who]++
		case <-time.After(30 * time.Second):
			t.Fatalf("after 30 s: %v, want 20 and 20", got)
		}
	}
	if got["a"] != 20 || got["b"] != 20 {
		t.Fatalf("got %v, want 20 and 20", got)
	}
}

func TestFranzListsOffsetsByTime(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("times", 1)
	base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	recs := numbered("times", 0, 0, 20)
	for i, r := range recs {
		r.Timestamp = base.Add(time.Duration(i) * time.Second)
	}
	c.write(recs[:10]...)
	c.write(recs[10:]...)
	for _, x := range []struct {
		after time.Duration
		want  int64
	}{{-time.Second, 0}, {0, 0}, {500 * time.Millisecond, 1}, {9 * time.Second, 9}, {9*time.Second + 1, 10}, {19 * time.Second, 19}} {
		at := base.Add(x.after + 999_999).UnixMilli() // rounded up, as the records have whole ms
		l, err := c.adm.ListOffsetsAfterMilli(c.ctx, at, "times")
		if o, _ := l.Lookup("times", 0); err != nil || o.Err != nil || o.Offset != x.want {
			t.Errorf("first record from base%+v: %+v, %v, want offset %d", x.after, o, err, x.want)
		}
	}
	if o, ts := c.offset("times", 0, base.Add(20*time.Second).UnixMilli()); o != -1 || ts != -1 {
		t.Errorf("after the last record: offset %d at %d, want -1 at -1", o, ts)
	}
}

func TestFranzAdmin(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen, kgo.ProducerBatchCompression(kgo.NoCompression()))
	c.create("a", 3, "retention.ms", "1000000")
	if _, err := c.adm.CreateTopic(c.ctx, 3, 1, nil, "a"); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("create twice: %v", err)
	}
	config := func(key string) string {
		t.Helper()
		rs, err := c.adm.DescribeTopicConfigs(c.ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		r, err := rs.On("a", nil)
		if err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		for _, k := range r.Configs {
			if k.Key == key {
				return k.Source.String() + " " + k.MaybeValue()
			}
		}
		return "none"
	}
	if got := config("retention.ms"); got != "DYNAMIC_TOPIC_CONFIG 1000000" {
		t.Errorf("retention.ms is %s", got)
	}
	c.alter("a", "retention.ms", "2000000", "max.message.bytes", "5000")
	if got := config("retention.ms"); got != "DYNAMIC_TOPIC_CONFIG 2000000" {
		t.Errorf("retention.ms is %s after it was altered", got)
	}
	if err := c.ProduceSync(c.ctx, &kgo.Record{Topic: "a", Value: make([]byte, 6000)}).FirstErr(); !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("a record above max.message.bytes: %v", err)
	}
	if _, err := c.adm.AlterTopicConfigs(c.ctx, []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "retention.ms"}}, "a"); err != nil {
		t.Fatal(err)
	}
	if got := config("retention.ms"); got != "DEFAULT_CONFIG 604800000" {
		t.Errorf("retention.ms is %s after its deletion", got)
	}
	if rs, err := c.adm.UpdatePartitions(c.ctx, 5, "a"); err != nil || rs.Error() != nil {
		t.Errorf("more partitions: %v %v", err, rs.Error())
	}
	connect(t, n.Listen).write(numbered("a", 4, 0, 10)...)
	if _, err := c.adm.DeleteRecords(c.ctx, kadm.Offsets{"a": {4: {Topic: "a", Partition: 4, At: 7}}}); err != nil {
		t.Fatal(err)
	}
	if o, _ := c.offset("a", 4, earliest); o != 7 {
		t.Errorf("earliest is %d after DeleteRecords below 7", o)
	}
	if _, err := c.adm.DeleteTopic(c.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	topics, err := c.adm.ListTopics(c.ctx)
	if err != nil || topics.Has("a") {
		t.Errorf("topics after the deletion: %v, %v", topics.Names(), err)
	}
}
