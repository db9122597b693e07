package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/proc"
	"github.com/varvelog/varve/record"
)

// moment is a time between two writes, as far after the one before as append times are exact.
func moment() time.Time {
	proc.Pause(record.AppendResolutionMs * time.Millisecond)
	at := time.Now()
	proc.Pause(2 * time.Millisecond)
	return at
}

func rfc(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// info is what the tests read of `archive info --output json`.
type info struct {
	Window struct{ From, To *time.Time }
	Topics []struct {
		Name    string
		ID      string
		Deleted *time.Time
		Detail  []struct{ Partition, Start, Through int64 }
	}
}

func (n *node) info() (i info) {
	n.t.Helper()
	r := want(n.t, verb(n.t, n.Env, "archive", "info", "--repo", n.archive, "--output", "json"), 0)
	if err := json.Unmarshal([]byte(r.Stdout), &i); err != nil {
		n.t.Fatalf("archive info: %v\n%s", err, r.Stdout)
	}
	return i
}

// untilRestorable waits until the archive is complete up to a time.
func (n *node) untilRestorable(at time.Time) {
	n.t.Helper()
	proc.Until(n.t, 30*time.Second, "the archive is complete up to "+rfc(at), func() error {
		w := n.info().Window
		if w.To == nil || w.To.Before(at) {
			return fmt.Errorf("it is up to %v", w.To)
		}
		return nil
	})
}

// restore runs the verb on the node's archive.
func (n *node) restore(code int, args ...string) proc.Result {
	n.t.Helper()
	return want(n.t, verb(n.t, n.Env, append([]string{"restore", "--repo", n.archive}, args...)...), code)
}

// restoreFresh makes a new cluster's directory and starts it.
func (n *node) restoreFresh(args ...string) *node {
	n.t.Helper()
	dir := filepath.Join(n.t.TempDir(), "restored")
	n.restore(0, append(args, "--data-dir", dir)...)
	fresh := prepareIn(n.t, dir)
	fresh.Env = n.Env
	fresh.start()
	return fresh
}

func TestRestoreIntoTheRunningCluster(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("orders", 2, append(slices.Clone(tiering), "max.message.bytes", "1234567")...)
	good := c.fill("orders", 2, 4000, 1000)
	at := moment()
	c.write(numbered("orders", 0, 0, 100)...)
	all := c.digest("orders")
	n.untilRestorable(moment())

	n.restore(0, "--type", "time", "--target", rfc(at), "--topic", "orders", "--into", n.Listen)
	c.same("orders.restored", good)
	n.restore(0, "--type", "latest", "--topic", "orders", "--into", n.Listen, "--to-suffix", ".all")
	c.same("orders.all", all)
	n.restore(0, "--type", "time", "--target", rfc(at), "--topic", "orders", "--into", n.Listen, "--map", "orders=elsewhere")
	c.same("elsewhere", good)
	n.restore(0, "--type", "offset", "--target", "orders:0=1234,orders:1=0", "--topic", "orders", "--into", n.Listen, "--to-suffix", ".at")
	recs := c.read("orders.at")
	dense(t, recs[0], 0, 1234)
	dense(t, recs[1], 0, 0)
	c.same("orders", all) // the source is as before

	rs, err := c.adm.DescribeTopicConfigs(c.ctx, "orders.restored")
	if err != nil || !slices.Contains(configsOf(rs[0]), "max.message.bytes=1234567") {
		t.Errorf("configs of the restored topic: %v, %v", rs, err)
	}
	// It is a topic like any other: written, evicted, read again.
	c.write(&kgo.Record{Topic: "orders.restored", Value: []byte("next")})
	if o, _ := c.offset("orders.restored", 0, latest); o != 2001 {
		t.Errorf("latest is %d after one more record, want 2001", o)
	}
	n.stop()
	n.start()
	dense(t, c.read("orders.restored")[0], 0, 2001)
	want(t, varve(t, "archive", "verify", "--repo", n.archive), 0)
}

func TestRestoreTwiceIntoTheSameClusterWritesNothingTwice(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	for _, p := range []int32{1, 3, 6} { // BUG-006
		topic := fmt.Sprintf("parts-%d", p)
		c.create(topic, p)
		for i := range 50 {
			c.write(numbered(topic, int32(i)%p, i, 1)...)
		}
	}
	n.untilRestorable(moment())
	args := []string{"--type", "latest", "--topic", "parts-1", "--topic", "parts-3", "--topic", "parts-6", "--into", n.Listen}
	killed := n.killRestore(args...)
	n.restore(0, args...)
	again := n.restore(0, args...)
	if !strings.Contains(again.Stderr, "already restored") {
		t.Errorf("the third run does not say that all was there: %s", again.Stderr)
	}
	for _, p := range []int32{1, 3, 6} {
		total := 0
		for _, recs := range c.read(fmt.Sprintf("parts-%d.restored", p)) {
			dense(t, recs, 0, int64(len(recs)))
			total += len(recs)
		}
		if total != 50 {
			t.Errorf("topic of %d partitions has %d records, want 50 (killed: %v)", p, total, killed)
		}
	}
}

// killRestore runs the verb some times and kills it, each time later; it returns after how long.
func (n *node) killRestore(args ...string) (after []time.Duration) {
	n.t.Helper()
	for d := 40 * time.Millisecond; d < 300*time.Millisecond; d += 65 * time.Millisecond {
		ended, err := proc.RunAndKill(d, bin, n.Env, append([]string{"restore", "--repo", n.archive}, args...)...)
		if err != nil {
			n.t.Fatal(err)
		}
		if ended {
			break
		}
		after = append(after, d)
	}
	return after
}

func TestRestoreIntoANewClusterFromTheArchiveAlone(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	id := c.create("orders", 3, append(slices.Clone(tiering), "retention.ms", "987654321")...)
	epochs := map[int32]int32{}
	n.stop() // leader changes
	n.start()
	n.stop()
	n.start()
	good := c.fill("orders", 3, 3000, 1000)
	// BUG-041: a group that has read 25, 15 and 20 records.
	commits := kadm.Offsets{}
	for p, o := range map[int32]int64{0: 25, 1: 15, 2: 20} {
		commits.Add(kadm.Offset{Topic: "orders", Partition: p, At: o, LeaderEpoch: 0, Metadata: "m"})
	}
	if err := c.adm.CommitAllOffsets(c.ctx, "readers", commits); err != nil {
		t.Fatal(err)
	}
	at := moment()
	c.write(numbered("orders", 1, 0, 10)...)
	commits.Add(kadm.Offset{Topic: "orders", Partition: 0, At: 900})
	if err := c.adm.CommitAllOffsets(c.ctx, "readers", commits); err != nil {
		t.Fatal(err)
	}
	c.create("later", 1)
	topics, err := c.adm.ListTopics(c.ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	for p, d := range topics["orders"].Partitions {
		epochs[p] = d.LeaderEpoch
	}
	n.untilRestorable(moment())

	fresh := n.restoreFresh("--type", "time", "--target", rfc(at)) // the source lives on
	n.stop()
	f := connect(t, fresh.Listen)
	f.same("orders", good)
	topics, err = f.adm.ListTopics(f.ctx)
	if err != nil || topics["orders"].ID != id || topics.Has("later") {
		t.Fatalf("topics of the new cluster: %v, %v", topics, err)
	}
	for p, d := range topics["orders"].Partitions {
		if d.LeaderEpoch <= epochs[p] {
			t.Errorf("partition %d: leader epoch %d, the source had %d: clients would take it for stale", p, d.LeaderEpoch, epochs[p])
		}
	}
	rs, err := f.adm.DescribeTopicConfigs(f.ctx, "orders")
	if err != nil || !slices.Contains(configsOf(rs[0]), "retention.ms=987654321") {
		t.Errorf("configs: %v, %v", rs, err)
	}
	got, err := f.adm.FetchOffsets(f.ctx, "readers")
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[int32]int64{0: 25, 1: 15, 2: 20} {
		if o, _ := got.Lookup("orders", p); o.At != want || o.Metadata != "m" {
			t.Errorf("group offset of partition %d is %d %q, want %d", p, o.At, o.Metadata, want)
		}
	}
	f.write(&kgo.Record{Topic: "orders", Partition: 1, Value: []byte("next")})
	recs := f.read("orders")[1]
	dense(t, recs, 0, 1001)
	fresh.stop()
	fresh.start()
	dense(t, f.read("orders")[1], 0, 1001)
	want(t, varve(t, "archive", "verify", "--repo", n.archive), 0)
	want(t, varve(t, "archive", "verify", "--repo", fresh.archive), 0)
}

func TestRestoreFromS3IntoANewCluster(t *testing.T) {
	t.Parallel()
	n := startS3(t, s3Server(t).URL("restore", "aws"))
	c := connect(t, n.Listen)
	c.create("a", 1, tiering...)
	d := c.fill("a", 1, 3000, 1000)
	at := moment()
	c.write(numbered("a", 0, 0, 10)...)
	n.untilRestorable(moment())
	fresh := n.restoreFresh("--type", "time", "--target", rfc(at))
	connect(t, fresh.Listen).same("a", d)
	n.restore(0, "--type", "time", "--target", rfc(at), "--into", n.Listen)
	c.same("a.restored", d)
}

// BUG-006, into a directory.
func TestRestoreKilledInTheMiddleIsDoneAgain(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("a", 6)
	for p := range int32(6) {
		c.write(numbered("a", p, 0, 50)...)
	}
	n.untilRestorable(moment())
	dir := filepath.Join(t.TempDir(), "new")
	args := []string{"--type", "offset", "--target", "a:0=50,a:1=40,a:2=30,a:3=20,a:4=10,a:5=0", "--topic", "a", "--data-dir", dir}
	killed := n.killRestore(args...)
	if r := verb(t, nil, append([]string{"restore", "--repo", n.archive}, args...)...); r.Code != 0 && !strings.Contains(r.Stderr, "already restored") {
		t.Fatalf("again, after kills at %v: exit code %d\n%s", killed, r.Code, r.Stderr)
	}
	if r := n.restore(1, args...); !strings.Contains(r.Stderr, "already restored") {
		t.Errorf("after success: %s", r.Stderr)
	}
	fresh := prepareIn(t, dir)
	fresh.start()
	f := connect(t, fresh.Listen)
	got := f.read("a")
	for p := range int32(6) {
		dense(t, got[p], 0, int64(50-10*p))
	}
	if r := n.restore(1, args...); strings.Contains(r.Stderr, "panic") { // now it is in use
		t.Error(r.Stderr)
	}
}

// BUG-022.
// A restore asks the brokers that have left a mark: one without any would not be asked for what it takes before its first.
func TestMarkIsThereBeforeTheFirstRecord(t *testing.T) {
	t.Parallel()
	n := start(t, "archive.max.lag.ms=3600000")
	if marks := n.objects("/mark/"); len(marks) != 1 {
		t.Errorf("a broker that has just become ready has left %d marks: %q", len(marks), marks)
	}
}

func TestRestoreOutsideTheWindowIsRefusedAndNamesIt(t *testing.T) {
	t.Parallel()
	n := start(t)
	before := moment()
	c := connect(t, n.Listen)
	c.create("a", 1)
	proc.Pause(5 * time.Millisecond)
	c.write(numbered("a", 0, 0, 10)...)
	after := moment()
	n.untilRestorable(after)
	w := n.info().Window
	if w.From.Before(before) || w.From.After(after) {
		t.Errorf("the window begins at %s, the first record was between %s and %s", w.From, rfc(before), rfc(after))
	}
	for name, x := range map[string]struct {
		target string
		code   int
	}{
		"before the first record": {rfc(w.From.Add(-time.Second)), 3},
		"an hour after the last":  {rfc(time.Now().Add(time.Hour)), 3},
		"tomorrow":                {rfc(time.Now().Add(24 * time.Hour)), 3},
		"a time without zone":     {time.Now().Format("2006-01-02T15:04:05"), 2},
	} {
		for _, where := range [][]string{{"--into", n.Listen}, {"--data-dir", filepath.Join(t.TempDir(), "d")}, {"--dry-run"}} {
			r := n.restore(x.code, append([]string{"--type", "time", "--target", x.target}, where...)...)
			if !strings.Contains(r.Stderr, w.From.UTC().Format("2006-01-02T15:04:05")) {
				t.Errorf("%s %v: the window is not named: %s", name, where, r.Stderr)
			}
		}
	}
	topics, err := c.adm.ListTopics(c.ctx)
	if err != nil || len(topics) != 1 {
		t.Errorf("topics after the refusals: %v, %v", topics.Names(), err)
	}
	n.restore(0, "--type", "time", "--target", rfc(*w.From), "--into", n.Listen) // the edge works
	if got := c.read("a.restored")[0]; len(got) > 10 {                           // the first append, to the resolution of append times
		t.Errorf("as of the window's begin there are %d records", len(got))
	}
}

func TestRestoreUsageErrorsAndDryRunsChangeNothing(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("a", 1)
	c.write(numbered("a", 0, 0, 10)...)
	n.untilRestorable(moment())
	dir, full := filepath.Join(t.TempDir(), "d"), t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		code int
		args []string
	}{
		{2, []string{"--type", "latest"}},
		{2, []string{"--type", "latest", "--into", n.Listen, "--data-dir", dir}},
		{2, []string{"--type", "newest", "--into", n.Listen}},
		{2, []string{"--type", "time", "--into", n.Listen}},
		{2, []string{"--type", "time", "--target", "yesterday", "--into", n.Listen}},
		{2, []string{"--type", "offset", "--target", "a:0=x", "--into", n.Listen}},
		{2, []string{"--type", "latest", "--topic", "nope", "--into", n.Listen}},
		{2, []string{"--type", "latest", "--topic", "nope*", "--into", n.Listen}},
		{2, []string{"--no-such-flag"}},
		{3, []string{"--type", "offset", "--target", "a:0=11", "--into", n.Listen}},
		{1, []string{"--type", "latest", "--topic", "a", "--map", "a=a", "--into", n.Listen}},
		{2, []string{"--type", "latest", "--data-dir", n.Dir}}, // the archive lies in it
		{1, []string{"--type", "latest", "--data-dir", full}},
		{0, []string{"--type", "latest", "--into", n.Listen, "--dry-run"}},
		{0, []string{"--type", "latest", "--data-dir", dir, "--dry-run"}},
	} {
		if r := verb(t, nil, append([]string{"restore", "--repo", n.archive}, x.args...)...); r.Code != x.code || r.Stderr == "" {
			t.Errorf("restore %q: exit code %d, want %d: %s", x.args, r.Code, x.code, r.Stderr)
		}
	}
	if r := verb(t, nil, "restore", "--repo", "file://"+t.TempDir(), "--type", "latest", "--data-dir", dir); r.Code != 1 || !strings.Contains(r.Stderr, "empty") {
		t.Errorf("an empty bucket: exit code %d, %s", r.Code, r.Stderr)
	}
	plan := n.restore(0, "--type", "latest", "--into", n.Listen, "--dry-run", "--output", "json")
	var doc struct {
		Topics []struct {
			Source, Name string
			Partitions   []struct{ End int64 }
		}
	}
	if err := json.Unmarshal([]byte(plan.Stdout), &doc); err != nil || len(doc.Topics) != 1 || doc.Topics[0].Name != "a.restored" || doc.Topics[0].Partitions[0].End != 10 {
		t.Errorf("the plan as JSON: %v, %+v", err, doc)
	}
	if made, err := filepath.Glob(dir); err != nil || len(made) > 0 {
		t.Errorf("a directory was made: %v", made)
	}
	if leases := varve(t, "archive", "ls", "--repo", n.archive, "lease/"); strings.TrimSpace(leases.Stdout) != "" {
		t.Errorf("leases were left: %s", leases.Stdout)
	}
	if topics, err := c.adm.ListTopics(c.ctx); err != nil || len(topics) != 1 {
		t.Errorf("topics: %v, %v", topics.Names(), err)
	}
}

func TestRestoreBringsADeletedTopicBack(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	id := c.create("gone", 2, tiering...)
	d := c.fill("gone", 2, 3000, 1000)
	at := moment()
	n.untilRestorable(at)
	remove := func() {
		t.Helper()
		want(t, varve(t, "topic", "delete", "gone", "--bootstrap", n.Listen), 0)
	}
	remove()
	n.untilRestorable(moment())
	n.restore(0, "--type", "time", "--target", rfc(at), "--topic", "gone", "--into", n.Listen)
	c.same("gone.restored", d)
	found := false
	for _, x := range n.info().Topics {
		found = found || x.Name == "gone" && x.Deleted != nil
	}
	if !found {
		t.Errorf("archive info does not show the deleted topic: %+v", n.info().Topics)
	}
	want(t, varve(t, "topic", "undelete", "gone", "--bootstrap", n.Listen), 0)
	c.same("gone", d)
	topics, err := c.adm.ListTopics(c.ctx)
	if err != nil || topics["gone"].ID != id {
		t.Errorf("the undeleted topic has the id %s, %v; it was %s", topics["gone"].ID, err, id)
	}
	c.write(numbered("gone", 0, 0, 10)...)
	remove()
	c.create("gone", 1) // another one of the name, which a client that knows the first would not write to
	connect(t, n.Listen).write(numbered("gone", 0, 0, 3)...)
	n.untilRestorable(moment())
	n.restore(0, "--type", "time", "--target", rfc(at), "--topic", "gone", "--into", n.Listen, "--to-suffix", ".first")
	c.same("gone.first", d)
	n.restore(0, "--type", "latest", "--topic", "gone", "--into", n.Listen, "--to-suffix", ".second")
	dense(t, c.read("gone.second")[0], 0, 3)
}

func TestRestoreBringsExpiredRecordsBack(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("short", 1, append(slices.Clone(tiering), "retention.bytes", "-1")...)
	d := c.fill("short", 1, 4000, 1000)
	at := moment()
	n.untilRestorable(at)
	c.alter("short", "retention.bytes", "1000000")
	proc.Until(t, 30*time.Second, "retention deletes", func() error {
		if o, _ := c.offset("short", 0, earliest); o < 1000 {
			return fmt.Errorf("earliest is %d", o)
		}
		return nil
	})
	n.untilRestorable(moment())
	n.restore(0, "--type", "time", "--target", rfc(at), "--into", n.Listen)
	c.same("short.restored", d)
	fresh := n.restoreFresh("--type", "time", "--target", rfc(at))
	connect(t, fresh.Listen).same("short", d)
}

// BUG-024.
func TestRestoreOfARestoredCluster(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("a", 1)
	c.write(numbered("a", 0, 0, 60)...)
	at := moment()
	c.write(numbered("a", 0, 60, 40)...)
	n.untilRestorable(moment())
	second := n.restoreFresh("--type", "time", "--target", rfc(at))
	c2 := connect(t, second.Listen)
	dense(t, c2.read("a")[0], 0, 60)
	c2.write(numbered("a", 0, 1000, 20)...)
	c2.create("b", 1)
	c2.write(numbered("b", 0, 0, 10)...)
	second.untilRestorable(moment())
	third := second.restoreFresh("--type", "latest")
	c3 := connect(t, third.Listen)
	recs := c3.read("a")[0]
	dense(t, recs, 0, 80)
	for i, r := range recs {
		want := fmt.Sprint(i)
		if i >= 60 {
			want = fmt.Sprint(940 + i)
		}
		if string(r.Value) != want {
			t.Fatalf("offset %d of the third cluster is %q, want %q", i, r.Value, want)
		}
	}
	dense(t, c3.read("b")[0], 0, 10)
	again := n.restoreFresh("--type", "latest")
	recs = connect(t, again.Listen).read("a")[0]
	dense(t, recs, 0, 100)
	if string(recs[99].Value) != "99" {
		t.Errorf("offset 99 of the first history is %q", recs[99].Value)
	}
}

// BUG-108.
func TestRestoreTakesNamesLiterally(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	for _, name := range []string{"audit.events", "audit-events", "auditXevents"} {
		c.create(name, 1)
		c.write(numbered(name, 0, 0, 3)...)
	}
	n.untilRestorable(moment())
	fresh := n.restoreFresh("--type", "latest", "--topic", "audit.events")
	f := connect(t, fresh.Listen)
	topics, err := f.adm.ListTopics(f.ctx)
	if err != nil || !slices.Equal(topics.Names(), []string{"audit.events"}) {
		t.Fatalf("topics: %v, %v", topics.Names(), err)
	}
	dense(t, f.read("audit.events")[0], 0, 3)
	n.restore(0, "--type", "latest", "--topic", "audit?events", "--into", n.Listen)
	if topics, err = c.adm.ListTopics(c.ctx); err != nil || len(topics) != 6 {
		t.Errorf("after a glob of one character: %v, %v", topics.Names(), err)
	}
}

// The shape of BUG-003 without transactions: leader changes take no offsets.
func TestRestoreEndsWhereTheSourceEnded(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("a", 1)
	for i := range 4 {
		c.write(numbered("a", 0, i*250, 250)...)
		if i%2 == 0 {
			n.stop()
		} else {
			n.Kill()
		}
		n.start()
	}
	n.untilRestorable(moment())
	fresh := n.restoreFresh("--type", "latest")
	f := connect(t, fresh.Listen)
	if o, _ := f.offset("a", 0, earliest); o != 0 {
		t.Errorf("earliest is %d", o)
	}
	if o, _ := f.offset("a", 0, latest); o != 1000 {
		t.Errorf("latest is %d, want 1000", o)
	}
	f.write(numbered("a", 0, 1000, 1)...)
	dense(t, f.read("a")[0], 0, 1001)
}

// BUG-083.
func TestInternalTopicsAreNotForClientsToWrite(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("a", 1)
	c.write(numbered("a", 0, 0, 1)...)
	o := kadm.Offsets{}
	o.Add(kadm.Offset{Topic: "a", At: 1})
	if err := c.adm.CommitAllOffsets(c.ctx, "g", o); err != nil { // it makes __consumer_offsets
		t.Fatal(err)
	}
	p := newRaw(c, "__consumer_offsets", 0)
	if _, code := p.try(p.build(0, 1)); code != kerr.InvalidTopicException.Code {
		t.Errorf("produce to __consumer_offsets: error %d, want %d", code, kerr.InvalidTopicException.Code)
	}
	n.untilRestorable(moment())
	n.restore(0, "--type", "latest", "--into", n.Listen)
	topics, err := c.adm.ListTopicsWithInternal(c.ctx)
	if err != nil || !slices.Equal(topics.Names(), []string{"__consumer_offsets", "a", "a.restored"}) {
		t.Errorf("topics: %v, %v", topics.Names(), err)
	}
}
