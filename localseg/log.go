package localseg

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/vfs"
)

// ErrTopicID says that the directory belongs to another topic of the same name: one that was deleted and made anew.
var ErrTopicID = errors.New("directory belongs to another topic id")

// Options of one log. FS is required; Logger may be nil.
type Options struct {
	Topic     string
	TopicID   [16]byte // zero: neither written nor compared
	Partition int32
	Config    Config
	// Clean says that the broker was shut down cleanly. Without it Open also checks the last batches of a log that has
	// not grown since its last flush. What was written after the last flush is always checked.
	Clean bool
	// DeferSync says that the caller makes what Open recovered durable (SyncRecovered, once for all logs) before it serves
	// anything or appends. Without it Open syncs file by file, which costs some milliseconds a log.
	DeferSync bool
	Logger    *slog.Logger
	Clock     *Clock      // stamps appends, shared by the logs of a broker; nil: one of its own
	Files     *FileCache  // shared bound on open segment files; nil: no bound
	OnError   func(error) // called once when the log goes offline
	OnRoll    func()      // called after a segment was closed, without locks: call FlushRolled soon, elsewhere
}

// Log is one partition's local log. Append, Truncate*, Retain, StartAt have one caller at a time; all else is concurrent.
//
// Who may do what: checkpoints is held by everything that changes what Open will find (flush, truncate, retain, log
// start), writer by everything that changes the list of segments or their bytes; taken in this order. Readers take
// neither: they follow view and the bounds of its segments.
type Log struct {
	fs    vfs.FS
	dir   string
	o     Options
	files *FileCache

	checkpoints turn
	writer      turn
	loads       turn // one load of indexes at a time

	cfg       atomic.Pointer[Config]
	view      atomic.Pointer[[]*segment] // oldest first; empty before the first append
	leo       atomic.Int64
	logStart  atomic.Int64
	firstOpen atomic.Int64 // first offset of the oldest open transaction; MaxInt64: none
	recovery  atomic.Int64
	closed    atomic.Bool
	offline   atomic.Pointer[error]
	reported  atomic.Bool
	stamping  atomic.Int64 // stamp of the append under way, or stampUnknown; 0: there is none

	mu        sync.Mutex // guards epochs and producers, and joins them to leo
	epochs    epochHistory
	producers *producers

	// Owned by the writer.
	w             pending
	lastAppendMs  int64
	exists        bool // the directory is there
	namesDirty    bool // files were made whose names may not be durable
	parentDirty   bool
	unflushed     int64 // records
	lastFlush     time.Time
	trash         []trash
	snapshotsMade []int64 // at rolls, not yet synced

	cp     checkpoint // the last one written; owned by checkpoints
	haveCP bool
	trust  bool // during Open: what the checkpoint says of the files holds

	found    []int64 // during Open: the offsets of the snapshots in the directory, rising
	unsynced bool    // Open has changed files; owned by Open, then by SyncRecovered
}

func (l *Log) segments() []*segment {
	if v := l.view.Load(); v != nil {
		return *v
	}
	return nil
}

func (l *Log) setSegments(s []*segment) { l.view.Store(&s) }

func (l *Log) activeSegment() *segment {
	if s := l.segments(); len(s) > 0 {
		return s[len(s)-1]
	}
	return nil
}

// segmentAt is the index of the last segment with base <= off, or -1.
func segmentAt(segs []*segment, off int64) int {
	return sort.Search(len(segs), func(i int) bool { return segs[i].base > off }) - 1
}

// LogStart is the first readable offset, archive included.
func (l *Log) LogStart() int64 { return l.logStart.Load() }

// LocalStart is the first readable offset that is on this disk.
func (l *Log) LocalStart() int64 {
	if s := l.segments(); len(s) > 0 {
		return max(s[0].base, l.logStart.Load())
	}
	return l.leo.Load()
}

// LEO is the offset that the next record gets.
func (l *Log) LEO() int64 { return l.leo.Load() }

// SizeBytes is the size of all local segments, without indexes.
func (l *Log) SizeBytes() (n int64) {
	for _, s := range l.segments() {
		size, _ := s.bounds()
		n += size
	}
	return n
}

// FirstUnstable is the first offset of the oldest open transaction, or LEO. It is never below the log start.
func (l *Log) FirstUnstable() int64 {
	leo := l.leo.Load() // first: a transaction that begins now begins at or above it
	return max(min(leo, l.firstOpen.Load()), l.logStart.Load())
}

