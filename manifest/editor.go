package manifest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

// editor is one edit under way: the list of entries as runs, one a group and the last one inline.
type editor struct {
	next   Manifest
	limits Limits
	time   int64
	runs   []run
	change Change
}

type run struct {
	group   *Group  // nil for the inline run
	entries []Entry // own copy; nil if the group was not loaded
	dirty   bool
}

func newEditor(m *Manifest, e *Edit, l Limits, loaded map[string][]Entry) (*editor, error) {
	ed := &editor{next: *m, limits: l, time: e.Time}
	ed.next.Incarnation, ed.next.LeaderEpoch, ed.next.N = e.Incarnation, e.LeaderEpoch, e.N
	ed.next.Prev = ""
	if m.N > 0 {
		ed.next.Prev = m.Key()
	}
	ed.next.Time = max(m.Time, e.Time)
	ed.next.ThroughTime = max(m.ThroughTime, e.ThroughTime)
	ed.next.Gaps = slices.Clone(m.Gaps)
	if e.Epochs != nil {
		ed.next.Epochs = slices.Clone(e.Epochs)
	}
	for i := range m.Groups {
		g := &m.Groups[i]
		list, ok := loaded[g.Object]
		switch {
		case ok && len(list) != int(g.Count):
			return nil, fmt.Errorf("group %s has %d entries, want %d", g.Object, len(list), g.Count)
		case !ok && (m.needsGroup(e, i) || i == len(m.Groups)-1 && m.foldsInto(e, l)):
			return nil, fmt.Errorf("group %s is not loaded", g.Object)
		}
		ed.runs = append(ed.runs, run{group: g, entries: slices.Clone(list)})
	}
	ed.runs = append(ed.runs, run{entries: slices.Clone(m.Entries), dirty: true})
	return ed, nil
}

// each calls f for each loaded entry; f reports whether it changed it.
func (ed *editor) each(f func(*Entry) bool) {
	for i := range ed.runs {
		r := &ed.runs[i]
		for j := range r.entries {
			if f(&r.entries[j]) {
				r.dirty = true
			}
		}
	}
}

func (ed *editor) die(en *Entry, why Reason) {
	en.State, en.Reason, en.DeadAt = Dead, why, ed.time
}

// extend applies Add and Gaps in the order of their offsets.
func (ed *editor) extend(e *Edit) error {
	add, gaps := e.Add, e.Gaps
	for len(add)+len(gaps) > 0 {
		if len(gaps) > 0 && gaps[0].From == ed.next.Through {
			if err := ed.addGap(gaps[0]); err != nil {
				return err
			}
			gaps = gaps[1:]
			continue
		}
		if len(add) == 0 {
			return fmt.Errorf("gap [%d, %d) does not begin at archived-through %d", gaps[0].From, gaps[0].To, ed.next.Through)
		}
		if err := ed.add(add[0]); err != nil {
			return err
		}
		add = add[1:]
	}
	return nil
}

func (ed *editor) addGap(g Gap) error {
	if g.To <= g.From || g.Reason == NoReason {
		return fmt.Errorf("gap [%d, %d) by %v", g.From, g.To, g.Reason)
	}
	ed.next.Through = g.To
	if n := len(ed.next.Gaps); n > 0 && ed.next.Gaps[n-1].To == g.From && ed.next.Gaps[n-1].Reason == g.Reason {
		ed.next.Gaps[n-1].To, ed.next.Gaps[n-1].Time = g.To, g.Time
		return nil
	}
	ed.next.Gaps = append(ed.next.Gaps, g)
	return nil
}

func (ed *editor) add(a Entry) error {
	if err := a.check(); err != nil {
		return err
	}
	if a.State != Live {
		return fmt.Errorf("new entry [%d, %d) is %v", a.Base, a.End, a.State)
	}
	through := ed.next.Through
	if a.Base > through {
		return fmt.Errorf("entry [%d, %d) leaves a hole from archived-through %d", a.Base, a.End, through)
	}
	if a.Base == through {
		inline := &ed.runs[len(ed.runs)-1]
		inline.entries = append(inline.entries, a)
		ed.next.Through = a.End
		return nil
	}
	return ed.supersede(a)
}

