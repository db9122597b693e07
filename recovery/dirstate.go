package recovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	stateFile   = "restore.json"
	lockFile    = ".lock" // the data directory's own
	stateFormat = 1

	stateRunning  = "running"
	stateComplete = "complete"
)

// dirState is restore.json: what a restore has made, or is making, in a data directory. While it runs everything there,
// and in the new archive, is its own and may be wiped.
type dirState struct {
	Format  int          `json:"format"`
	State   string       `json:"state"`
	Digest  string       `json:"digest"` // of the request, so that only the same one goes on
	Cluster string       `json:"cluster"`
	Archive string       `json:"archive"` // URL of the new one
	Source  string       `json:"source"`  // URL
	Leases  []leaseState `json:"leases"`
}

// leaseState is a lease that the restore has taken.
type leaseState struct {
	Archive string `json:"archive"`
	URL     string `json:"url"`
	ID      string `json:"id"`
}

func digest(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "" // strings and numbers only
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// readState reads restore.json; nil: there is none.
func readState(dir string) (*dirState, error) {
	name := filepath.Join(dir, stateFile)
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s dirState
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&s); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w; remove the directory to start anew", name, err)
	}
	if s.Format != stateFormat || s.State != stateRunning && s.State != stateComplete || s.Cluster == "" {
		return nil, fmt.Errorf("%s is of format %d, state %q: not of this program; use another directory", name, s.Format, s.State)
	}
	return &s, nil
}

// ArchiveOf is the URL of the archive that a restore has given the cluster in a data directory; empty for a directory that no restore has
// made. A restore that has not ended is ErrUnfinished.
func ArchiveOf(dir string) (string, error) {
	s, err := readState(dir)
	if err != nil || s == nil {
		return "", err
	}
	if s.State != stateComplete {
		return "", fmt.Errorf("data directory %s: %w", dir, ErrUnfinished)
	}
	return s.Archive, nil
}

// write replaces restore.json, durably.
func (s *dirState) write(dir string) error {
	s.Format = stateFormat
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	name := filepath.Join(dir, stateFile)
	f, err := os.CreateTemp(dir, stateFile+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", name, err)
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// claimDir makes and locks the data directory. undo gives it back as it was, if nothing has been put there.
func claimDir(dir string) (lock *os.File, undo func(), err error) {
	_, statErr := os.Stat(dir)
	made := errors.Is(statErr, fs.ErrNotExist)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make data directory: %w", err)
	}
	name := filepath.Join(dir, lockFile)
	_, statErr = os.Stat(name)
	fresh := errors.Is(statErr, fs.ErrNotExist)
	lock, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := flock(lock); err != nil {
		lock.Close()
		return nil, nil, fmt.Errorf("%w: data directory %s is used by another process", ErrInUse, dir)
	}
	return lock, func() {
		if fresh {
			os.Remove(name)
		}
		if made {
			os.Remove(dir)
		}
	}, nil
}

// checkDir says whether the directory can take a restore: nil state for an empty one, the state of an interrupted one.
func checkDir(dir string) (*dirState, error) {
	s, err := readState(dir)
	if err != nil || s != nil {
		return s, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read data directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() != lockFile && !strings.HasPrefix(e.Name(), stateFile+".") {
			return nil, fmt.Errorf("%w: data directory %s is not empty: it has %s; give a new one", ErrInUse, dir, e.Name())
		}
	}
	return nil, nil
}

// overlaps reports whether one path is the other or lies below it.
func overlaps(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+string(filepath.Separator)) || strings.HasPrefix(b, a+string(filepath.Separator))
}
