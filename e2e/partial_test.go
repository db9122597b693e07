package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/e2e/digest"
)

// manifestOf finds the topic id in the path of a manifest.
var manifestOf = regexp.MustCompile(`/t/([^/]+)/\d+/m/`)

// afterTopics cuts every request from the one on that writes the first manifest of the nth topic that known does not have.
func afterTopics(n int, known map[string]bool) trouble {
	var mu sync.Mutex
	made, gone := map[string]bool{}, false
	return func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		if m := manifestOf.FindStringSubmatch(r.URL.Path); m != nil && r.Method == http.MethodPut && !known[m[1]] {
			made[m[1]] = true
			gone = gone || len(made) >= n
		}
		now := gone
		mu.Unlock()
		return now && cut(w, r)
	}
}

// Exit code 5 is a contract with scripts: some topics are there whole, the others not at all, and the same command goes on.
func TestRestoreThatLosesItsStoreIsPartialAndGoesOn(t *testing.T) {
	t.Parallel()
	p := startProxy(t)
	n := startS3(t, p.url("partial", "aws"))
	c := connect(t, n.Listen)
	topics := []string{"a", "b", "c"}
	want := map[string]*digest.Digest{}
	for i, name := range topics {
		c.create(name, 2)
		want[name] = c.fill(name, 2, 100*(i+1), 500)
	}
	n.untilRestorable(moment())
	known := map[string]bool{}
	for _, x := range n.info().Topics {
		known[x.ID] = true
	}
	args := []string{"--type", "latest", "--topic", "a", "--topic", "b", "--topic", "c", "--into", n.Listen, "--output", "json"}
	p.in(afterTopics(2, known))
	r := n.restore(5, args...)
	var res struct {
		Topics []struct {
			Name, Error string
			Done        bool
		}
	}
	if err := json.Unmarshal([]byte(r.Stdout), &res); err != nil {
		t.Fatalf("%v\n%s", err, r.Stdout)
	}
	if len(res.Topics) != 3 || !res.Topics[0].Done || res.Topics[1].Done || res.Topics[1].Error == "" || res.Topics[2].Done {
		t.Errorf("topics of the partial restore: %+v", res.Topics)
	}
	if !strings.Contains(r.Stderr, "2 of 3 topics were not restored; run the same command again") {
		t.Errorf("stderr does not say what to do:\n%s", r.Stderr)
	}
	there, err := c.adm.ListTopics(c.ctx)
	if err != nil || !there.Has("a.restored") || there.Has("b.restored") || there.Has("c.restored") {
		t.Errorf("topics after the partial restore: %v, %v", there.Names(), err)
	}
	p.in(nil)
	n.restore(0, args...)
	for name, d := range want {
		c.same(name+".restored", d)
	}
}

// The new cluster's archive may be anywhere; varve dev finds it by the directory.
func TestRestoreIntoADirectoryWithItsArchiveElsewhere(t *testing.T) {
	t.Parallel()
	n := startS3(t, s3Server(t).URL("elsewhere-source", "aws"))
	c := connect(t, n.Listen)
	c.create("a", 1, tiering...)
	d := c.fill("a", 1, 2000, 1000)
	n.untilRestorable(moment())
	n.stop()
	for name, archive := range map[string]string{
		"directory": (&url.URL{Scheme: "file", Path: filepath.Join(t.TempDir(), "new-archive")}).String(),
		"s3":        s3Server(t).URL("elsewhere-new", "minio"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			r := want(t, verb(t, n.Env, "restore", "--repo", n.archive, "--type", "latest", "--data-dir", dir, "--archive-url", archive), 0)
			if !strings.Contains(r.Stderr, "varve dev --data-dir "+dir) {
				t.Errorf("stderr does not say how to start it:\n%s", r.Stderr)
			}
			fresh := prepareIn(t, dir)
			fresh.Env, fresh.archive = n.Env, archive
			fresh.start()
			f := connect(t, fresh.Listen)
			f.same("a", d)
			f.create("b", 1)
			f.write(numbered("b", 0, 0, 10)...)
			f.untilTiered("b", 0, 10)
			fresh.stop()
			want(t, verb(t, n.Env, "archive", "verify", "--repo", archive), 0)
			if out := want(t, verb(t, n.Env, "archive", "info", "--repo", archive), 0).Stdout; !strings.Contains(out, "b") {
				t.Errorf("the new archive does not know the new topic:\n%s", out)
			}
			// It belongs to that cluster now.
			other := filepath.Join(t.TempDir(), "other")
			want(t, verb(t, n.Env, "restore", "--repo", n.archive, "--type", "latest", "--data-dir", other, "--archive-url", archive), 1)
		})
	}
	want(t, verb(t, n.Env, "restore", "--repo", n.archive, "--type", "latest", "--data-dir", filepath.Join(t.TempDir(), "x"), "--archive-url", n.archive), 2)
	want(t, verb(t, n.Env, "restore", "--repo", n.archive, "--type", "latest", "--into", n.Listen, "--archive-url", "file:///tmp/x"), 2)
}

