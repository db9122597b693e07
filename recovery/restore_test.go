package recovery

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
)

func TestLatestBringsAllBackUnderItsOffsets(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 2, "retention.ms", "-1")
		for range 5 {
			a.produce(topic, 0, 20)
			a.produce(topic, 1, 7)
			a.roll(topic, 0)
			a.pass(time.Minute)
		}
		b := a.restore("mem://b", latest())
		b.wantRange(a, "orders", 0, 0, 100)
		b.wantRange(a, "orders", 1, 0, 35)
		got := b.store.Image().Topics["orders"]
		if got.ID != topic.ID || got.Configs["retention.ms"] != "-1" || len(got.Partitions) != 2 {
			t.Fatalf("topic %+v", got)
		}
	})
}

func TestATimeBetweenTwoWritesHasTheFirstAndNotTheSecond(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		a.produce(topic, 0, 10)
		a.pass(3 * time.Second)
		at := now()
		a.pass(3 * time.Second)
		a.produce(topic, 0, 5)
		a.roll(topic, 0) // one object with both
		a.pass(time.Minute)
		b := a.restore("mem://b", atTime(at))
		b.wantRange(a, "orders", 0, 0, 10)
		b.produce(b.store.Image().Topics["orders"], 0, 4)
		b.pass(time.Minute)
		if got := b.values("orders", 0); len(got) != 14 || got[10] != b.value(topic, 0, 10) {
			t.Fatalf("after the restore: %d records, offset 10 is %q", len(got), got[10])
		}
	})
}

func TestAnOffsetInsideABatchCutsTheBatch(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		a.produce(topic, 0, 10)
		a.produce(topic, 0, 10)
		a.produce(topic, 0, 10)
		a.pass(time.Minute)
		for _, end := range []int64{0, 1, 10, 17, 20, 29, 30} {
			b := a.restore("mem://b"+string(rune('a'+end)), atOffsets(t, Offset(end)))
			b.wantRange(a, "orders", 0, 0, end)
			b.stop()
		}
		_, err := a.plan(atOffsets(t, "orders:0=31"))
		var target *TargetError
		if !errors.As(err, &target) || !strings.Contains(err.Error(), "[0, 30]") {
			t.Fatalf("offset 31: %v", err)
		}
	})
}

// Offset writes an offset target of the one topic.
func Offset(n int64) string { return OffsetPoint{Partition: -1, Offset: n}.String() }

func TestTheProducerStateAtACutIsThatOfTheCut(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		seq := int32(0)
		for range 6 {
			a.append(topic, 0, a.batch(topic, 0, 5, record.BatchOptions{ProducerID: 7, ProducerEpoch: 1, BaseSequence: seq}))
			seq += 5
			if seq == 15 {
				a.roll(topic, 0)
			}
		}
		a.pass(time.Minute)
		for _, cut := range []struct {
			end  int64
			last int32
		}{{15, 14}, {20, 19}, {22, 21}, {30, 29}} {
			url := "mem://b" + Offset(cut.end)
			b := a.restore(url, atOffsets(t, Offset(cut.end)))
			p := b.part(b.store.Image().Topics["orders"], 0)
			list := p.log.Producers()
			if len(list) != 1 || list[0].LastSequence != cut.last {
				t.Fatalf("cut at %d: producers %+v, want last sequence %d", cut.end, list, cut.last)
			}
			next := a.batch(topic, 0, 1, record.BatchOptions{ProducerID: 7, ProducerEpoch: 1, BaseSequence: cut.last + 1})
			if got, err := p.log.Append([]record.Batch{next}, p.epoch, localseg.OriginClient); err != nil || got.Duplicate || got.First != cut.end {
				t.Fatalf("cut at %d: the producer goes on: %+v, %v", cut.end, got, err)
			}
			// New producers get ids of their own.
			if id, err := b.store.AllocateProducerIDs(t.Context(), 1); err != nil || id <= 7 {
				t.Fatalf("producer id %d, %v", id, err)
			}
			b.stop()
		}
	})
}

