package replica

import (
	"testing"

	"github.com/varvelog/varve/internal/vfs"
)

func TestDataDirectorySurvivesTheMachine(t *testing.T) {
	for seed := range uint64(30) {
		fs := vfs.NewMem()
		m := &Manager{fs: fs, o: Options{Dir: "/var/lib/varve"}}
		if err := m.makeDir(); err != nil {
			t.Fatal(err)
		}
		fs.Crash(seed)
		if _, err := fs.Stat("/var/lib/varve"); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
