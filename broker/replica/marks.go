package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/vfs"
)

// marksFile has the high watermarks of replicated partitions, in Kafka's format and under Kafka's name: a version, a count, and a line
// "topic partition offset" each, but with topic ids: a topic that was made again under its name has not what the former one had. A leader that comes back shows its readers at least what it had shown when this was written.
const marksFile = "replication-offset-checkpoint"

// marksMax bounds what is read of the file, bytes.
const marksMax = 64 << 20

type hwKey struct {
	topic     string // its id
	partition int32
}

func encodeMarks(marks map[hwKey]int64) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(marks))
	for k, hw := range marks {
		b = fmt.Appendf(b, "%s %d %d\n", k.topic, k.partition, hw)
	}
	return b
}

var errMarks = errors.New("not a checkpoint of offsets")

func decodeMarks(b []byte) (map[hwKey]int64, error) {
	lines := strings.Split(string(b), "\n")
	if len(lines) < 3 || lines[0] != "0" || lines[len(lines)-1] != "" {
		return nil, fmt.Errorf("head: %w", errMarks)
	}
	if n, err := strconv.Atoi(lines[1]); err != nil || n != len(lines)-3 {
		return nil, fmt.Errorf("count %q: %w", lines[1], errMarks)
	}
	marks := make(map[hwKey]int64, len(lines)-3)
	for _, l := range lines[2 : len(lines)-1] {
		f := strings.Split(l, " ")
		if len(f) != 3 || f[0] == "" {
			return nil, fmt.Errorf("line %q: %w", l, errMarks)
		}
		partition, err1 := strconv.ParseInt(f[1], 10, 32)
		hw, err2 := strconv.ParseInt(f[2], 10, 64)
		k := hwKey{f[0], int32(partition)}
		if _, twice := marks[k]; err1 != nil || err2 != nil || partition < 0 || hw < 0 || twice {
			return nil, fmt.Errorf("line %q: %w", l, errMarks)
		}
		marks[k] = hw
	}
	return marks, nil
}

// readMarks reads the file. Without it, or where it is damaged, every high watermark begins at what is archived, or at the log start.
func (m *Manager) readMarks() map[hwKey]int64 {
	name := path.Join(m.o.Dir, marksFile)
	b, err := readMarksFile(m.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var marks map[hwKey]int64
	if err == nil {
		marks, err = decodeMarks(b)
	}
	if err != nil {
		m.o.Logger.Warn("high watermarks of the last process are not known", "file", name, "err", err)
	}
	return marks
}

func readMarksFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := fsys.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > marksMax {
		return nil, fmt.Errorf("%d bytes: %w", info.Size(), errMarks)
	}
	b := make([]byte, info.Size())
	_, err = f.ReadAt(b, 0)
	return b, err
}

// keepMarks writes the file now and then, if something has moved, until ctx ends.
func (m *Manager) keepMarks(ctx context.Context) {
	t := time.NewTicker(m.o.HWCheckpoint)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if err := m.writeMarks(m.All()); err != nil {
			m.o.Logger.Error("high watermarks", "err", err)
		}
	}
}

// writeMarks replaces the file: write, sync, rename, sync the directory. Owned by Run, then by Close.
func (m *Manager) writeMarks(parts []*Partition) error {
	marks := map[hwKey]int64{}
	for _, p := range parts {
		if p.replicated() {
			marks[hwKey{p.id.Topic.String(), p.id.Partition}] = p.HighWatermark()
		}
	}
	if maps.Equal(marks, m.marked) {
		return nil
	}
	name := path.Join(m.o.Dir, marksFile)
	f, err := m.fs.OpenFile(name+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(encodeMarks(marks))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = m.fs.Rename(name+".tmp", name)
	}
	if err == nil {
		err = m.fs.SyncDir(m.o.Dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	m.marked = marks
	return nil
}

// replicated says that other brokers have replicas of it, too.
func (p *Partition) replicated() bool {
	rec := p.m.record(p)
	return rec != nil && len(rec.Replicas) > 1
}
