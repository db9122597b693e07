package manifest

import (
	"cmp"
	"slices"

	"github.com/varvelog/varve/record"
)

// Clip chooses what a restore of [from, to) lists: entries in ascending order without overlap, trimmed to the range, all
// live. It takes live and dead ones, never doomed ones; where several hold the same records, a live one before a dead
// one, any before a superseded one, a rolled one before a tail. Trimming is by offset: a batch that straddles an end is
// for the reader to cut.
//
// Holes are the parts of [from, to) that no entry has, by the reason of the gap where one is known, else by Missing:
// records that have been released for deletion, or are lost. An edit takes them as Gaps.
func Clip(entries []Entry, gaps []Gap, from, to int64) (kept []Entry, holes []Gap) {
	list := make([]Entry, 0, len(entries))
	for _, en := range entries {
		if en.State != Doomed && en.Base < to && from < en.End {
			list = append(list, en)
		}
	}
	slices.SortStableFunc(list, compareEntries)
	var active []Entry // begin at or before pos and end after it
	next := 0
	for pos := from; pos < to; {
		for ; next < len(list) && list[next].Base <= pos; next++ {
			active = append(active, list[next])
		}
		active = slices.DeleteFunc(active, func(en Entry) bool { return en.End <= pos })
		end := to
		if len(active) == 0 {
			if next < len(list) {
				end = min(end, list[next].Base)
			}
			holes = appendHoles(holes, gaps, pos, end)
			pos = end
			continue
		}
		best := slices.MaxFunc(active, compareWorth)
		end = min(end, best.End)
		// A better one may begin before this one ends.
		for i := next; i < len(list) && list[i].Base < end; i++ {
			if compareRank(list[i], best) > 0 {
				end = list[i].Base
			}
		}
		kept = appendClipped(kept, best, pos, end)
		pos = end
	}
	return kept, holes
}

func appendClipped(kept []Entry, en Entry, from, to int64) []Entry {
	if n := len(kept); n > 0 && kept[n-1].End == from && kept[n-1].Ref() == en.Ref() {
		kept[n-1].End = to
		return kept
	}
	en.Base, en.End = from, to
	en.State, en.Reason, en.DeadAt = Live, NoReason, 0
	return append(kept, en)
}

func compareRank(a, b Entry) int { return cmp.Compare(rank(&a), rank(&b)) }

func rank(en *Entry) int {
	switch {
	case en.State == Live && !en.Tail:
		return 4
	case en.State == Live:
		return 3
	case en.Reason != Superseded && !en.Tail:
		return 2
	case en.Reason != Superseded:
		return 1
	}
	return 0
}

func compareWorth(a, b Entry) int {
	return cmp.Or(compareRank(a, b), cmp.Compare(a.End, b.End))
}

// appendHoles adds [from, to), cut at the borders of the known gaps.
func appendHoles(holes, gaps []Gap, from, to int64) []Gap {
	for _, g := range gaps {
		if g.To <= from || to <= g.From {
			continue
		}
		if from < g.From {
			holes = append(holes, Gap{From: from, To: g.From, Reason: Missing})
			from = g.From
		}
		holes = append(holes, Gap{from, min(to, g.To), g.Reason, g.Time})
		from = min(to, g.To)
	}
	if from < to {
		holes = append(holes, Gap{From: from, To: to, Reason: Missing})
	}
	return holes
}

// EndAt finds where a partition ended at time t, by append times, ms: every record below end was appended at or before t.
// Straddle is the entry in which t falls, nil if there is none: then the end may lie within it, and CutOffset of its
// footer says where. The entries are those that Clip kept for the whole partition, from is where they begin.
func EndAt(kept []Entry, from, t int64) (end int64, straddle *Entry) {
	end = from
	for i := range kept {
		en := &kept[i]
		if en.FirstAppend > t {
			return end, nil
		}
		if en.LastAppend > t {
			return max(end, en.Base), en
		}
		end = en.End
	}
	return end, nil
}

// CutOffset says where the records of a straddling entry appended at or before t end, in [en.Base, en.End]. It never lets a
// record in that was appended after t: a stretch of the footer's append times is in if all of it had been appended by t.
// So where writes pause for the footer's resolution, a cut in the pause has all before it and nothing after it; amid
// steady writes it may leave out less than the resolution.
func CutOffset(f *Footer, en *Entry, t int64) int64 {
	cut, _ := cutIn(f, en, t)
	return cut
}

// CutDoubt says what CutOffset leaves out though some of it may have been appended at or before t: how many offsets at most,
// and how far apart, ms, they were appended at most. 0, 0 where the cut is exact.
func CutDoubt(f *Footer, en *Entry, t int64) (offsets, spanMs int64) {
	cut, in := cutIn(f, en, t)
	return in.End - cut, in.Ms
}

// doubt is the stretch that t falls in.
type doubt struct{ End, Ms int64 }

func cutIn(f *Footer, en *Entry, t int64) (cut int64, in doubt) {
	if t >= en.LastAppend {
		return en.End, doubt{End: en.End}
	}
	times := f.AppendTimes
	if len(times) == 0 {
		return en.Base, doubt{en.End, en.LastAppend - en.FirstAppend}
	}
	i, _ := slices.BinarySearchFunc(times, t, func(a record.AppendTime, t int64) int {
		if a.Ms <= t {
			return -1
		}
		return 1
	})
	if i == 0 {
		return en.Base, doubt{End: en.Base}
	}
	// What lies before the last stretch that begins at or before t is in, and what lies behind it is out.
	end := f.End
	if i < len(times) {
		end = times[i].Offset
	}
	end = min(max(end, en.Base), en.End)
	a := times[i-1]
	if a.LastMs() <= t {
		return end, doubt{End: end}
	}
	cut = min(max(a.Offset, en.Base), en.End)
	if cut == end {
		return end, doubt{End: end}
	}
	return cut, doubt{end, int64(a.SpanMs)}
}

// StartAt finds the log start at time t, ms by the store's clock: the first offset of those entries, not doomed, that had
// not died by t; ok is false if there is none. It knows entries, not records: where DeleteRecords had moved the log start
// into an entry before t, all of the entry counts. At or after the manifest's Time the answer is its LogStart.
func (m *Manifest) StartAt(entries []Entry, t int64) (start int64, ok bool) {
	if t >= m.Time {
		return m.LogStart, m.LogStart < m.Through
	}
	for i := range entries {
		en := &entries[i]
		if en.State == Live || en.State == Dead && en.Reason != Superseded && en.DeadAt > t {
			// Nothing below LogStart can have been live since t and be live still, so a live first entry has lost nothing
			// whole since; its own beginning may be gone.
			return en.Base, true
		}
	}
	return 0, false
}
