package manifest

import (
	"math"
	"sort"

	"github.com/varvelog/varve/record"
)

// CoarsenAppendTimes merges neighbouring stretches until at most limit are left, limit at least 1, doubling the resolution as
// often as it takes. The list is changed in place; resolutionMs is what all merged stretches are shorter than.
func CoarsenAppendTimes(list []record.AppendTime, limit int) (coarse []record.AppendTime, resolutionMs int64) {
	resolutionMs = record.AppendResolutionMs
	for len(list) > max(limit, 1) {
		if resolutionMs > math.MaxInt64/2 {
			resolutionMs = math.MaxInt64
		} else {
			resolutionMs *= 2
		}
		list = mergeStretches(list, resolutionMs)
	}
	return list, resolutionMs
}

// AppendedBy is when the record at the offset, in [Base, End), had been appended, at the latest; last where that is not known.
func (f *Footer) AppendedBy(offset, last int64) int64 {
	i := sort.Search(len(f.AppendTimes), func(i int) bool { return f.AppendTimes[i].Offset > offset })
	if i == 0 {
		return last
	}
	return min(f.AppendTimes[i-1].LastMs(), last)
}

// mergeStretches merges neighbours as long as what comes out is shorter than ms.
func mergeStretches(list []record.AppendTime, ms int64) []record.AppendTime {
	out := list[:1]
	for _, a := range list[1:] {
		cur := &out[len(out)-1]
		if last := a.LastMs(); last-cur.Ms < ms || ms == math.MaxInt64 {
			*cur = cur.Until(last)
			continue
		}
		out = append(out, a)
	}
	return out
}