func TestTopicVerbs(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	run := func(code int, args ...string) string {
		t.Helper()
		r := want(t, varve(t, append([]string{"topic"}, args...)...), code)
		return r.Stdout + r.Stderr
	}
	at := []string{"--bootstrap", n.Listen}
	holds := func(what, text string, parts ...string) {
		t.Helper()
		for _, p := range parts {
			if !strings.Contains(text, p) {
				t.Errorf("%s: no %q in:\n%s", what, p, text)
			}
		}
	}
	holds("create", run(0, append(at, "create", "verbs", "--partitions", "3", "--config", "retention.ms=1000000", "--config", "segment.bytes=1048576")...), "created verbs: id ", "3 partitions")
	holds("create twice", run(1, append(at, "create", "verbs")...), "verbs", "exists")
	holds("a bad value is named", run(1, append(at, "create", "bad", "--config", "retention.ms=soon")...), "retention.ms", "soon")
	holds("an unknown key is named", run(1, append(at, "create", "bad", "--config", "retention.mss=1")...), "retention.mss")
	holds("a name that no topic can have", run(1, append(at, "create", "no/slash")...), "no/slash")
	run(2, append(at, "create", "bad", "--config", "nothing")...)
	run(2, append(at, "create")...)
	run(2, append(at, "creat", "x")...)
	run(1, "list", "--bootstrap", freeAddr(t))

	c.write(numbered("verbs", 1, 0, 10)...)
	holds("describe", run(0, append(at, "describe", "verbs")...), "topic verbs", "partitions 3", "retention.ms=1000000", "segment.bytes=1048576")
	if out := run(0, append(at, "describe", "verbs")...); !regexp.MustCompile(`(?m)^1\s+1\s+\d+\s+\[1\]\s+\[1\]\s+0\s+10$`).MatchString(out) {
		t.Errorf("describe does not show partition 1 with offsets 0 to 10:\n%s", out)
	}
	holds("describe what is not there", run(1, append(at, "describe", "nothing")...), "nothing")
	if out := run(0, append(at, "list")...); out != "verbs\n" {
		t.Errorf("list: %q", out)
	}
	c.untilTiered("verbs", 1, 10)
	holds("delete", run(0, append(at, "delete", "verbs")...), "deleted verbs", "varve topic undelete verbs")
	holds("delete twice", run(1, append(at, "delete", "verbs")...), "verbs")
	if out := run(0, append(at, "list")...); out != "" {
		t.Errorf("list after the deletion: %q", out)
	}
	holds("undelete", run(0, append(at, "undelete", "verbs")...), "undeleted verbs", "3 partitions")
	holds("undelete what lives", run(1, append(at, "undelete", "verbs")...), "verbs")
	holds("undelete what never was", run(1, append(at, "undelete", "never")...), "never")
	got := c.read("verbs")
	if len(got[1]) != 10 {
		t.Errorf("%d records after undelete, want 10: %s", len(got[1]), fmt.Sprint(got))
	}
}
