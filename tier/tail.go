package tier

import "github.com/varvelog/varve/manifest"

// The tail: what is committed and waits in a segment that has not rolled. After the lag it goes up as an object of its own,
// which the object of the rolled segment supersedes. A bundle of many partitions' tails will take this file's place; the
// rest of the package knows of tails only what is here.
//
// Cost: a record is uploaded once with its segment and a few times before, since small tails are merged as they grow in
// number: each new tail takes along the ones before it that are not larger than twice what it has so far. So a segment
// that fills slowly has a number of live tails, and each of its bytes a number of uploads, that grow with the logarithm of
// its size only.

// tailPart is the tail to upload now: everything committed above archived-through, bytes of it, and the small tails before it.
func tailPart(m *manifest.Manifest, localStart, committed, bytes int64) part {
	p := part{base: m.Through, end: committed, tail: true}
	size := max(bytes, 1)
	for i := len(m.Entries) - 1; i >= 0; i-- {
		e := &m.Entries[i]
		if e.State != manifest.Live {
			continue
		}
		if !mergeable(e, p.base, localStart) || e.DataBytes > 2*size {
			break
		}
		p.base = e.Base
		size += e.DataBytes
	}
	return p
}

// tailsBegin is the offset where the live tails begin that end the archive, or archived-through if there are none: from
// there on a rolled segment is to be uploaded. Tails that the local log does not hold any more stay as they are.
func tailsBegin(m *manifest.Manifest, localStart int64) int64 {
	base := m.Through
	for i := len(m.Entries) - 1; i >= 0; i-- {
		e := &m.Entries[i]
		if e.State != manifest.Live {
			continue
		}
		if !mergeable(e, base, localStart) {
			break
		}
		base = e.Base
	}
	return base
}

// mergeable: the live entry is a tail that ends at base, whose records the local log has.
func mergeable(e *manifest.Entry, base, localStart int64) bool {
	return e.Tail && e.End == base && e.Base >= localStart
}

// tailEnd is end, or the end of the live tail that end lies inside of.
func tailEnd(m *manifest.Manifest, end int64) int64 {
	for i := range m.Entries {
		if e := &m.Entries[i]; e.State == manifest.Live && e.Base < end && end < e.End {
			return e.End
		}
	}
	return end
}
