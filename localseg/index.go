package localseg

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"sync"

	"github.com/varvelog/varve/record"
)

// Sizes of the entries on disk; see format.md.
const (
	offsetEntrySize = 8
	timeEntrySize   = 12
	txnEntrySize    = 34
)

// Offsets in entries are relative to the segment's base.
type (
	offsetEntry struct{ rel, pos int32 } // last offset of the batch at pos
	timeEntry   struct {                 // the largest timestamp so far, and the last offset of its batch
		ms  int64
		rel int32
	}
)

// indexes is all four indexes of a segment in memory. Those of a closed segment never change; those of the active one
// are extended by the log's writer, while readers look up. persisted counts are the writer's.
type indexes struct {
	mu      sync.RWMutex // guards all below
	offsets []offsetEntry
	times   []timeEntry
	appends appendTimes
	aborted []AbortedTxn
	maxMs   int64 // largest timestamp of all batches; -1: none
	maxRel  int32 // last offset of the first batch with it

	since     int64 // bytes since the last offset entry
	persisted [4]int
}

func newIndexes() *indexes { return &indexes{maxMs: -1, appends: appendTimes{first: -1}} }

// add takes the next batch, at pos. It reports nothing: entries are sparse.
func (x *indexes) add(b record.Batch, base, pos, interval int64) {
	x.addRaw(b.MaxTimestamp(), int32(b.LastOffset()-base), int32(pos), int64(len(b)), interval)
}

func (x *indexes) addRaw(maxMs int64, rel, pos int32, size, interval int64) {
	if maxMs > x.maxMs {
		x.maxMs, x.maxRel = maxMs, rel
	}
	if x.since > interval {
		x.offsets = append(x.offsets, offsetEntry{rel, pos})
		x.addTime()
		x.since = 0
	}
	x.since += size
}

// addTime notes the largest timestamp so far, if it is new.
func (x *indexes) addTime() {
	if n := len(x.times); x.maxMs >= 0 && (n == 0 || x.times[n-1].ms < x.maxMs) {
		x.times = append(x.times, timeEntry{x.maxMs, x.maxRel})
	}
}

// position is the byte from which a scan finds the batch that holds rel.
func (x *indexes) position(rel int64) int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	i := sort.Search(len(x.offsets), func(i int) bool { return int64(x.offsets[i].rel) > rel })
	if i == 0 {
		return 0
	}
	return int64(x.offsets[i-1].pos)
}

// lastBelow is the last indexed batch that begins at or below pos and ends below rel, or 0: a scan for an end starts there.
func (x *indexes) lastBelow(pos, rel int64) int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	i := sort.Search(len(x.offsets), func(i int) bool {
		return int64(x.offsets[i].pos) > pos || int64(x.offsets[i].rel) >= rel
	})
	if i == 0 {
		return 0
	}
	return int64(x.offsets[i-1].pos)
}

// timeFloor is the last offset, relative, at which the largest timestamp so far was at most ms; 0 if none.
func (x *indexes) timeFloor(ms int64) int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	i := sort.Search(len(x.times), func(i int) bool { return x.times[i].ms > ms })
	if i == 0 {
		return 0
	}
	return int64(x.times[i-1].rel)
}

func (x *indexes) maxTime() (ms int64, rel int32) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.maxMs, x.maxRel
}

// appendBounds are the first and last append times, or -1.
func (x *indexes) appendBounds() (first, last int64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.appends.first, x.appends.last()
}

// truncate forgets what lies at or above rel and pos, but for append times. maxMs is then that of the last time entry; the caller scans on from there.
func (x *indexes) truncate(rel, pos int64) {
	x.offsets = x.offsets[:sort.Search(len(x.offsets), func(i int) bool {
		return int64(x.offsets[i].rel) >= rel || int64(x.offsets[i].pos) >= pos
	})]
	x.times = x.times[:sort.Search(len(x.times), func(i int) bool { return int64(x.times[i].rel) >= rel })]
	x.maxMs, x.maxRel = -1, 0
	if n := len(x.times); n > 0 {
		x.maxMs, x.maxRel = x.times[n-1].ms, x.times[n-1].rel
	}
	x.since = pos
	if n := len(x.offsets); n > 0 {
		x.since = pos - int64(x.offsets[n-1].pos)
	}
}

func encodeOffsets(b []byte, list []offsetEntry) []byte {
	for _, e := range list {
		b = binary.BigEndian.AppendUint32(b, uint32(e.rel))
		b = binary.BigEndian.AppendUint32(b, uint32(e.pos))
	}
	return b
}

