package e2e

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// objects lists the files of a file:// archive whose path has the text, sorted.
func (n *node) objects(text string) (list []string) {
	n.t.Helper()
	root := strings.TrimPrefix(n.archive, "file://")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(strings.TrimPrefix(path, root), text) {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

func TestAFlippedByteInTheArchiveIsFoundAndNeverRead(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("a", 1, tiering...)
	c.fill("a", 1, 3000, 1000)
	c.untilTiered("a", 0, 3000)
	c.untilEvicted("a", 0, 1500)
	n.stop() // nothing is cached
	want(t, varve(t, "archive", "verify", "--repo", n.archive), 0)
	// The whole segment at offset 0: it is evicted, and what a tail in its place was superseded by is larger.
	first := n.objects("/s/" + strings.Repeat("0", 20) + "-")
	victim := slices.MaxFunc(first, func(a, b string) int { return cmp.Compare(size(t, a), size(t, b)) })
	whole, err := os.ReadFile(victim)
	if err != nil {
		t.Fatal(err)
	}
	bad := slices.Clone(whole)
	bad[len(bad)/3] ^= 0x10
	rewrite(t, victim, bad)

	r := want(t, varve(t, "archive", "verify", "--repo", n.archive, "--output", "json"), 4)
	var report struct {
		Findings []struct{ Kind, Object, Place, What string }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil || len(report.Findings) == 0 {
		t.Fatalf("%v: %s", err, r.Stdout)
	}
	for _, f := range report.Findings {
		if !strings.HasSuffix(victim, f.Object) || f.Place == "" || f.What == "" {
			t.Errorf("finding %+v is not about %s", f, victim)
		}
	}
	n.start()
	good, failed := 0, 0
	for off := int64(0); off < 3000; off += 100 {
		p, err := c.fetch("a", 0, off)
		if err != nil {
			t.Fatal(err)
		}
		if p.ErrorCode != 0 {
			failed++
			if err := kerr.ErrorForCode(p.ErrorCode); !kerr.IsRetriable(err) && p.ErrorCode != kerr.CorruptMessage.Code {
				t.Errorf("offset %d: %v", off, err)
			}
			continue
		}
		for _, b := range c.batches(p.RecordBatches) { // fails the test on a wrong checksum
			good += int(b.Count())
		}
	}
	if failed == 0 || good == 0 {
		t.Errorf("%d fetches failed, %d records were read; want both", failed, good)
	}
	rewrite(t, victim, whole)
	dense(t, c.read("a")[0], 0, 3000)
	want(t, varve(t, "archive", "verify", "--repo", n.archive), 0)
}

func TestAMissingObjectAndADamagedManifestAreFound(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("a", 1, tiering...)
	c.fill("a", 1, 3000, 1000)
	c.untilTiered("a", 0, 3000)
	n.stop()
	for _, kind := range []string{"/s/", "/m/"} {
		list := n.objects(kind)
		victim := list[len(list)-1]
		whole, err := os.ReadFile(victim)
		if err != nil {
			t.Fatal(err)
		}
		bad := slices.Clone(whole)
		bad[len(bad)/2] ^= 1
		for name, harm := range map[string]func(){
			"missing": func() {
				if err := os.Remove(victim); err != nil {
					t.Fatal(err)
				}
			},
			"cut short": func() { rewrite(t, victim, whole[:len(whole)-10]) },
			"flipped":   func() { rewrite(t, victim, bad) },
		} {
			if kind == "/m/" && name == "missing" {
				continue // without its tip a partition is as it was one manifest earlier: nothing can tell
			}
			harm()
			if r := varve(t, "archive", "verify", "--repo", n.archive); r.Code != 4 || !strings.Contains(r.Stdout, filepath.Base(victim)) {
				t.Errorf("%s of %s: exit code %d, %s%s", name, victim, r.Code, r.Stdout, r.Stderr)
			}
			rewrite(t, victim, whole)
		}
	}
	want(t, varve(t, "archive", "verify", "--repo", n.archive), 0)
}

// dirBytes is the size of a partition's segments on the broker's disk.
func dirBytes(t *testing.T, n *node, dir string) (sum int64) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(n.Dir, dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range logs {
		if st, err := os.Stat(l); err == nil { // it may be deleted meanwhile
			sum += st.Size()
		}
	}
	return sum
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// rewrite gives an object other bytes behind varve's back.
func rewrite(t *testing.T, path string, b []byte) {
	t.Helper()
	os.Remove(path)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}
