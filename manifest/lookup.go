package manifest

import (
	"slices"
	"sort"
)

// Opener returns the entries of a group, as Group.Open does. It may do I/O: the caller brings it.
type Opener func(Group) ([]Entry, error)

// LiveAt returns the first live entry that ends above off: the one that holds off, or the next one after a gap; ok is
// false if there is none. It opens at most the groups that may hold it, mostly none or one. What lies below the log start
// is for the caller to refuse.
func (m *Manifest) LiveAt(off int64, open Opener) (en Entry, ok bool, err error) {
	for i := range m.Groups {
		g := &m.Groups[i]
		if g.Live() == 0 || g.End <= off {
			continue
		}
		list, err := open(*g)
		if err != nil {
			return Entry{}, false, err
		}
		if en, ok := firstLive(list, off); ok {
			return en, true, nil
		}
	}
	en, ok = firstLive(m.Entries, off)
	return en, ok, nil
}

func firstLive(list []Entry, off int64) (Entry, bool) {
	// The live entries do not overlap, so the last one that begins at or before off is a good place to look back from;
	// superseded ones may stand between.
	i := sort.Search(len(list), func(i int) bool { return list[i].Base > off })
	for j := i - 1; j >= 0; j-- {
		if list[j].State == Live {
			if list[j].End > off {
				return list[j], true
			}
			break
		}
	}
	for ; i < len(list); i++ {
		if list[i].State == Live {
			return list[i], true
		}
	}
	return Entry{}, false
}

// All returns the whole list of entries, in order.
func (m *Manifest) All(open Opener) ([]Entry, error) {
	var all []Entry
	for _, g := range m.Groups {
		list, err := open(g)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return append(all, m.Entries...), nil
}

// HasLive reports whether anything in the archive may be read: then the first readable offset is LogStart, or the end of
// the gap there.
func (m *Manifest) HasLive() bool {
	return slices.ContainsFunc(m.Entries, func(en Entry) bool { return en.State == Live }) ||
		slices.ContainsFunc(m.Groups, func(g Group) bool { return g.Live() > 0 })
}

// LiveBytes is the size of all live objects.
func (m *Manifest) LiveBytes() int64 {
	var n int64
	for i := range m.Groups {
		n += m.Groups[i].LiveBytes
	}
	for i := range m.Entries {
		if m.Entries[i].State == Live {
			n += m.Entries[i].SizeBytes
		}
	}
	return n
}

// HasDoomed reports whether entries wait for their objects to be deleted: inline, or in the groups that it returns.
func (m *Manifest) HasDoomed() (inline bool, groups []Group) {
	for _, g := range m.Groups {
		if g.Doomed > 0 {
			groups = append(groups, g)
		}
	}
	return slices.ContainsFunc(m.Entries, func(en Entry) bool { return en.State == Doomed }), groups
}

// OldestDead is the smallest DeadAt of dead entries, all of them and the superseded ones, 0 where there is none: nothing
// need be doomed before.
func (m *Manifest) OldestDead() (all, superseded int64) {
	for i := range m.Groups {
		all = oldest(all, m.Groups[i].OldestDeadAt)
		superseded = oldest(superseded, m.Groups[i].OldestSuperseded)
	}
	for i := range m.Entries {
		if en := &m.Entries[i]; en.State == Dead {
			all = oldest(all, en.DeadAt)
			if en.Reason == Superseded {
				superseded = oldest(superseded, en.DeadAt)
			}
		}
	}
	return all, superseded
}

// ListsGroup reports whether the manifest refers to the group object.
func (m *Manifest) ListsGroup(object string) bool {
	return slices.ContainsFunc(m.Groups, func(g Group) bool { return g.Object == object })
}
