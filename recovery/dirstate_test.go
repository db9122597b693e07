package recovery

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestADirectoryKnowsTheArchiveThatItsRestoreHasMade(t *testing.T) {
	dir := t.TempDir()
	if url, err := ArchiveOf(filepath.Join(dir, "nowhere")); err != nil || url != "" {
		t.Errorf("no directory: %q, %v", url, err)
	}
	if url, err := ArchiveOf(dir); err != nil || url != "" {
		t.Errorf("no restore: %q, %v", url, err)
	}
	s := &dirState{State: stateRunning, Cluster: "c", Archive: "s3://bucket/new"}
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := ArchiveOf(dir); !errors.Is(err, ErrUnfinished) {
		t.Errorf("a restore that runs: %v, want ErrUnfinished", err)
	}
	s.State = stateComplete
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	if url, err := ArchiveOf(dir); err != nil || url != "s3://bucket/new" {
		t.Errorf("a complete restore: %q, %v", url, err)
	}
	if err := os.WriteFile(filepath.Join(dir, stateFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ArchiveOf(dir); err == nil {
		t.Error("a torn restore.json is read")
	}
}
