package lint

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/varvelog/varve"

// rows is the package map of ARCHITECTURE.md: a package may import packages of lower rows, and sub-packages of its own
// tree. The longest prefix decides.
var rows = map[string]int{
	"internal/wallclock": 0,
	"internal/vfs":       1, "internal/invariants": 1, "record": 1, "objstore": 1,
	"localseg": 2, "manifest": 2, "cache": 2,
	"tier": 3, "meta": 3,
	"broker": 4, "recovery": 4,
	"cmd": 5, "e2e/proc": 5, // processes of the binary, which the benchmarks measure too
	"sim": 6, "e2e": 6, "bench": 6, "internal/lint": 6,
}

// wireCodec may be imported by these packages alone (test files excepted).
var wireCodec = map[string][]string{
	"github.com/twmb/franz-go/pkg/kmsg": {"broker", "sim"},
}

var banned = []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "base"}

type pkg struct {
	ImportPath   string
	Dir          string
	Name         string
	Imports      []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
}

func root(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,Imports,TestImports,XTestImports,GoFiles", "./...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			t.Fatalf("go list: %v\n%s", err, ee.Stderr)
		}
		t.Fatal(err)
	}
	var ps []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	if len(ps) < 10 {
		t.Fatalf("go list found %d packages only", len(ps))
	}
	return ps
}

// room returns the entry of rows that holds path, which is relative to the module.
func room(path string) (string, int, bool) {
	for p := path; p != "." && p != "" && p != "/"; p = filepath.Dir(p) {
		if r, ok := rows[p]; ok {
			return p, r, true
		}
	}
	return "", 0, false
}

func TestArrowsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		self := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		from, row, ok := room(self)
		if !ok {
			t.Errorf("%s is in no room of the package map", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			rel, ours := strings.CutPrefix(imp, module+"/")
			if !ours {
				continue
			}
			to, r, ok := room(rel)
			if !ok {
				t.Errorf("%s imports %s, which is in no room of the package map", self, rel)
			} else if to != from && r >= row {
				t.Errorf("%s (row %d) imports %s (row %d): arrows point down", self, row, rel, r)
			}
		}
	}
}

func TestNoRoomImportsTheSimulation(t *testing.T) {
	for _, p := range packages(t) {
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if (imp == module+"/sim" || strings.HasPrefix(imp, module+"/sim/")) && !strings.HasPrefix(p.ImportPath, module+"/sim") {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
	}
}

func TestWireCodecIsImportedByTheBrokerAlone(t *testing.T) {
	for _, p := range packages(t) {
		self := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imp := range p.Imports {
			if allowed, ok := wireCodec[imp]; ok && !slices.Contains(allowed, self) && !isDriver(self) {
				t.Errorf("%s imports %s; only %v may", self, imp, allowed)
			}
		}
	}
}

// isDriver: what drives the built binary from outside is a client, not a part of it.
func isDriver(path string) bool {
	r, n, ok := room(path)
	return ok && n == 6 && r != "internal/lint"
}

func TestNamesSayWhatIsInside(t *testing.T) {
	for _, p := range packages(t) {
		if slices.Contains(banned, p.Name) {
			t.Errorf("package %s: name %q says nothing", p.ImportPath, p.Name)
		}
	}
}

func TestPureFilesHaveNoClockAndNoIO(t *testing.T) {
	pure := []string{"record", "manifest"}
	for _, p := range packages(t) {
		self := strings.TrimPrefix(p.ImportPath, module+"/")
		if !slices.Contains(pure, self) {
			continue
		}
		for _, imp := range p.Imports {
			if slices.Contains([]string{"os", "net", "context", "log", "log/slog"}, imp) {
				t.Errorf("%s imports %s; it is a pure package", self, imp)
			}
		}
	}
}

func TestGofmtVetStaticcheck(t *testing.T) {
	dir := root(t)
	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	files := run("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go")
	var present []string
	for _, f := range strings.Fields(files) {
		if m, _ := filepath.Glob(filepath.Join(dir, f)); len(m) == 1 {
			present = append(present, f)
		}
	}
	if len(present) == 0 {
		t.Fatal("no Go file found")
	}
	if out := run("gofmt", append([]string{"-l"}, present...)...); strings.TrimSpace(out) != "" {
		t.Errorf("not gofmt'ed:\n%s", out)
	}
	run("go", "vet", "./...")
	run("go", "tool", "staticcheck", "./...")
}