// decodeOffsets checks order and that each entry lies inside a segment of size bytes and offsets below end.
func decodeOffsets(b []byte, end, size int64) ([]offsetEntry, error) {
	if len(b)%offsetEntrySize != 0 {
		return nil, fmt.Errorf("%s of %d bytes: %w", extIndex, len(b), errFormat)
	}
	list := make([]offsetEntry, len(b)/offsetEntrySize)
	prev := offsetEntry{rel: -1}
	for i := range list {
		e := offsetEntry{int32(binary.BigEndian.Uint32(b[i*8:])), int32(binary.BigEndian.Uint32(b[i*8+4:]))}
		if e.rel <= prev.rel || e.pos <= prev.pos || int64(e.rel) >= end || int64(e.pos) >= size {
			return nil, fmt.Errorf("%s entry %d: %w", extIndex, i, errFormat)
		}
		list[i], prev = e, e
	}
	return list, nil
}

func encodeTimes(b []byte, list []timeEntry) []byte {
	for _, e := range list {
		b = binary.BigEndian.AppendUint64(b, uint64(e.ms))
		b = binary.BigEndian.AppendUint32(b, uint32(e.rel))
	}
	return b
}

func decodeTimes(b []byte, end int64) ([]timeEntry, error) {
	if len(b)%timeEntrySize != 0 {
		return nil, fmt.Errorf("%s of %d bytes: %w", extTimeIndex, len(b), errFormat)
	}
	list := make([]timeEntry, len(b)/timeEntrySize)
	prev := timeEntry{ms: -1, rel: -1}
	for i := range list {
		e := timeEntry{int64(binary.BigEndian.Uint64(b[i*12:])), int32(binary.BigEndian.Uint32(b[i*12+8:]))}
		if e.ms <= prev.ms || e.rel <= prev.rel || int64(e.rel) >= end {
			return nil, fmt.Errorf("%s entry %d: %w", extTimeIndex, i, errFormat)
		}
		list[i], prev = e, e
	}
	return list, nil
}

func encodeAborted(b []byte, list []AbortedTxn) []byte {
	for _, t := range list {
		b = append(b, 0, 0)
		for _, v := range [...]int64{t.ProducerID, t.First, t.Last, t.LastStable} {
			b = binary.BigEndian.AppendUint64(b, uint64(v))
		}
	}
	return b
}

// decodeAborted checks that the markers, Last, rise inside [base, end).
func decodeAborted(b []byte, base, end int64) ([]AbortedTxn, error) {
	if len(b)%txnEntrySize != 0 {
		return nil, fmt.Errorf("%s of %d bytes: %w", extTxnIndex, len(b), errFormat)
	}
	list := make([]AbortedTxn, 0, len(b)/txnEntrySize)
	prev := int64(math.MinInt64)
	for ; len(b) > 0; b = b[txnEntrySize:] {
		var v [4]int64
		for i := range v {
			v[i] = int64(binary.BigEndian.Uint64(b[2+8*i:]))
		}
		t := AbortedTxn{ProducerID: v[0], First: v[1], Last: v[2], LastStable: v[3]}
		if binary.BigEndian.Uint16(b) != 0 || t.First < 0 || t.First >= t.Last || t.Last <= prev || t.Last < base || t.Last >= end || t.LastStable > t.Last+1 {
			return nil, fmt.Errorf("%s entry %d: %w", extTxnIndex, len(list), errFormat)
		}
		list, prev = append(list, t), t.Last
	}
	return list, nil
}

// clip says how many bytes of an index file lie below an offset (relative rel, absolute next) and a position. It reads
// from the start and stops at the first entry that does not.
func clip(b []byte, ext string, rel, pos, next int64) int {
	n := 0
	switch ext {
	case extIndex:
		for ; n+offsetEntrySize <= len(b); n += offsetEntrySize {
			if int64(int32(binary.BigEndian.Uint32(b[n:]))) >= rel || int64(int32(binary.BigEndian.Uint32(b[n+4:]))) >= pos {
				return n
			}
		}
	case extTimeIndex:
		for ; n+timeEntrySize <= len(b); n += timeEntrySize {
			if int64(int32(binary.BigEndian.Uint32(b[n+8:]))) >= rel {
				return n
			}
		}
	case extTxnIndex:
		for ; n+txnEntrySize <= len(b); n += txnEntrySize {
			if int64(binary.BigEndian.Uint64(b[n+18:])) >= next {
				return n
			}
		}
	}
	return len(b)
}