// supersede puts a live entry in the place of the live tail entries that it covers.
func (ed *editor) supersede(a Entry) error {
	for _, g := range ed.next.Gaps {
		if g.From < a.End && a.Base < g.To {
			return fmt.Errorf("entry [%d, %d) overlaps the gap [%d, %d)", a.Base, a.End, g.From, g.To)
		}
	}
	covered := 0
	var err error
	ed.each(func(en *Entry) bool {
		if en.State != Live || en.End <= a.Base || a.End <= en.Base {
			return false
		}
		if !en.Tail || en.Base < a.Base || a.End < en.End {
			err = fmt.Errorf("entry [%d, %d) cannot supersede [%d, %d), tail %t", a.Base, a.End, en.Base, en.End, en.Tail)
			return false
		}
		covered++
		ed.die(en, Superseded)
		return true
	})
	if err != nil {
		return err
	}
	if covered == 0 && a.End <= ed.next.Through {
		return fmt.Errorf("entry [%d, %d) holds nothing new, archived through %d", a.Base, a.End, ed.next.Through)
	}
	r := ed.home(&a)
	if r.group != nil && r.entries == nil {
		return fmt.Errorf("group %s is not loaded", r.group.Object)
	}
	at, _ := slices.BinarySearchFunc(r.entries, a, func(x, y Entry) int {
		if compareEntries(x, y) <= 0 {
			return -1
		}
		return 1
	})
	r.entries = slices.Insert(r.entries, at, a)
	r.dirty = true
	ed.next.Through = max(ed.next.Through, a.End)
	return nil
}

// home is the run that an entry belongs to by its order: the last one that begins at or before it.
func (ed *editor) home(a *Entry) *run {
	last := len(ed.runs) - 1
	if last == 0 || len(ed.runs[last].entries) > 0 && ed.runs[last].entries[0].Base <= a.Base {
		return &ed.runs[last]
	}
	i := last - 1
	for i > 0 && ed.runs[i].group.Base > a.Base {
		i--
	}
	return &ed.runs[i]
}

func (ed *editor) kill(e *Edit) error {
	if e.LogStart <= ed.next.LogStart {
		return nil
	}
	if e.LogStart > ed.next.Through {
		return fmt.Errorf("log start %d is above archived-through %d", e.LogStart, ed.next.Through)
	}
	ed.next.LogStart = e.LogStart
	ed.each(func(en *Entry) bool {
		if en.State != Live || en.End > e.LogStart {
			return false
		}
		ed.die(en, e.Reason)
		return true
	})
	return nil
}

func (ed *editor) dropTopic(e *Edit) error {
	if !e.DropTopic {
		return nil
	}
	ed.each(func(en *Entry) bool {
		if en.State != Live {
			return false
		}
		ed.die(en, TopicDeleted)
		return true
	})
	return nil
}

func (ed *editor) revive(e *Edit) error {
	if !e.Revive {
		return nil
	}
	var err error
	ed.each(func(en *Entry) bool {
		if en.Reason != TopicDeleted {
			return false
		}
		if en.State == Doomed {
			err = fmt.Errorf("entry [%d, %d) of the deleted topic is doomed", en.Base, en.End)
			return false
		}
		en.State, en.Reason, en.DeadAt = Live, NoReason, 0
		return true
	})
	return err
}

// doom never dooms an object that another entry, not doomed, needs: a restore may list one object in several pieces.
// Where a group that is not loaded could have such an entry, the piece stays dead for now; it is doomed together with
// its neighbours later.
func (ed *editor) doom(e *Edit) error {
	if e.DoomBefore <= 0 && e.SupersededBefore <= 0 {
		return nil
	}
	needed := make(map[ObjectRef]bool)
	ed.each(func(en *Entry) bool {
		if en.State != Doomed && !e.due(en) {
			needed[en.Ref()] = true
		}
		return false
	})
	ed.each(func(en *Entry) bool {
		if !e.due(en) || needed[en.Ref()] || ed.mayBeNeeded(en) {
			return false
		}
		en.State = Doomed
		ed.change.Doomed++
		return true
	})
	return nil
}

