package tier

import (
	"fmt"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

// diverges compares epoch histories below archived-through (PROTOCOLS 1.6). Offsets alone prove nothing: two leaders
// may have written different records at the same ones. They are compared where both have records: what was deleted before it was
// archived is in no history of the archive, and says nothing about the log that still has it.
func diverges(id manifest.PartitionID, m *manifest.Manifest, log *localseg.Log) error {
	if m.N == 0 {
		return nil
	}
	d := &DivergedError{Partition: id, Through: m.Through}
	from := m.Through
	if len(m.Epochs) > 0 {
		from = max(log.LocalStart(), m.LogStart, m.Epochs[0].Start)
	}
	if at, ok := firstDifference(m.Epochs, log.Epochs(), from, m.Through); !ok {
		d.At = at
		d.Reason = fmt.Sprintf("leader epoch %d in the archive, %d in the log", epochAt(m.Epochs, at), epochAt(log.Epochs(), at))
		return d
	}
	if leo := log.LEO(); leo < m.Through {
		d.At, d.Reason = leo, "the log ends there"
		return d
	}
	return nil
}

// firstDifference finds the first offset in [from, end) where the two histories name different epochs; ok: there is none.
func firstDifference(a, b []record.Epoch, from, end int64) (at int64, ok bool) {
	if from >= end {
		return 0, true
	}
	if epochAt(a, from) != epochAt(b, from) {
		return from, false
	}
	first := end
	for _, list := range [][]record.Epoch{a, b} {
		for _, e := range list {
			if e.Start > from && e.Start < first && epochAt(a, e.Start) != epochAt(b, e.Start) {
				first = e.Start
			}
		}
	}
	return first, first == end
}

// epochAt is the epoch of the record at off, -1 before the first one.
func epochAt(list []record.Epoch, off int64) int32 {
	epoch := int32(-1)
	for _, e := range list {
		if e.Start > off {
			break
		}
		epoch = e.Epoch
	}
	return epoch
}
