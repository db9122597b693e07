package group

import (
	"bytes"
	"context"
	"sync"
)

// memLogs is the partitions of __consumer_offsets in memory; they outlive coordinators.
type memLogs struct {
	mu   sync.Mutex
	logs map[int32]*memLog
}

func newMemLogs() *memLogs { return &memLogs{logs: map[int32]*memLog{}} }

func (m *memLogs) log(p int32) *memLog {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.logs[p]
	if l == nil {
		l = &memLog{moved: make(chan struct{})}
		m.logs[p] = l
	}
	return l
}

func (m *memLogs) Open(_ context.Context, p, _ int32) (Log, error) {
	l := m.log(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l, l.openErr
}

// memLog is one of them. With lag set, the high watermark moves only by commit.
type memLog struct {
	mu      sync.Mutex
	entries []Entry
	hw      int64
	lag     bool
	moved   chan struct{} // closed when hw or failing changes
	openErr error
	append  error
	wait    error
	appends int
}

func (l *memLog) Bounds() (int64, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return 0, int64(len(l.entries))
}

func (l *memLog) Read(_ context.Context, off int64, f func(Entry)) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := 0; off < l.hw && n < 3; n++ {
		f(l.entries[off])
		off++
	}
	return off, nil
}

func (l *memLog) Append(_ int64, rs []Record) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.append != nil {
		return 0, l.append
	}
	l.appends++
	base := int64(len(l.entries))
	for i, r := range rs {
		l.entries = append(l.entries, Entry{Offset: base + int64(i), Producer: -1, Record: Record{bytes.Clone(r.Key), bytes.Clone(r.Value)}})
	}
	if !l.lag {
		l.hw = int64(len(l.entries))
	}
	return base, nil
}

func (l *memLog) WaitCommitted(ctx context.Context, off int64) error {
	for {
		l.mu.Lock()
		hw, err, moved := l.hw, l.wait, l.moved
		l.mu.Unlock()
		if err != nil {
			return err
		}
		if hw > off {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// change sets something and wakes who waits.
func (l *memLog) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.moved)
	l.moved = make(chan struct{})
}

func (l *memLog) commit() { l.change(func() { l.hw = int64(len(l.entries)) }) }