// mayBeNeeded reports whether a group that was not loaded could list the entry's object and still need it.
func (ed *editor) mayBeNeeded(en *Entry) bool {
	base, end := en.objectRange()
	return slices.ContainsFunc(ed.runs, func(r run) bool {
		return r.group != nil && r.entries == nil && r.group.Doomed < r.group.Count && r.group.Base < end && base < r.group.End
	})
}

func (ed *editor) drop(e *Edit) error {
	if len(e.Gone) == 0 {
		return nil
	}
	var err error
	for i := range ed.runs {
		r := &ed.runs[i]
		n := len(r.entries)
		r.entries = slices.DeleteFunc(r.entries, func(en Entry) bool {
			if !e.Gone[en.Ref()] {
				return false
			}
			if en.State != Doomed {
				err = fmt.Errorf("object %s is gone, but its entry [%d, %d) is %v", en.Object, en.Base, en.End, en.State)
			}
			return true
		})
		if n != len(r.entries) {
			r.dirty = true
			ed.change.Dropped += n - len(r.entries)
		}
	}
	return err
}

// pruneGaps forgets gaps below everything that is listed and below the log start: nothing can be restored around them.
func (ed *editor) pruneGaps() {
	first := ed.next.LogStart
	for i := range ed.runs {
		r := &ed.runs[i]
		switch {
		case len(r.entries) > 0:
			first = min(first, r.entries[0].Base)
		case r.group != nil && !r.dirty:
			first = min(first, r.group.Base)
		default:
			continue
		}
		break
	}
	ed.next.Gaps = slices.DeleteFunc(ed.next.Gaps, func(g Gap) bool { return g.To <= first })
}

// finish folds, writes the groups that changed and makes the manifest.
func (ed *editor) finish() (Change, error) {
	inline := ed.runs[len(ed.runs)-1].entries
	groups := ed.runs[:len(ed.runs)-1]
	var fold []Entry
	if n := len(inline); n > ed.limits.Inline {
		k := n - (ed.limits.Inline - ed.limits.Fold)
		fold, inline = inline[:k], inline[k:]
		if last := len(groups) - 1; last >= 0 && groups[last].entries != nil && len(groups[last].entries)+len(fold) <= ed.limits.Group {
			groups[last].dirty = true
		}
	}
	ed.next.Groups = nil
	ed.next.Entries = slices.Clip(inline)
	var pending []Entry
	flush := func() error {
		err := ed.writeGroups(pending)
		pending = nil
		return err
	}
	for i := range groups {
		r := &groups[i]
		if r.dirty {
			ed.change.Replaced = append(ed.change.Replaced, r.group.Object)
			pending = append(pending, r.entries...)
			continue
		}
		if err := flush(); err != nil {
			return Change{}, err
		}
		ed.next.Groups = append(ed.next.Groups, *r.group)
	}
	pending = append(pending, fold...)
	if err := flush(); err != nil {
		return Change{}, err
	}
	ed.change.Manifest = &ed.next
	return ed.change, nil
}

// writeGroups cuts a run of entries into groups of about equal size, none above the limit.
func (ed *editor) writeGroups(list []Entry) error {
	pieces := (len(list) + ed.limits.Group - 1) / ed.limits.Group
	for ; pieces > 0; pieces-- {
		i := len(ed.change.Groups)
		if i >= MaxGroups {
			return errors.New("too many groups in one edit")
		}
		k := len(list) / pieces
		body := EncodeGroup(list[:k])
		key := GroupKey(ed.next.Partition, ed.next.Incarnation, ed.next.LeaderEpoch, ed.next.N, i)
		ed.change.Groups = append(ed.change.Groups, GroupBody{key, body})
		ed.next.Groups = append(ed.next.Groups, summarize(key, list[:k], sha256.Sum256(body)))
		list = list[k:]
	}
	return nil
}