func TestTransactionsThatAreOpenAtTheCutAreAborted(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		txn := func(id int64, seq int32) record.Batch {
			return a.batch(topic, 0, 5, record.BatchOptions{ProducerID: id, BaseSequence: seq, Transactional: true})
		}
		marker := func(id int64, commit bool) record.Batch {
			return record.BuildMarker(nil, id, 0, now(), record.Marker{Commit: commit})
		}
		a.produce(topic, 0, 5)              // 0-4
		a.append(topic, 0, txn(1, 0))       // 5-9
		a.append(topic, 0, marker(1, true)) // 10
		a.append(topic, 0, txn(2, 0))       // 11-15
		a.produce(topic, 0, 5)              // 16-20
		a.append(topic, 0, txn(2, 5))       // 21-25
		a.append(topic, 0, marker(2, true)) // 26
		a.pass(time.Minute)
		b := a.restore("mem://b", atOffsets(t, "23"))
		p := b.part(b.store.Image().Topics["orders"], 0)
		if p.log.LEO() != 24 || p.log.FirstUnstable() < 24 {
			t.Fatalf("the log goes on at %d, unstable from %d", p.log.LEO(), p.log.FirstUnstable())
		}
		aborted, err := p.tier.Aborted(t.Context(), 12, 13)
		if err != nil || len(aborted) != 1 || aborted[0].ProducerID != 2 || aborted[0].First != 11 || aborted[0].Last != 23 {
			t.Fatalf("aborted %+v, %v", aborted, err)
		}
		if aborted, err = p.tier.Aborted(t.Context(), 0, 11); err != nil || len(aborted) != 0 {
			t.Fatalf("aborted below the open transaction %+v, %v", aborted, err)
		}
		if got := b.values("orders", 0); len(got) != 22 {
			t.Fatalf("%d records, want 0-9 and 11-22", len(got))
		}
	})
}

// An object that is trimmed goes on to tell which transactions were aborted behind the cut. The restored topic has others there, of the same
// producers: readers of committed records would leave them out.
func TestTransactionsThatWereAbortedBehindTheCutAreNotThere(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		write := func(c *cluster, commit bool) {
			c.append(topic, 0, c.batch(topic, 0, 5, record.BatchOptions{ProducerID: 1, ProducerEpoch: 0, BaseSequence: 0, Transactional: true}))
			c.append(topic, 0, record.BuildMarker(nil, 1, 0, now(), record.Marker{Commit: commit}))
		}
		a.produce(topic, 0, 5) // 0-4
		a.produce(topic, 0, 5) // 5-9
		write(a, false)        // 10-15
		a.pass(time.Minute)
		b := a.restore("mem://b", atOffsets(t, "7"))
		b.produce(topic, 0, 3) // 7-9
		write(b, true)         // 10-15
		b.pass(time.Minute)
		p := b.part(topic, 0)
		if p.tier.Through() != 16 {
			t.Fatalf("archived through %d", p.tier.Through())
		}
		if aborted, err := p.tier.Aborted(t.Context(), 0, 16); err != nil || len(aborted) != 0 {
			t.Fatalf("aborted %+v, %v", aborted, err)
		}
		if aborted, err := a.part(topic, 0).tier.Aborted(t.Context(), 0, 16); err != nil || len(aborted) != 1 {
			t.Fatalf("aborted in the source %+v, %v", aborted, err)
		}
	})
}

// What was restored to a cut is restored to an earlier one. The object that the first cut has trimmed has at its end the producers of what came
// behind; a client that goes on would be told that its first batch is there already.
func TestProducersFromBehindACutAreNotThoseOfAnEarlierOne(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		by := func(id int64) record.Batch {
			return a.batch(topic, 0, 5, record.BatchOptions{ProducerID: id, BaseSequence: 0})
		}
		a.append(topic, 0, by(1)) // 0-4
		a.append(topic, 0, by(2)) // 5-9
		a.append(topic, 0, by(3)) // 10-14
		a.pass(time.Minute)
		b := a.restore("mem://b", atOffsets(t, "8"))
		b.pass(time.Minute)
		c := b.restore("mem://c", atOffsets(t, "6"))
		var got []int64
		for _, p := range c.part(topic, 0).log.Producers() {
			got = append(got, p.ID)
		}
		if !slices.Equal(got, []int64{1, 2}) {
			t.Fatalf("producers %v, want 1 and 2", got)
		}
	})
}

func TestLeaderEpochsGoOnAboveAllThatTheSourceHasSeen(t *testing.T) { // BUG-081
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		id := topic.Partitions[0].ID
		a.produce(topic, 0, 10)
		a.pass(time.Minute)
		first := a.parts[id].epoch
		a.parts[id].tier.Resign()
		old := a.parts[id]
		a.lead(topic, id)
		if a.parts[id].log.LEO() != old.log.LEO() {
			t.Fatal("the second leader does not go on from the archive")
		}
		a.produce(topic, 0, 10)
		a.pass(time.Minute)
		second := a.parts[id].epoch
		b := a.restore("mem://b", latest())
		p := b.parts[id]
		if p.epoch <= second {
			t.Fatalf("leader epoch %d after %d", p.epoch, second)
		}
		for _, c := range []struct {
			epoch int32
			end   int64
		}{{first, 10}, {second, 20}} {
			if _, end := p.log.EndOffset(c.epoch); end != c.end {
				t.Errorf("epoch %d ends at %d, want %d", c.epoch, end, c.end)
			}
		}
	})
}

