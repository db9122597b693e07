package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/e2e/wire"
)

// The binaries under test: varve, and an etcd as people run it beside varve.
var bin, etcdBin string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run builds the binaries, and then runs the tests in a network namespace, where that may be.
func run(m *testing.M) int {
	if wire.Entered() {
		bin, etcdBin = os.Getenv("VARVE_BIN"), os.Getenv("VARVE_ETCD_BIN")
		noNamespaces = wire.Prepare()
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "varve-cluster-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e/cluster:", err)
		return 1
	}
	noNamespaces = errors.New("not wanted")
	if os.Getenv("VARVE_NET") != relayed {
		var code int
		if code, noNamespaces = wire.Enter("VARVE_BIN="+bin, "VARVE_ETCD_BIN="+etcdBin); noNamespaces == nil {
			return code
		}
	}
	return m.Run()
}

// build makes the binaries; VARVE_BIN and VARVE_ETCD_BIN name those that are there.
func build(dir string) error {
	for _, b := range []struct {
		path            *string
		given, name, of string
	}{
		{&bin, os.Getenv("VARVE_BIN"), "varve", "github.com/varvelog/varve/cmd/varve"},
		{&etcdBin, os.Getenv("VARVE_ETCD_BIN"), "etcd", "go.etcd.io/etcd/server/v3"},
	} {
		if b.given != "" {
			var err error
			if *b.path, err = filepath.Abs(b.given); err != nil {
				return err
			}
			continue
		}
		*b.path = filepath.Join(dir, b.name)
		if text, err := exec.Command("go", "build", "-o", *b.path, b.of).CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", b.of, err, text)
		}
	}
	return nil
}
