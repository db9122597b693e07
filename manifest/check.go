package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Check tells what is wrong with the manifest by itself, without its groups' contents.
func (m *Manifest) Check() error {
	switch {
	case len(m.Cluster) > maxNameBytes || len(m.Prev) > maxNameBytes:
		return errors.New("cluster or predecessor has too long a name")
	case m.Partition.Partition < 0:
		return fmt.Errorf("partition %d", m.Partition.Partition)
	case m.LeaderEpoch < 0 || m.N == 0:
		return fmt.Errorf("leader epoch %d, n %d", m.LeaderEpoch, m.N)
	case m.LogStart < 0 || m.LogStart > m.Through:
		return fmt.Errorf("log start %d, archived through %d", m.LogStart, m.Through)
	}
	if err := checkEpochs(m.Epochs); err != nil {
		return err
	}
	if err := m.checkGaps(); err != nil {
		return err
	}
	for i := range m.Groups {
		g := &m.Groups[i]
		if err := g.check(); err != nil {
			return err
		}
		if g.End > m.Through {
			return fmt.Errorf("group [%d, %d) goes past archived-through %d", g.Base, g.End, m.Through)
		}
		if i > 0 && g.Base < m.Groups[i-1].Base {
			return fmt.Errorf("group [%d, %d) is out of order", g.Base, g.End)
		}
	}
	if n := len(m.Groups); n > 0 && len(m.Entries) > 0 && m.Entries[0].Base < m.Groups[n-1].Base {
		return fmt.Errorf("entry [%d, %d) lies before the last group", m.Entries[0].Base, m.Entries[0].End)
	}
	return m.checkEntries(m.Entries)
}

// CheckEntries is Check for the whole list: entries are those of all groups and the inline ones, in order. One object may
// be listed more than once, by a restore that left a piece of it out.
func (m *Manifest) CheckEntries(entries []Entry) error {
	return m.checkEntries(entries)
}

func (m *Manifest) checkGaps() error {
	for i, g := range m.Gaps {
		if g.From < 0 || g.To <= g.From || g.To > m.Through || g.Reason == NoReason || g.Reason > Excluded {
			return fmt.Errorf("gap [%d, %d) by %v, archived through %d", g.From, g.To, g.Reason, m.Through)
		}
		if i > 0 && g.From < m.Gaps[i-1].To {
			return fmt.Errorf("gap [%d, %d) is out of order", g.From, g.To)
		}
	}
	return nil
}

// checkEntries checks each entry, their order, and that the live ones follow each other without a hole up to Through.
func (m *Manifest) checkEntries(list []Entry) error {
	if err := checkList(list); err != nil {
		return err
	}
	last := int64(-1)
	for i := range list {
		en := &list[i]
		if en.End > m.Through {
			return fmt.Errorf("entry [%d, %d) goes past archived-through %d", en.Base, en.End, m.Through)
		}
		if en.State != Live {
			continue
		}
		if last >= 0 && m.skipGaps(last) != en.Base {
			return fmt.Errorf("live entry [%d, %d) does not follow offset %d", en.Base, en.End, last)
		}
		last = en.End
	}
	if last >= 0 && m.skipGaps(last) != m.Through {
		return fmt.Errorf("live entries end at %d, archived through %d", last, m.Through)
	}
	return nil
}

// skipGaps returns the first offset at or after off that no gap covers, if a gap begins at off.
func (m *Manifest) skipGaps(off int64) int64 {
	i, _ := slices.BinarySearchFunc(m.Gaps, off, func(g Gap, off int64) int { return cmp.Compare(g.From, off) })
	for ; i < len(m.Gaps) && m.Gaps[i].From == off; i++ {
		off = m.Gaps[i].To
	}
	return off
}

func checkList(list []Entry) error {
	for i := range list {
		if err := list[i].check(); err != nil {
			return err
		}
		if i > 0 && compareEntries(list[i-1], list[i]) > 0 {
			return fmt.Errorf("entry [%d, %d) is out of order", list[i].Base, list[i].End)
		}
	}
	return nil
}