func TestGapsKeepTheirNumbersAndAreTold(t *testing.T) { // BUG-043
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		p := a.part(topic, 0)
		a.produce(topic, 0, 100)
		a.roll(topic, 0)
		a.pass(time.Minute)
		p.hold.Store(100) // nothing more is archived
		a.produce(topic, 0, 100)
		a.roll(topic, 0)
		a.produce(topic, 0, 100)
		a.roll(topic, 0)
		a.lose(topic, 0, 200)
		p.hold.Store(-1)
		p.tier.Notify()
		a.pass(time.Minute)
		plan, err := a.plan(latest())
		if err != nil {
			t.Fatal(err)
		}
		gaps := plan.Topics[0].Partitions[0].Gaps
		if len(gaps) != 1 || gaps[0].From != 100 || gaps[0].To != 200 || !plan.HasGaps() {
			t.Fatalf("gaps %+v", gaps)
		}
		report, err := Verify(t.Context(), a.source(), VerifyOptions{Full: true})
		if err != nil || len(report.Findings) != 1 || report.Findings[0].Kind != GapFound || report.Findings[0].Place != "offsets [100, 200)" {
			t.Fatalf("verify: %+v, %v", report, err)
		}
		b := a.restore("mem://b", latest())
		got := b.values("orders", 0)
		if len(got) != 200 || got[99] == "" || got[150] != "" || got[200] != a.value(topic, 0, 200) || got[299] == "" {
			t.Fatalf("%d records", len(got))
		}
	})
}

// lose takes the head of the local log away before it is archived, as a fault in retention would.
func (c *cluster) lose(topic *meta.Topic, partition int, start int64) {
	c.t.Helper()
	log := c.part(topic, partition).log
	cfg := log.Config()
	cfg.LocalRetentionBytes = 1
	log.SetConfig(cfg)
	if _, err := log.Retain(now(), start); err != nil {
		c.t.Fatal(err)
	}
	if log.LocalStart() != start {
		c.t.Fatalf("the local log begins at %d, want %d", log.LocalStart(), start)
	}
}

func TestASecondRestoreTakesBothGenerationsAndNeverMixesThem(t *testing.T) { // BUG-024
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("a", 1)
		a.produce(topic, 0, 60)
		a.pass(3 * time.Second)
		at := now()
		a.pass(3 * time.Second)
		a.produce(topic, 0, 40)
		a.pass(time.Minute)
		b := a.restore("mem://b", atTime(at))
		b.pass(time.Minute)
		ta := b.store.Image().Topics["a"]
		b.produce(ta, 0, 20)
		tb := b.topic("b", 1)
		b.produce(tb, 0, 10)
		b.pass(time.Minute)

		c := b.restore("mem://c", latest())
		got := c.values("a", 0)
		if len(got) != 80 || got[59] != a.value(topic, 0, 59) || got[60] != b.value(ta, 0, 60) || got[79] != b.value(ta, 0, 79) {
			t.Fatalf("%d records; 59 is %q, 60 is %q", len(got), got[59], got[60])
		}
		c.wantRange(b, "b", 0, 0, 10)
		if len(c.store.Image().Attached) != 2 {
			t.Fatalf("attached %v: the third cluster reads the first two", c.store.Image().Attached)
		}
		d := a.restore("mem://d", latest())
		d.wantRange(a, "a", 0, 0, 100)
		for _, x := range []*cluster{a, b, c, d} {
			report, err := Verify(t.Context(), x.source(), VerifyOptions{Full: true})
			if err != nil || len(report.Findings) > 0 {
				t.Errorf("verify %s: %+v, %v", x.url, report, err)
			}
		}
	})
}

func TestWhatRetentionHasTakenSinceIsBack(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		for range 3 {
			a.produce(topic, 0, 10)
			a.roll(topic, 0)
			a.pass(time.Minute)
		}
		at := now()
		a.pass(time.Minute)
		p := a.part(topic, 0)
		if err := p.log.SetLogStart(20); err != nil {
			t.Fatal(err)
		}
		p.tier.DeleteBefore(20)
		a.pass(time.Minute)
		if m := p.tier.Manifest(); m.LogStart != 20 {
			t.Fatalf("log start %d", m.LogStart)
		}
		a.restore("mem://b", latest()).wantRange(a, "orders", 0, 20, 30)
		a.restore("mem://c", atTime(at)).wantRange(a, "orders", 0, 0, 30)
	})
}

func TestWhatExistedThenIsWhatComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		gone := a.topic("gone", 1)
		a.produce(gone, 0, 3)
		a.pass(time.Minute)
		a.drop(gone)
		a.pass(time.Minute)
		doomed := a.topic("doomed", 1, "retention.ms", "1000")
		kept := a.topic("kept", 1)
		a.produce(doomed, 0, 5)
		a.produce(kept, 0, 5)
		a.pass(time.Minute)
		at := now()
		a.pass(time.Minute)
		a.drop(doomed)
		later := a.topic("later", 1)
		a.produce(later, 0, 5)
		if err := a.store.AlterTopic(t.Context(), "kept", func(map[string]string) (map[string]string, error) { return map[string]string{"retention.ms": "5"}, nil }); err != nil {
			t.Fatal(err)
		}
		a.record(kept.ID)
		if err := a.store.CreatePartitions(t.Context(), "kept", [][]int32{{1}}); err != nil {
			t.Fatal(err)
		}
		a.record(kept.ID)
		a.pass(time.Minute)

		b := a.restore("mem://b", atTime(at))
		img := b.store.Image()
		if len(img.Topics) != 2 || img.Topics["doomed"] == nil || img.Topics["kept"] == nil {
			t.Fatalf("topics %v", img.Topics)
		}
		if img.Topics["doomed"].Configs["retention.ms"] != "1000" || len(img.Topics["kept"].Configs) > 0 || len(img.Topics["kept"].Partitions) != 1 {
			t.Fatal("metadata is not that of the time")
		}
		b.wantRange(a, "doomed", 0, 0, 5)

		c := a.restore("mem://c", latest())
		if img := c.store.Image(); len(img.Topics) != 2 || img.Topics["later"] == nil || len(img.Topics["kept"].Partitions) != 2 || img.Topics["kept"].Configs["retention.ms"] != "5" {
			t.Fatalf("latest: %v", img.Topics)
		}
		req := latest()
		req.Topics = []string{"doomed"}
		a.restore("mem://d", req).wantRange(a, "doomed", 0, 0, 5)
	})
}

func TestInternalTopicsComeBackWithTheWholeClusterOnly(t *testing.T) { // BUG-041, BUG-083
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		groups := a.topic("__consumer_offsets", 1, "cleanup.policy", "compact")
		topic := a.topic("orders", 1)
		a.produce(groups, 0, 4)
		a.produce(topic, 0, 4)
		a.pass(time.Minute)
		b := a.restore("mem://b", latest())
		b.wantRange(a, "__consumer_offsets", 0, 0, 4)
		if !b.store.Image().Topics["__consumer_offsets"].Internal {
			t.Fatal("it is not internal any more")
		}
		req := latest()
		req.Topics = []string{"*"}
		if c := a.restore("mem://c", req); len(c.store.Image().Topics) != 1 {
			t.Fatal("a glob matches an internal topic")
		}
		s, inv := a.source(), a.inventory()
		req.Topics = []string{"__consumer_offsets"}
		if _, err := Prepare(t.Context(), s, inv, req); !errors.Is(err, ErrRequest) {
			t.Fatalf("internal into a running cluster: %v", err)
		}
	})
}

func TestTheResultNamesTheGroupsThatAreBack(t *testing.T) { // BUG-041
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		groups := a.topic("__consumer_offsets", 1)
		commit := func(group string, value []byte) {
			key := append([]byte{0, 1, 0, byte(len(group))}, group...)
			b, err := record.Build(nil, record.BatchOptions{ProducerID: -1}, []record.Record{{Key: append(key, "\x00\x01t\x00\x00\x00\x00"...), Value: value}})
			if err != nil {
				t.Fatal(err)
			}
			a.append(groups, 0, b)
		}
		commit("g", []byte("x"))
		commit("gone", []byte("x"))
		commit("gone", nil)
		a.produce(groups, 0, 1) // of another kind
		a.pass(time.Minute)
		res, err := a.restoring("mem://b", latest()).Run(t.Context())
		if err != nil || len(res.Groups) != 1 || res.Groups[0] != "g" {
			t.Fatalf("%+v, %v", res, err)
		}
	})
}

