package manifest

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/varvelog/varve/record"
)

// Edit is what the next manifest of a partition changes. Zero fields change nothing. Within one edit the order is:
// Add and Gaps by offset, LogStart, DropTopic or Revive, doom, Gone, fold.
//
// Everything that dies in an edit dies at Time.
type Edit struct {
	Incarnation uint32
	LeaderEpoch int32
	N           uint64 // 1 + max(the pointer's n, the last n tried), PROTOCOLS 1.4
	Time        int64  // ms, the store's clock as last seen; required

	// Add lists new live entries, ascending. Each begins at Through; or it begins below and supersedes the live Tail
	// entries that it covers, each of them whole.
	Add []Entry
	// Gaps lists ranges that will never be archived, each beginning at Through when its turn comes.
	Gaps        []Gap
	ThroughTime int64          // never moves back
	Epochs      []record.Epoch // replaces the history

	// LogStart, if above the present one, kills the live entries wholly below it, by Reason: RetentionTime,
	// RetentionSize or RecordsDeleted.
	LogStart int64
	Reason   Reason
	// DropTopic kills all live entries by TopicDeleted and leaves the log start, so that Revive can undo it. Revive is the
	// only edit that moves a state back; it is refused once anything that it should bring back is doomed.
	DropTopic bool
	Revive    bool

	// DoomBefore dooms what died at or before it: the store's now less the restore window (PROTOCOLS 3.2). What was
	// superseded is doomed if it died at or before SupersededBefore too, since a live entry has its records. An entry whose
	// object another entry still needs is left dead. Both are below Time.
	DoomBefore       int64
	SupersededBefore int64
	// Gone are objects seen gone from the store: their doomed entries are dropped.
	Gone map[ObjectRef]bool
}

// ObjectRef names a segment object: Archive is "" for the manifest's own.
type ObjectRef struct{ Archive, Object string }

// Ref names the entry's object.
func (e *Entry) Ref() ObjectRef { return ObjectRef{e.Archive, e.Object} }

// objectRange is the range of offsets that the entry's object may have, all where its name does not say.
func (e *Entry) objectRange() (base, end int64) {
	name, ok := ParseSegmentKey(e.Object)
	if !ok || name.Last == math.MaxInt64 {
		return 0, math.MaxInt64
	}
	return name.Base, name.Last + 1
}

// Limits says when entries move from a manifest to groups. Zero values are the defaults, by which the manifest of
// 100,000 entries stays below 64 KiB. All writers of an archive may differ in them.
type Limits struct {
	Inline int // entries in the manifest, default 256
	Fold   int // entries moved to a group once there are more, default 128, at most Inline
	Group  int // entries in a group, default 1024
}

func (l Limits) fill() Limits {
	if l.Inline <= 0 {
		l.Inline = 256
	}
	if l.Fold <= 0 {
		l.Fold = 128
	}
	l.Fold = min(l.Fold, l.Inline)
	if l.Group <= 0 {
		l.Group = 1024
	}
	return l
}

// GroupBody is a group object to write before the manifest that lists it.
type GroupBody struct {
	Key  string
	Body []byte
}

// Change is the outcome of an edit. Write order: Groups, Manifest, the commit; then Replaced may be deleted.
type Change struct {
	Manifest *Manifest
	Groups   []GroupBody
	Replaced []string // group objects that the new manifest lists no more
	Doomed   int      // entries that this edit doomed
	Dropped  int      // entries that this edit dropped
}

// Empty is the state before the first manifest: nothing archived, the log starts at start. It has N 0 and cannot be encoded.
func Empty(cluster string, p PartitionID, start int64) *Manifest {
	return &Manifest{Cluster: cluster, Partition: p, LogStart: start, Through: start}
}

// NeedGroups lists the groups whose contents Apply needs for the edit.
func (m *Manifest) NeedGroups(e Edit, l Limits) []Group {
	l = l.fill()
	var need []Group
	for i := range m.Groups {
		if m.needsGroup(&e, i) || i == len(m.Groups)-1 && m.foldsInto(&e, l) {
			need = append(need, m.Groups[i])
		}
	}
	return need
}

func (m *Manifest) needsGroup(e *Edit, i int) bool {
	g := &m.Groups[i]
	switch {
	case e.LogStart > m.LogStart && g.Live() > 0 && g.Base < e.LogStart,
		e.DropTopic && g.Live() > 0,
		e.Revive && g.Dead+g.Doomed > 0,
		m.doomNeeds(e, g),
		len(e.Gone) > 0 && g.Doomed > 0:
		return true
	}
	for j := range e.Add {
		a := &e.Add[j]
		if a.Base < m.Through && (g.Live() > 0 && g.Base < a.End && a.Base < g.End || m.home(a) == i) {
			return true
		}
	}
	return false
}

