package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
)

const (
	lockFile  = ".lock"
	cleanFile = ".kafka_cleanshutdown" // Kafka's name
	asideExt  = "-delete"              // as Kafka renames directories that are to be deleted
)

// errOtherTopic: a directory belongs to a topic of the same name that is not this one.
var errOtherTopic = localseg.ErrTopicID

// takeDir makes the data directory ours.
//  1. Lock it: two processes on one log would tear it.
//  2. See whether the last process ended cleanly.
//  3. Take the marker away, durably, before anything is written: should we crash, the next process must recover.
func (m *Manager) takeDir() error {
	if err := m.makeDir(); err != nil {
		return fmt.Errorf("make data directory %s: %w", m.o.Dir, err)
	}
	f, err := m.fs.OpenFile(path.Join(m.o.Dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("open lock of data directory %s: %w", m.o.Dir, err)
	}
	if osFile := f.OS(); osFile != nil {
		if err := lock(osFile); err != nil {
			f.Close()
			return fmt.Errorf("data directory %s is used by another process: %w", m.o.Dir, err)
		}
	}
	m.lock = f
	marker := path.Join(m.o.Dir, cleanFile)
	switch _, err := m.fs.Stat(marker); {
	case err == nil:
		m.clean = true
		if err := m.fs.Remove(marker); err != nil {
			m.releaseDir()
			return fmt.Errorf("remove %s: %w", marker, err)
		}
		if err := m.fs.SyncDir(m.o.Dir); err != nil {
			m.releaseDir()
			return fmt.Errorf("sync %s: %w", m.o.Dir, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		m.releaseDir()
		return fmt.Errorf("look for %s: %w", marker, err)
	}
	return nil
}

// makeDir makes the data directory where it is missing, with those above it, all durable: what is synced in a directory is lost with
// the machine if the directory's own name is.
func (m *Manager) makeDir() error {
	var above []string // whose entries are new
	for dir := path.Clean(m.o.Dir); ; dir = path.Dir(dir) {
		_, err := m.fs.Stat(dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if path.Dir(dir) == dir {
			break
		}
		above = append(above, path.Dir(dir))
	}
	if err := m.fs.MkdirAll(m.o.Dir, 0o755); err != nil {
		return err
	}
	for _, dir := range above {
		if err := m.fs.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) releaseDir() {
	if m.lock != nil {
		m.lock.Close() // gives the lock up
		m.lock = nil
	}
}

// markClean says that every log was closed with all its state. Durable when it returns.
func (m *Manager) markClean() error {
	name := path.Join(m.o.Dir, cleanFile)
	f, err := m.fs.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(encodeMark(m.store.Registration().Epoch, m.store.Line()))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = m.fs.SyncDir(m.o.Dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// sweepDir deletes what deleted topics left behind, but for what is still to be archived (parting). Directories that no topic claims, alive
// or deleted, are kept and named.
func (m *Manager) sweepDir(img *meta.Image) error {
	entries, err := m.fs.ReadDir(m.o.Dir)
	if err != nil {
		return fmt.Errorf("read data directory %s: %w", m.o.Dir, err)
	}
	deleted := map[string]bool{}
	for _, t := range img.Deleted {
		deleted[t.Name] = true
	}
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() {
			continue
		}
		if strings.HasSuffix(name, asideExt) {
			m.removeAll(name)
			continue
		}
		topic, partition, ok := splitDir(name)
		if !ok {
			continue
		}
		if t := img.Topics[topic]; t != nil && partition < len(t.Partitions) {
			// A topic that was deleted and made anew meanwhile has the directory in its name, but it may be the former one's.
			if len(img.Deleted) == 0 {
				continue
			}
			id, ok, err := localseg.TopicIDOf(m.fs, path.Join(m.o.Dir, name))
			if err != nil {
				m.o.Logger.Error("log of a topic", "dir", path.Join(m.o.Dir, name), "err", err)
			}
			if !ok || img.Deleted[id] == nil {
				continue
			}
		}
		if deleted[topic] {
			kept, err := m.inherit(img, topic, partition)
			if err != nil {
				m.o.Logger.Error("log of a deleted topic", "dir", path.Join(m.o.Dir, name), "err", err)
			}
			if !kept {
				m.removeAll(name)
			}
			continue
		}
		m.o.Logger.Warn("log directory of no topic", "dir", path.Join(m.o.Dir, name))
	}
	return nil
}

func (m *Manager) removeAll(name string) {
	if err := m.fs.RemoveAll(path.Join(m.o.Dir, name)); err != nil {
		m.o.Logger.Error("remove left-over log", "dir", path.Join(m.o.Dir, name), "err", err)
	}
}

// setAside renames a directory of a former topic of the same name; the next start deletes it.
func (m *Manager) setAside(name string) error {
	from := path.Join(m.o.Dir, name)
	to := ""
	for i := 0; ; i++ {
		to = path.Join(m.o.Dir, fmt.Sprintf("%s.%d%s", name, i, asideExt))
		if _, err := m.fs.Stat(to); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return fmt.Errorf("set %s aside: %w", from, err)
		}
	}
	if err := m.fs.Rename(from, to); err != nil {
		return fmt.Errorf("set %s aside: %w", from, err)
	}
	m.o.Logger.Info("log of a former topic of that name set aside", "dir", from, "to", to)
	return m.fs.SyncDir(m.o.Dir)
}

// splitDir splits "<topic>-<partition>".
func splitDir(name string) (topic string, partition int, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(name[i+1:], 10, 31)
	return name[:i], int(n), err == nil
}
