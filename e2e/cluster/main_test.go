package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The binaries under test: varve, and an etcd as people run it beside varve.
var bin, etcdBin string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "varve-cluster-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e/cluster:", err)
		return 1
	}
	return m.Run()
}

// build makes the binaries; VARVE_BIN names one of varve that is there.
func build(dir string) (err error) {
	bin, etcdBin = filepath.Join(dir, "varve"), filepath.Join(dir, "etcd")
	need := map[string]string{bin: "github.com/varvelog/varve/cmd/varve", etcdBin: "go.etcd.io/etcd/server/v3"}
	if given := os.Getenv("VARVE_BIN"); given != "" {
		delete(need, bin)
		if bin, err = filepath.Abs(given); err != nil {
			return err
		}
	}
	for out, pkg := range need {
		if text, err := exec.Command("go", "build", "-o", out, pkg).CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
		}
	}
	return nil
}
