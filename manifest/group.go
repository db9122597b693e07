package manifest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/invariants"
)

// Group is an immutable object with a run of consecutive entries, so that a manifest stays small.
type Group struct {
	Object           string
	Base, End        int64 // Base of its first entry, largest End; neighbours overlap where one has superseded entries
	Count            int32 // entries in it
	LiveBytes        int64 // SizeBytes of live entries
	MaxTimestamp     int64 // of live entries, -1 if there is none
	FirstAppend      int64
	LastAppend       int64
	Dead, Doomed     int32    // entries in that state
	OldestDeadAt     int64    // smallest DeadAt of dead entries, 0 if there is none
	OldestSuperseded int64    // smallest DeadAt of those that are dead and superseded, 0 if there is none
	SHA256           [32]byte // of the group object
}

// Live is the number of live entries in it.
func (g *Group) Live() int32 { return g.Count - g.Dead - g.Doomed }

const (
	groupVersion = 1
	// groupMin is the encoded size of a group in a manifest with the shortest name.
	groupMin = 1 + 2 + 2*8 + 4 + 4*8 + 2*4 + 2*8 + 32
)

// EncodeGroup makes the body of a group object. The list is in a manifest's order and not empty.
func EncodeGroup(list []Entry) []byte {
	err := checkList(list)
	invariants.Assert(err == nil && len(list) > 0, "encode group of %d entries: %v", len(list), err)
	e := newEncoder(magicGroup, groupVersion, 64+len(list)*entryUsual)
	appendEntries(e, list)
	return e.finish()
}

// DecodeGroup is the inverse of EncodeGroup. Use Group.Open where the manifest's line about the group is at hand.
func DecodeGroup(b []byte) ([]Entry, error) {
	d, err := openEnvelope(b, magicGroup, groupVersion)
	if err != nil {
		return nil, err
	}
	list := d.entries()
	if d.err == nil && len(list) == 0 {
		d.fail("group is empty")
	}
	if err := d.close(); err != nil {
		return nil, err
	}
	return list, nil
}

// Open decodes the group's object and checks that it is the one that the manifest means.
func (g *Group) Open(b []byte) ([]Entry, error) {
	if sha256.Sum256(b) != g.SHA256 {
		// The cause is in the bytes if they are unsound by themselves; else it is another group.
		if _, err := DecodeGroup(b); err != nil {
			return nil, InObject(err, g.Object, 0)
		}
		return nil, &CorruptError{Object: g.Object, Err: errors.New("SHA-256 is not the one in the manifest")}
	}
	list, err := DecodeGroup(b)
	if err != nil {
		return nil, InObject(err, g.Object, 0)
	}
	if got := summarize(g.Object, list, g.SHA256); got != *g {
		return nil, &CorruptError{Object: g.Object, Err: fmt.Errorf("holds %d entries [%d, %d), the manifest says %d [%d, %d), or their states differ",
			got.Count, got.Base, got.End, g.Count, g.Base, g.End)}
	}
	return list, nil
}

// summarize makes a manifest's line about a group.
func summarize(object string, list []Entry, sum [32]byte) Group {
	g := Group{Object: object, Base: list[0].Base, Count: int32(len(list)), SHA256: sum,
		MaxTimestamp: -1, FirstAppend: math.MaxInt64, LastAppend: math.MinInt64}
	for i := range list {
		en := &list[i]
		g.End = max(g.End, en.End)
		g.FirstAppend = min(g.FirstAppend, en.FirstAppend)
		g.LastAppend = max(g.LastAppend, en.LastAppend)
		switch en.State {
		case Live:
			g.LiveBytes += en.SizeBytes
			g.MaxTimestamp = max(g.MaxTimestamp, en.MaxTimestamp)
		case Dead:
			g.Dead++
			g.OldestDeadAt = oldest(g.OldestDeadAt, en.DeadAt)
			if en.Reason == Superseded {
				g.OldestSuperseded = oldest(g.OldestSuperseded, en.DeadAt)
			}
		case Doomed:
			g.Doomed++
		}
	}
	return g
}

// oldest is the smaller of two times, where 0 is none.
func oldest(a, b int64) int64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

func (g *Group) check() error {
	switch {
	case g.Object == "" || len(g.Object) > maxNameBytes:
		return fmt.Errorf("group [%d, %d): object name of %d bytes", g.Base, g.End, len(g.Object))
	case g.Base < 0 || g.End <= g.Base:
		return fmt.Errorf("group [%d, %d) is no range", g.Base, g.End)
	case g.Count <= 0 || g.Dead < 0 || g.Doomed < 0 || int64(g.Dead)+int64(g.Doomed) > int64(g.Count):
		return fmt.Errorf("group [%d, %d): %d entries, %d dead, %d doomed", g.Base, g.End, g.Count, g.Dead, g.Doomed)
	case g.LiveBytes < 0 || (g.LiveBytes > 0) != (g.Live() > 0):
		return fmt.Errorf("group [%d, %d): %d live entries of %d bytes", g.Base, g.End, g.Live(), g.LiveBytes)
	case g.FirstAppend > g.LastAppend:
		return fmt.Errorf("group [%d, %d): append times [%d, %d]", g.Base, g.End, g.FirstAppend, g.LastAppend)
	}
	return nil
}

// A group's name is short (kind 1) where it is GroupKey of the manifest's own partition, else a string (kind 0).
func (g *Group) encode(e *encoder, own PartitionID) {
	if name, ok := ParseGroupKey(g.Object); ok && name.Partition == own {
		e.u8(1)
		e.u32(name.Incarnation)
		e.i32(name.LeaderEpoch)
		e.u64(name.N)
		e.i32(name.I)
	} else {
		e.u8(0)
		e.str(g.Object)
	}
	e.i64(g.Base)
	e.i64(g.End)
	e.i32(g.Count)
	e.i64(g.LiveBytes)
	e.i64(g.MaxTimestamp)
	e.i64(g.FirstAppend)
	e.i64(g.LastAppend)
	e.i32(g.Dead)
	e.i32(g.Doomed)
	e.i64(g.OldestDeadAt)
	e.i64(g.OldestSuperseded)
	e.raw(g.SHA256[:])
}

func (d *decoder) group(g *Group, own PartitionID) {
	switch kind := d.u8(); kind {
	case 0:
		g.Object = d.str()
		if name, ok := ParseGroupKey(g.Object); ok && name.Partition == own {
			d.fail("group %q is not in its short form", g.Object)
		}
	case 1:
		name := GroupName{ManifestName{own, d.u32(), d.i32(), d.u64()}, d.i32()}
		if name.LeaderEpoch < 0 || name.I < 0 || name.I >= MaxGroups {
			d.fail("group number %d of epoch %d", name.I, name.LeaderEpoch)
		}
		if d.err == nil {
			g.Object = name.Key()
		}
	default:
		d.fail("group name of kind %d", kind)
	}
	g.Base = d.i64()
	g.End = d.i64()
	g.Count = d.i32()
	g.LiveBytes = d.i64()
	g.MaxTimestamp = d.i64()
	g.FirstAppend = d.i64()
	g.LastAppend = d.i64()
	g.Dead = d.i32()
	g.Doomed = d.i32()
	g.OldestDeadAt = d.i64()
	g.OldestSuperseded = d.i64()
	g.SHA256 = d.sum()
}
