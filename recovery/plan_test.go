package recovery

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/varvelog/varve/manifest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares the JSON of v, without what is random in it.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct{ pattern, with string }{
		{`"(archive|cluster|id)": "[^"]+"`, `"$1": "..."`},
	} {
		b = regexp.MustCompile(r.pattern).ReplaceAll(b, []byte(r.with))
	}
	b = append(b, '\n')
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != string(want) {
		t.Errorf("%s is\n%s", path, b)
	}
}

func TestPlanAndInfoDocuments(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 2, "retention.ms", "86400000")
		gone := a.topic("gone", 1)
		a.produce(topic, 0, 10)
		a.produce(gone, 0, 5)
		a.pass(2 * time.Minute)
		at := now()
		a.pass(2 * time.Minute)
		a.drop(gone)
		a.produce(topic, 0, 10)
		a.roll(topic, 0)
		a.topic("later", 1)
		a.pass(2 * time.Minute)
		a.stop()
		req := atTime(at)
		plan, err := a.plan(req)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "plan-time", plan)
		req = latest()
		req.Topics, req.Rename = []string{"orders", "later"}, Rename{Map: map[string]string{"orders": "o2"}, Suffix: ".restored"}
		if plan, err = a.plan(req); err != nil {
			t.Fatal(err)
		}
		golden(t, "plan-latest", plan)
		golden(t, "info", a.inventory().Describe(nil))
	})
}

func TestRenamesThatCollideAreRefused(t *testing.T) {
	topics := []TopicPlan{{Source: "a", Name: "x"}, {Source: "b", Name: "b.r"}}
	for _, c := range []struct {
		rename Rename
		ok     bool
	}{
		{Rename{Map: map[string]string{"a": "x"}, Suffix: ".r"}, true},
		{Rename{Map: map[string]string{"a": "b.r"}, Suffix: ".r"}, false},
		{Rename{Map: map[string]string{"a": "x", "c": "y"}, Suffix: ".r"}, false},
		{Rename{Map: map[string]string{"a": "x/y"}, Suffix: ".r"}, false},
		{Rename{Map: map[string]string{"a": ".."}, Suffix: ".r"}, false},
	} {
		for i := range topics {
			topics[i].Name = c.rename.name(topics[i].Source)
		}
		if err := checkNames(topics, c.rename); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.rename, err)
		}
	}
}

func TestAnInventoryCostsTheSameHoweverManySegmentsThereAre(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		cost := func() int {
			before := a.bucket.Calls("list") + a.bucket.Calls("get") + a.bucket.Calls("head")
			a.inventory()
			return a.bucket.Calls("list") + a.bucket.Calls("get") + a.bucket.Calls("head") - before
		}
		a.produce(topic, 0, 1)
		a.roll(topic, 0)
		a.pass(time.Minute)
		few := cost()
		for range 300 {
			a.produce(topic, 0, 1)
			a.roll(topic, 0)
			a.pass(2 * time.Second)
		}
		a.pass(10 * time.Minute)
		if len(keys(t, a.bucket, manifest.SegmentPrefix(topic.Partitions[0].ID))) < 300 {
			t.Fatal("few segments")
		}
		a.stop()
		if many := cost(); many > few {
			t.Fatalf("%d requests for 301 segments, %d for one", many, few)
		}
	})
}

func TestManySegmentsComeBackInGroups(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		for range 700 {
			a.produce(topic, 0, 1)
			a.roll(topic, 0)
			a.pass(250 * time.Millisecond)
		}
		a.pass(time.Minute)
		b := a.restore("mem://b", atOffsets(t, "650"))
		b.wantRange(a, "orders", 0, 0, 650)
		if m := b.part(b.store.Image().Topics["orders"], 0).tier.Manifest(); len(m.Groups) == 0 {
			t.Fatalf("%d entries in the manifest itself", len(m.Entries))
		}
	})
}

func TestTheEndOfAPartitionAtATime(t *testing.T) {
	entry := func(base, end, first, last int64) manifest.Entry {
		p := manifest.PartitionID{Topic: manifest.TopicID{1}}
		return manifest.Entry{Base: base, End: end, Object: manifest.SegmentKey(p, base, end-1, 1, 1), SizeBytes: 10, DataBytes: 5, FirstAppend: first, LastAppend: last}
	}
	gap := manifest.Gap{From: 20, To: 30, Reason: manifest.RecordsDeleted, Time: 5000}
	tip := &manifest.Manifest{Time: 9000, LogStart: 5, Through: 30, Gaps: []manifest.Gap{gap}}
	entries := []manifest.Entry{entry(0, 10, 1000, 2000), entry(10, 20, 3000, 4000)}
	entries[0].State, entries[0].Reason, entries[0].DeadAt = manifest.Dead, manifest.RetentionTime, 6000
	for _, c := range []struct{ at, start, end int64 }{
		{999, 0, 0}, {2000, 0, 10}, {2999, 0, 10}, {4000, 0, 20}, {4999, 0, 20}, {5000, 0, 30}, {6000, 10, 30}, {9000, 5, 30},
	} {
		start, end, err := cutAt(tip, entries, c.at, nil)
		if err != nil || start != c.start || end != c.end {
			t.Errorf("at %d: [%d, %d), %v, want [%d, %d)", c.at, start, end, err, c.start, c.end)
		}
	}
}
