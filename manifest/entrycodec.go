package manifest

import "math"

// Most objects lie where SegmentKey puts them, in a few partitions (a restored one refers to its source's). So a list of
// entries begins with a table of those places, and an entry has a place's number and the four numbers of its key. An
// object of another name has noPlace, its archive and its key. There is one encoding only: places stand in the order of
// their first use.
type place struct {
	archive   string
	partition PartitionID
}

const (
	noPlace      = math.MaxUint16
	placeMin     = 2 + 16 + 4
	entryFixed   = 4*8 + 4 + 3*8 + 2 + 8 + 1 + 32
	entryMin     = 2 + 2 + 2 + entryFixed
	entryUsual   = 2 + 28 + entryFixed
	flagTail     = 1
	maxNameBytes = math.MaxUint16
)

func appendEntries(e *encoder, list []Entry) {
	var places []place
	numbers := make(map[place]uint16)
	where := make([]uint16, len(list))
	names := make([]SegmentName, len(list))
	for i := range list {
		where[i] = noPlace
		name, ok := ParseSegmentKey(list[i].Object)
		if !ok {
			continue
		}
		p := place{list[i].Archive, name.Partition}
		n, known := numbers[p]
		if !known && len(places) < noPlace {
			n, known = uint16(len(places)), true
			numbers[p] = n
			places = append(places, p)
		}
		if known {
			where[i], names[i] = n, name
		}
	}
	e.u16(uint16(len(places)))
	for _, p := range places {
		e.str(p.archive)
		e.raw(p.partition.Topic[:])
		e.i32(p.partition.Partition)
	}
	e.u32(uint32(len(list)))
	for i := range list {
		e.u16(where[i])
		if where[i] == noPlace {
			e.str(list[i].Archive)
			e.str(list[i].Object)
		} else {
			e.i64(names[i].Base)
			e.i64(names[i].Last)
			e.i32(names[i].LeaderEpoch)
			e.u64(names[i].Random)
		}
		appendEntry(e, &list[i])
	}
}

func appendEntry(e *encoder, en *Entry) {
	e.i64(en.Base)
	e.i64(en.End)
	e.i64(en.SizeBytes)
	e.i64(en.DataBytes)
	e.i32(en.LeaderEpoch)
	e.i64(en.MaxTimestamp)
	e.i64(en.FirstAppend)
	e.i64(en.LastAppend)
	var flags uint8
	if en.Tail {
		flags = flagTail
	}
	e.u8(flags)
	e.u8(uint8(en.State))
	e.i64(en.DeadAt)
	e.u8(uint8(en.Reason))
	e.raw(en.SHA256[:])
}

// entries reads what appendEntries wrote and checks each entry by itself and the order of the list.
func (d *decoder) entries() []Entry {
	places := d.places()
	n := d.count(entryMin)
	if n == 0 {
		if len(places) > 0 {
			d.fail("places without entries")
		}
		return nil
	}
	list := make([]Entry, n)
	used := 0
	for i := range list {
		en := &list[i]
		w := d.u16()
		switch {
		case w == noPlace:
			en.Archive, en.Object = d.str(), d.str()
			if _, ok := ParseSegmentKey(en.Object); ok && len(places) < noPlace {
				d.fail("object %q belongs to a place", en.Object)
			}
		case int(w) > used || int(w) >= len(places):
			d.fail("place %d of %d, %d used", w, len(places), used)
		default:
			used = max(used, int(w)+1)
			name := SegmentName{places[w].partition, d.i64(), d.i64(), d.i32(), d.u64()}
			if name.Base < 0 || name.Last < name.Base || name.LeaderEpoch < 0 {
				d.fail("object of records %d to %d, epoch %d", name.Base, name.Last, name.LeaderEpoch)
			}
			en.Archive = places[w].archive
			if d.err == nil {
				en.Object = name.Key()
			}
		}
		d.entry(en)
		if d.err == nil {
			if err := en.check(); err != nil {
				d.fail("%w", err)
			}
		}
		if d.err == nil && i > 0 && compareEntries(list[i-1], *en) > 0 {
			d.fail("entry [%d, %d) is out of order", en.Base, en.End)
		}
		if d.err != nil {
			return nil
		}
	}
	if used != len(places) {
		d.fail("%d places, %d used", len(places), used)
	}
	return list
}

func (d *decoder) places() []place {
	n := int(d.u16())
	if d.err == nil && n*placeMin > len(d.b)-d.off {
		d.fail("%d places, %d bytes remain", n, len(d.b)-d.off)
	}
	if d.err != nil || n == 0 {
		return nil
	}
	list := make([]place, n)
	seen := make(map[place]bool, n)
	for i := range list {
		p := &list[i]
		p.archive = d.str()
		copy(p.partition.Topic[:], d.next(16))
		p.partition.Partition = d.i32()
		if p.partition.Partition < 0 || seen[*p] {
			d.fail("place %d is negative or twice there", i)
		}
		if d.err != nil {
			return nil
		}
		seen[*p] = true
	}
	return list
}

func (d *decoder) entry(en *Entry) {
	en.Base = d.i64()
	en.End = d.i64()
	en.SizeBytes = d.i64()
	en.DataBytes = d.i64()
	en.LeaderEpoch = d.i32()
	en.MaxTimestamp = d.i64()
	en.FirstAppend = d.i64()
	en.LastAppend = d.i64()
	flags := d.u8()
	if flags&^flagTail != 0 {
		d.fail("entry flags %02x", flags)
	}
	en.Tail = flags&flagTail != 0
	en.State = State(d.u8())
	en.DeadAt = d.i64()
	en.Reason = Reason(d.u8())
	en.SHA256 = d.sum()
}
