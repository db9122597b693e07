package tier

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/record"
)

// timed is what a live tail says of when [base, end) was appended.
type timed struct {
	base, end int64
	times     []record.AppendTime
}

// archivedTimes reads the append times of the live tails that a part takes the place of, oldest first. A process that is killed takes the
// newest times of its log along, and the next one has bounds for them, which a log does not tell from times; but what had gone up by then
// has them all. So of what was archived before this leader began, tails are asked: else a moment that could be restored would lose
// records once its tail is superseded. What this leader archived itself is in its log, as finely; where it took over times, the part
// begins below what it found.
//
// Costs a request a tail, while parts take the place of what a former leader left. A tail that is damaged or gone has nothing to tell:
// the log's bounds stand for it, since its records are the better for being uploaded again. Any other error is for the caller to try again.
func (p *Partition) archivedTimes(ctx context.Context, part part) ([]timed, error) {
	m := p.view.Load().man
	if part.base >= p.w.found {
		return nil, nil
	}
	var out []timed
	for i := range m.Entries { // tails that can be superseded are all inline
		e := &m.Entries[i]
		if e.State != manifest.Live || e.Base < part.base || part.end < e.End || e.Base >= m.Through {
			continue
		}
		f, err := p.a.objects.footer(ctx, e)
		var bad *CorruptError
		switch {
		case errors.As(err, &bad) || errors.Is(err, objstore.ErrNotFound):
			p.a.o.Logger.Error("append times of a tail are lost with it: bounds stand for them", "partition", p.id, "object", e.Object, "err", err)
			continue
		case err != nil:
			return nil, fmt.Errorf("append times of [%d, %d): %w", e.Base, e.End, err)
		}
		if list := within(f.AppendTimes, e.Base, e.End); len(list) > 0 {
			out = append(out, timed{list[0].Offset, e.End, list})
		}
	}
	return out, nil
}

// withArchived puts what tails say, oldest first, in the place of what the log says of the same offsets. What follows a tail came after it.
func withArchived(log []record.AppendTime, tails []timed) []record.AppendTime {
	if len(tails) == 0 || len(log) == 0 {
		return log
	}
	var out []record.AppendTime
	at, floor := min(log[0].Offset, tails[0].base), int64(math.MinInt64)
	add := func(end int64) { // what the log alone says
		if at >= end {
			return
		}
		for _, a := range within(log, at, end) {
			last := max(a.LastMs(), floor)
			a.Ms = max(a.Ms, floor)
			out = append(out, a.Until(last))
		}
	}
	for _, t := range tails {
		add(t.base)
		out = append(out, t.times...)
		at, floor = t.end, t.times[len(t.times)-1].LastMs()
	}
	add(math.MaxInt64)
	return inOrder(out)
}

// inOrder makes each stretch end before the next one begins, where their bounds overlap. None ends later than one behind it, and that
// stays true: it is what a cut goes by. When the later one began is then less known.
func inOrder(list []record.AppendTime) []record.AppendTime {
	late := int64(math.MaxInt64)
	for i := len(list) - 1; i >= 0; i-- {
		late = min(late, list[i].LastMs())
		list[i] = list[i].Until(late)
	}
	for i := 1; i < len(list); i++ {
		last := list[i].LastMs()
		list[i].Ms = max(list[i].Ms, list[i-1].LastMs())
		list[i] = list[i].Until(last)
	}
	return list
}