func TestNamesAreLiteralUnlessTheyAreGlobs(t *testing.T) { // BUG-108
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		for _, name := range []string{"audit.events", "audit-events", "auditXevents"} {
			a.produce(a.topic(name, 1), 0, 3)
		}
		a.pass(time.Minute)
		for _, c := range []struct {
			patterns []string
			want     string
		}{
			{[]string{"audit.events"}, "audit.events"},
			{[]string{"audit?events"}, "audit-events audit.events auditXevents"},
			{[]string{"audit[XY]events"}, "auditXevents"},
			{[]string{"*.events", "auditX*"}, "audit.events auditXevents"},
		} {
			req := latest()
			req.Topics = c.patterns
			p, err := a.plan(req)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, x := range p.Topics {
				names = append(names, x.Name)
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("%v: %s, want %s", c.patterns, got, c.want)
			}
		}
		for _, none := range []string{"audit", "audit.event?x", "audit[events"} {
			req := latest()
			req.Topics = []string{"audit.events", none}
			if _, err := a.plan(req); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), none) {
				t.Errorf("%s: %v", none, err)
			}
		}
	})
}

func TestTheWindowIsWhatCanBeRestored(t *testing.T) { // BUG-022
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		if _, err := a.plan(latest()); err == nil {
			t.Fatal("a plan of nothing")
		}
		topic := a.topic("orders", 1)
		a.pass(time.Minute)
		first := now()
		a.produce(topic, 0, 5)
		a.pass(time.Minute)
		w := a.inventory().WindowOf(a.inventory().Topics)
		if w.From != first || w.To <= first || w.To > now() {
			t.Fatalf("window [%s, %s], first append %s, now %s", Stamp(w.From), Stamp(w.To), Stamp(first), Stamp(now()))
		}
		for _, ms := range []int64{w.From, w.To} {
			if _, err := a.plan(atTime(ms)); err != nil {
				t.Errorf("%s: %v", Stamp(ms), err)
			}
		}
		for _, ms := range []int64{w.From - 1, w.To + 1, now() + 3600_000} {
			_, err := a.plan(atTime(ms))
			var target *TargetError
			if !errors.As(err, &target) || !strings.Contains(err.Error(), Stamp(w.From)) || !strings.Contains(err.Error(), Stamp(w.To)) {
				t.Errorf("%s: %v", Stamp(ms), err)
			}
		}
		short := a.topic("short", 1, windowKey, "60000")
		a.produce(short, 0, 1)
		a.pass(10 * time.Minute)
		inv := a.inventory()
		if w = inv.WindowOf(inv.Topics[1:]); w.From < now()-62_000 || w.From > now()-58_000 {
			t.Fatalf("window begins %s, now %s", Stamp(w.From), Stamp(now()))
		}
		if w = inv.WindowOf(inv.Topics[:1]); w.From != first {
			t.Fatalf("the other topic's window begins %s", Stamp(w.From))
		}
	})
}

func TestAMarkWaitsForWhatIsNotArchived(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		a.produce(topic, 0, 5)
		a.pass(time.Minute)
		p := a.part(topic, 0)
		p.hold.Store(5)
		pending := now()
		a.produce(topic, 0, 5)
		a.pass(time.Hour)
		if to := a.inventory().Through(nil); to >= pending || to < pending-2000 {
			t.Fatalf("complete to %s, a record of %s waits", Stamp(to), Stamp(pending))
		}
		p.tier.Resign() // and a stop right then must not say that all is there
		a.stop()
		if to := a.inventory().Through(nil); to >= pending {
			t.Fatalf("complete to %s after the stop, a record of %s is lost", Stamp(to), Stamp(pending))
		}
	})
}

func TestALeaseIsTakenBeforeAnythingIsListed(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		a.produce(a.topic("orders", 1), 0, 5)
		a.pass(time.Minute)
		a.stop()
		if _, err := a.plan(latest()); err != nil { // a dry run
			t.Fatal(err)
		}
		if puts := a.bucket.Calls("put"); puts != a.bucket.Calls("put") {
			t.Fatal("a plan writes")
		}
		a.bucket.SetRules(failing("list", manifest.TopicsPrefix))
		r := a.restoring("mem://b", latest())
		if _, err := r.Run(t.Context()); err == nil {
			t.Fatal("it does not list")
		}
		if got := keys(t, a.bucket, manifest.LeasePrefix); len(got) != 0 {
			t.Fatalf("leases %v stay after a restore that made nothing", got)
		}
		a.bucket.SetRules(failing("put", manifest.LeasePrefix))
		lists := a.bucket.Calls("list")
		if _, err := r.Run(t.Context()); err == nil || a.bucket.Calls("list") > lists+2 { // incarnations, attached archives
			t.Fatalf("%v, %d listings without a lease", err, a.bucket.Calls("list")-lists)
		}
		a.bucket.SetRules()
		if _, err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := keys(t, a.bucket, manifest.LeasePrefix); len(got) != 1 {
			t.Fatalf("leases %v", got)
		}
	})
}