// Config is the configuration with defaults filled in.
func (l *Log) Config() Config { return *l.cfg.Load() }

// SetConfig takes effect with the next append, roll or Retain.
func (l *Log) SetConfig(c Config) {
	c = c.withDefaults()
	l.cfg.Store(&c)
}

// Segments lists the segments, oldest first; the slice is the caller's. What cannot be read of a segment is -1.
func (l *Log) Segments() []SegmentInfo {
	segs := l.segments()
	out := make([]SegmentInfo, 0, len(segs))
	for i, s := range segs {
		size, next := s.bounds()
		info := SegmentInfo{Base: s.base, End: next, SizeBytes: size, Active: s.active.Load(), MaxTimestamp: -1, FirstAppendTime: -1, LastAppendTime: -1}
		if i+1 < len(segs) {
			info.End = segs[i+1].base
		}
		if sum, err := l.summary(s); err == nil {
			info.MaxTimestamp, info.FirstAppendTime, info.LastAppendTime = sum.maxMs, sum.firstAppend, sum.lastAppend
		}
		out = append(out, info)
	}
	return out
}

// RecoveryPoint is the offset below which everything is durable.
func (l *Log) RecoveryPoint() int64 { return l.recovery.Load() }

// Epochs returns the leader epoch history, oldest first, local and known archived part.
func (l *Log) Epochs() []Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.epochs.list)
}

// AssignEpoch records that epoch begins at the LEO (a new leader does so before its first append). It is durable with
// the next flush; until then the batches themselves carry it.
func (l *Log) AssignEpoch(epoch int32) error {
	if err := l.usable(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epochs.assign(epoch, l.leo.Load())
	return nil
}

// EndOffset answers OffsetForLeaderEpoch (KIP-101, 320): (-1, -1) for an unknown or future epoch.
func (l *Log) EndOffset(epoch int32) (foundEpoch int32, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epochs.endOffset(epoch, l.leo.Load())
}

// ActiveProducer describes one producer of the log (DescribeProducers).
type ActiveProducer struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // -1: none
	LastTimestamp    int64 // ms; -1: none
	CoordinatorEpoch int32 // -1: none
	TxnStart         int64 // -1: none
}

// Producers lists the producers that the log remembers, by id.
func (l *Log) Producers() []ActiveProducer {
	l.mu.Lock()
	out := make([]ActiveProducer, 0, len(l.producers.byID))
	for id, e := range l.producers.byID {
		out = append(out, ActiveProducer{ID: id, Epoch: e.epoch, LastSequence: e.last().lastSeq, LastTimestamp: e.lastMs,
			CoordinatorEpoch: e.coordinatorEpoch, TxnStart: e.txnStart})
	}
	l.mu.Unlock()
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}

func (l *Log) usable() error {
	if l.closed.Load() {
		return ErrClosed
	}
	if e := l.offline.Load(); e != nil {
		return *e
	}
	return nil
}

// fail takes the log offline for good: after a failed write or sync nobody knows what the disk holds; recovery will see.
func (l *Log) fail(doing string, err error) error {
	err = fmt.Errorf("%s %s: %w: %w", doing, l.dir, ErrOffline, err)
	if !l.offline.CompareAndSwap(nil, &err) {
		return *l.offline.Load()
	}
	return err
}

// report calls OnError, once and without locks.
func (l *Log) report() {
	e := l.offline.Load()
	if e == nil || l.reported.Swap(true) {
		return
	}
	if l.o.Logger != nil {
		l.o.Logger.Error("log is offline", "topic", l.o.Topic, "partition", l.o.Partition, "err", *e)
	}
	if l.o.OnError != nil {
		l.o.OnError(*e)
	}
}

func (l *Log) info(msg string, args ...any) {
	if l.o.Logger != nil {
		l.o.Logger.Info(msg, append([]any{"topic", l.o.Topic, "partition", l.o.Partition}, args...)...)
	}
}

// publish, under mu, makes the state of producers visible beside a new end.
func (l *Log) publish(leo int64) {
	first := l.producers.firstOpen()
	// A transaction must bound the reader before the end passes it, and free it only after.
	if old := l.firstOpen.Load(); first < old || old == math.MaxInt64 {
		l.firstOpen.Store(first)
		l.leo.Store(leo)
		return
	}
	l.leo.Store(leo)
	l.firstOpen.Store(first)
}
