package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg/localsegtest"
	"github.com/varvelog/varve/tier"
)

// run runs the command line in this process.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err := cmd.ExecuteContext(t.Context())
	if err != nil {
		code = exitFailed
		if e, ok := errors.AsType[*exitError](err); ok {
			code = e.code
		}
		errs.WriteString(err.Error())
	}
	return out.String(), errs.String(), code
}

func TestRestoreRefusesWhatMakesNoSense(t *testing.T) {
	dir := t.TempDir()
	repo := "file://" + filepath.Join(dir, "repo")
	b, err := openRepository(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := tier.OpenArchive(t.Context(), b, "c1"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--type latest --dry-run", exitUsage, "--repo is needed"},
		{"--repo R --type latest", exitUsage, "no destination"},
		{"--repo R --type latest --into x:1 --data-dir D", exitUsage, "two destinations"},
		{"--repo R --dry-run", exitUsage, "--type is needed"},
		{"--repo R --type newest --dry-run", exitUsage, "none of latest"},
		{"--repo R --type latest --target 5 --dry-run", exitUsage, "takes no --target"},
		{"--repo R --type time --dry-run", exitUsage, "needs --target"},
		{"--repo R --type time --target 2026-11-29T10:00:00 --dry-run", exitUsage, "has no zone"},
		{"--repo R --type time --target 2026-11-29T10:00:00 --dry-run", exitUsage, "restorable window is nothing yet"},
		{"--repo R --type time --target noon --dry-run", exitUsage, "is no time"},
		{"--repo R --type time --target 2126-11-29T10:00:00Z --dry-run", exitNotRestorable, "outside"},
		{"--repo R --type time --target 1970-01-01T10:00:00Z --data-dir D", exitNotRestorable, "outside"},
		{"--repo R --type offset --target x --dry-run", exitUsage, "offset target"},
		{"--repo R --type latest --data-dir D --map a=b", exitUsage, "go with --into"},
		{"--repo R --type latest --data-dir D --to-suffix x", exitUsage, "go with --into"},
		{"--repo R --type latest --data-dir D --replication-factor 3", exitUsage, "goes with --into"},
		{"--repo R --type latest --into x:1 --replication-factor 0", exitUsage, "at least 1"},
		{"--repo R --type latest --dry-run --archive-url R", exitUsage, "goes with --data-dir"},
		{"--repo R --type latest --dry-run --output yaml", exitUsage, "neither text nor json"},
		{"--repo R --type latest --dry-run --consistency cut", exitUsage, "only partition"},
		{"--repo R --type latest --dry-run --topic nothere", exitUsage, "matches --topic nothere"},
		{"--repo R --type latest --dry-run --cluster other", exitUsage, "of cluster c1"},
		{"--repo R --type latest --dry-run", exitNotRestorable, "no topic existed"},
		{"--repo EMPTY --type latest --dry-run", exitFailed, "bucket is empty"},
		{"--repo OTHER --type latest --dry-run", exitFailed, "no varve archive"},
	} {
		line := strings.NewReplacer("R", repo, "EMPTY", "file://"+filepath.Join(dir, "empty"), "OTHER", "file://"+filepath.Join(dir, "other"))
		if err := os.MkdirAll(filepath.Join(dir, "other"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "other", "photo.jpg"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"restore"}
		for _, f := range strings.Fields(c.args) {
			switch f {
			case "R", "EMPTY", "OTHER":
				f = line.Replace(f)
			case "D":
				f = filepath.Join(dir, "data")
			}
			args = append(args, f)
		}
		if _, stderr, code := run(t, args...); code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit %d, %s; want %d, %s", c.args, code, stderr, c.code, c.want)
		}
		if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
			t.Fatalf("%s: a data directory is left behind", c.args)
		}
	}
}

func TestArchiveVerbsOnAnEmptyArchive(t *testing.T) {
	repo := "file://" + filepath.Join(t.TempDir(), "repo")
	b, err := openRepository(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := tier.OpenArchive(t.Context(), b, "c1"); err != nil {
		t.Fatal(err)
	}
	if out, _, code := run(t, "archive", "info", "--repo", repo, "--output", "json"); code != 0 || !strings.Contains(out, `"topics": []`) || !strings.Contains(out, `"from": null`) {
		t.Errorf("info: exit %d, %s", code, out)
	}
	if out, _, code := run(t, "archive", "ls", "--repo", repo, "inc/"); code != 0 || strings.Count(out, "\n") != 2 {
		t.Errorf("ls: exit %d, %s", code, out)
	}
	if out, _, code := run(t, "archive", "verify", "--repo", repo); code != 0 || !strings.Contains(out, "0 findings") {
		t.Errorf("verify: exit %d, %s", code, out)
	}
	if err := os.WriteFile(filepath.Join(strings.TrimPrefix(repo, "file://"), "inc", "0000000001.claim"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _, code := run(t, "archive", "verify", "--repo", repo, "--output", "json"); code != exitFindings || !strings.Contains(out, `"object": "inc/0000000001.claim"`) {
		t.Errorf("verify of damage: exit %d, %s", code, out)
	}
}

func TestSegmentDumpOfALog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sample-0")
	localsegtest.Sample(t, vfs.OS{}, dir)
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	name := files[0]
	out, stderr, code := run(t, "segment", "dump", name)
	if code != 0 || !strings.Contains(out, "0-") || strings.Contains(out, "BAD") {
		t.Fatalf("exit %d, %s, %s", code, out, stderr)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[70] ^= 1
	if err := os.WriteFile(name, b[:len(b)-5], 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _, code = run(t, "segment", "dump", name); code != exitFindings || !strings.Contains(out, "BAD") || !strings.Contains(out, "byte ") {
		t.Fatalf("damaged: exit %d, %s", code, out)
	}
	if _, stderr, code = run(t, "segment", "dump", name+".no"); code != exitFailed {
		t.Fatalf("missing: exit %d, %s", code, stderr)
	}
	if _, stderr, code = run(t, "segment", "dump", "s3://b/p/notasegment"); code != exitUsage {
		t.Fatalf("no object: exit %d, %s", code, stderr)
	}
}
