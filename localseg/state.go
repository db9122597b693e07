package localseg

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/varvelog/varve/record"
)

// ProducersAt returns the producer snapshot (Kafka's format) at off, which lies in [LocalStart, LEO].
func (l *Log) ProducersAt(off int64) ([]byte, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	if off == l.leo.Load() {
		defer l.mu.Unlock()
		return l.producers.encode(), nil
	}
	l.mu.Unlock()
	if off < l.LocalStart() || off > l.leo.Load() {
		return nil, fmt.Errorf("producers at %d: %w", off, ErrOffsetOutOfRange)
	}
	state, err := l.producersAt(off)
	if err != nil {
		return nil, fmt.Errorf("producers at %d: %w", off, err)
	}
	return state.encode(), nil
}

// producersAt takes the newest good snapshot at or below off and replays the batches from there.
func (l *Log) producersAt(off int64) (*producers, error) {
	offsets, err := l.snapshots()
	if err != nil {
		return nil, err
	}
	state, from := newProducers(), int64(0)
	for _, o := range slices.Backward(offsets) {
		if o > off {
			continue
		}
		p, err := l.readSnapshot(o)
		if err == nil {
			state, from = p, o
			break
		}
		l.info("producer snapshot is not usable", "offset", o, "err", err)
	}
	return state, l.replay(state, from, off)
}

func (l *Log) readSnapshot(off int64) (*producers, error) {
	b, err := readSmall(l.fs, fileName(l.dir, off, extSnapshot))
	if err != nil {
		return nil, err
	}
	return decodeSnapshot(b)
}

// replay feeds the batches that lie in [from, to) to state.
func (l *Log) replay(state *producers, from, to int64) error {
	var w pending
	for _, s := range l.segments() {
		size, next := s.bounds()
		if next <= from || s.base >= to || size == 0 {
			continue
		}
		h, err := l.files.acquire(l.fs, s)
		if err != nil {
			return err
		}
		_, err = walk(h.f, 0, size, func(_ int64, b record.Batch) error {
			if b.NextOffset() > to {
				return errStop
			}
			if b.BaseOffset() >= from {
				state.replay(&w, b)
			}
			return nil
		})
		h.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// snapshots lists the offsets of the snapshot files, rising.
func (l *Log) snapshots() ([]int64, error) {
	if l.found != nil {
		return l.found, nil
	}
	entries, err := l.fs.ReadDir(l.dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	var out []int64
	for _, e := range entries {
		if off, ext, ok := parseName(e.Name()); ok && ext == extSnapshot {
			out = append(out, off)
		}
	}
	return out, nil
}

func (l *Log) removeSnapshots(gone func(off int64) bool) error {
	offsets, err := l.snapshots()
	if err != nil {
		return err
	}
	for _, o := range offsets {
		if gone(o) {
			if err := removeFile(l.fs, fileName(l.dir, o, extSnapshot)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Log) removeSnapshotsAbove(end int64) error {
	return l.removeSnapshots(func(o int64) bool { return o > end })
}
