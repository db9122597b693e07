package localseg

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// epochHistory is the leader epochs of a log, oldest first, both fields strictly rising. Guarded by Log.mu.
type epochHistory struct {
	list  []Epoch
	dirty bool // not yet on disk
}

func (h *epochHistory) latest() int32 {
	if len(h.list) == 0 {
		return -1
	}
	return h.list[len(h.list)-1].Epoch
}

// assign notes that epoch begins at start; older or equal epochs are ignored. Entries that held no record go.
func (h *epochHistory) assign(epoch int32, start int64) {
	if epoch < 0 || epoch <= h.latest() {
		return
	}
	n := len(h.list)
	for n > 0 && h.list[n-1].Start >= start {
		n--
	}
	// A copy: readers hold slices of the old one.
	h.list = append(slices.Clone(h.list[:n]), Epoch{Epoch: epoch, Start: start})
	h.dirty = true
}

// saw notes a batch [base, end) of an epoch, the first one at or above from. Newer epochs that claim to begin in [from, end) go: a leader
// that was to begin one there never wrote. They would make this log say of the batch that it is theirs, and others, which have what that
// leader's successors wrote, believe that they agree with it.
func (h *epochHistory) saw(epoch int32, from, base, end int64) {
	first, last := len(h.list), len(h.list)
	for first > 0 && h.list[first-1].Start >= from {
		first--
	}
	for last > first && h.list[last-1].Start >= end {
		last--
	}
	for first < last && h.list[first].Epoch <= epoch {
		first++
	}
	if first < last {
		h.list, h.dirty = slices.Concat(h.list[:first], h.list[last:]), true
	}
	h.assign(epoch, base)
}

// truncateEnd forgets epochs that begin at or above end.
func (h *epochHistory) truncateEnd(end int64) {
	n := len(h.list)
	for n > 0 && h.list[n-1].Start >= end {
		n--
	}
	if n < len(h.list) {
		h.list, h.dirty = slices.Clone(h.list[:n]), true
	}
}

// truncateStart forgets epochs that ended at or below start; the one that holds start now begins there.
func (h *epochHistory) truncateStart(start int64) {
	n := 0
	for n+1 < len(h.list) && h.list[n+1].Start <= start {
		n++
	}
	if len(h.list) == 0 || h.list[0].Start >= start {
		return
	}
	h.list = slices.Clone(h.list[n:])
	h.list[0].Start = max(h.list[0].Start, start)
	h.dirty = true
}

// endOffset is Kafka's LeaderEpochFileCache.endOffsetFor.
func (h *epochHistory) endOffset(epoch int32, leo int64) (int32, int64) {
	if len(h.list) == 0 || epoch < 0 || epoch > h.latest() {
		return -1, -1
	}
	if epoch == h.latest() {
		return epoch, leo
	}
	i, found := slices.BinarySearchFunc(h.list, epoch, func(e Epoch, t int32) int { return int(e.Epoch) - int(t) })
	if found {
		return epoch, h.list[i+1].Start
	}
	if i == 0 {
		return epoch, h.list[0].Start
	}
	return h.list[i-1].Epoch, h.list[i].Start
}

// encodeEpochs is Kafka's leader-epoch-checkpoint: a version, a count, and a line for each epoch.
func encodeEpochs(list []Epoch) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(list))
	for _, e := range list {
		b = fmt.Appendf(b, "%d %d\n", e.Epoch, e.Start)
	}
	return b
}

func decodeEpochs(b []byte) ([]Epoch, error) {
	lines := strings.Split(string(b), "\n")
	if len(lines) < 3 || lines[0] != "0" || lines[len(lines)-1] != "" {
		return nil, fmt.Errorf("%s: %w", fileEpochs, errFormat)
	}
	if n, err := strconv.Atoi(lines[1]); err != nil || n != len(lines)-3 {
		return nil, fmt.Errorf("%s: count %q: %w", fileEpochs, lines[1], errFormat)
	}
	list := make([]Epoch, 0, len(lines)-3)
	for _, l := range lines[2 : len(lines)-1] {
		a, z, _ := strings.Cut(l, " ")
		epoch, err1 := strconv.ParseInt(a, 10, 32)
		start, err2 := strconv.ParseInt(z, 10, 64)
		e := Epoch{Epoch: int32(epoch), Start: start}
		if err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return nil, fmt.Errorf("%s: line %q: %w", fileEpochs, l, errFormat)
		}
		if n := len(list); n > 0 && (list[n-1].Epoch >= e.Epoch || list[n-1].Start >= e.Start) {
			return nil, fmt.Errorf("%s: line %q is not above the one before: %w", fileEpochs, l, errFormat)
		}
		list = append(list, e)
	}
	return list, nil
}