// doomNeeds reports whether the group has entries to doom, or overlaps what has: then it may list the same objects.
func (m *Manifest) doomNeeds(e *Edit, g *Group) bool {
	if e.DoomBefore <= 0 && e.SupersededBefore <= 0 {
		return false
	}
	return e.dooms(g.OldestDeadAt, g.OldestSuperseded) ||
		slices.ContainsFunc(m.Groups, func(x Group) bool {
			return x.Base < g.End && g.Base < x.End && e.dooms(x.OldestDeadAt, x.OldestSuperseded)
		}) ||
		slices.ContainsFunc(m.Entries, func(x Entry) bool {
			if !e.due(&x) {
				return false
			}
			base, end := x.objectRange()
			return base < g.End && g.Base < end
		})
}

// dooms reports whether the edit dooms anything where these are the oldest times of death, all and superseded, 0 for none.
func (e *Edit) dooms(dead, superseded int64) bool {
	return dead != 0 && dead <= e.DoomBefore || superseded != 0 && superseded <= e.SupersededBefore
}

// due reports whether the edit may doom the entry.
func (e *Edit) due(en *Entry) bool {
	return en.State == Dead && (en.DeadAt <= e.DoomBefore || en.Reason == Superseded && en.DeadAt <= e.SupersededBefore)
}

// home is the group that a superseding entry belongs to by its order, -1 for the inline entries.
func (m *Manifest) home(a *Entry) int {
	if len(m.Groups) == 0 || len(m.Entries) > 0 && m.Entries[0].Base <= a.Base {
		return -1
	}
	i := len(m.Groups) - 1
	for i > 0 && m.Groups[i].Base > a.Base {
		i--
	}
	return i
}

// foldsInto reports whether the edit may fold inline entries into the last group.
func (m *Manifest) foldsInto(e *Edit, l Limits) bool {
	return len(m.Entries)+len(e.Add) > l.Inline && int(m.Groups[len(m.Groups)-1].Count)+l.Fold <= l.Group
}

// Apply computes the manifest after m. It changes nothing it is given. Loaded has the entries of at least NeedGroups, by
// object. The outcome depends on the arguments alone, so that a PUT without an answer can be repeated byte for byte.
// An error means that the edit does not fit the manifest: a fault of the caller's, or of its view of the partition.
func Apply(m *Manifest, e Edit, l Limits, loaded map[string][]Entry) (Change, error) {
	if err := m.admits(&e); err != nil {
		return Change{}, fmt.Errorf("edit %v: %w", m.Partition, err)
	}
	ed, err := newEditor(m, &e, l.fill(), loaded)
	if err != nil {
		return Change{}, fmt.Errorf("edit %v: %w", m.Partition, err)
	}
	for _, step := range []func(*Edit) error{ed.extend, ed.kill, ed.dropTopic, ed.revive, ed.doom, ed.drop} {
		if err := step(&e); err != nil {
			return Change{}, fmt.Errorf("edit %v: %w", m.Partition, err)
		}
	}
	ed.pruneGaps()
	c, err := ed.finish()
	if err == nil {
		err = c.Manifest.Check()
	}
	if err != nil {
		return Change{}, fmt.Errorf("edit %v: %w", m.Partition, err)
	}
	return c, nil
}

// admits checks what does not depend on entries: the identity of the next manifest and the edit's own fields.
func (m *Manifest) admits(e *Edit) error {
	same := e.Incarnation == m.Incarnation && e.LeaderEpoch == m.LeaderEpoch
	switch {
	case m.N > 0 && (e.Incarnation < m.Incarnation || e.Incarnation == m.Incarnation && e.LeaderEpoch < m.LeaderEpoch):
		return fmt.Errorf("incarnation %d, leader epoch %d after %d, %d", e.Incarnation, e.LeaderEpoch, m.Incarnation, m.LeaderEpoch)
	case e.N == 0 || same && e.N <= m.N:
		return fmt.Errorf("n %d after %d", e.N, m.N)
	case e.Time <= 0:
		return errors.New("no time")
	case e.DoomBefore >= e.Time || e.SupersededBefore >= e.Time:
		return fmt.Errorf("doom before %d, %d at %d", e.DoomBefore, e.SupersededBefore, e.Time)
	case e.LogStart > m.LogStart && e.Reason != RetentionTime && e.Reason != RetentionSize && e.Reason != RecordsDeleted:
		return fmt.Errorf("log start %d by %v", e.LogStart, e.Reason)
	case e.DropTopic && e.Revive:
		return errors.New("drop and revive at once")
	}
	return nil
}
