package manifest

import (
	"cmp"
	"fmt"
	"math"
)

// State of an entry. Only PROTOCOLS 3 moves it, and only forward.
type State uint8

const (
	Live   State = iota
	Dead         // retention, deletion or a superseding object: restorable until the window has passed
	Doomed       // irrevocably released; restorers treat it as gone
)

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

var stateNames = [...]string{"live", "dead", "doomed"}

// Reason says why an entry died.
type Reason uint8

const (
	NoReason        Reason = iota
	RetentionTime          // retention.ms
	RetentionSize          // retention.bytes
	RecordsDeleted         // DeleteRecords moved the log start
	TopicDeleted           // the topic was deleted
	Superseded             // a live entry holds the same records
	RetentionUpload        // expired before it was uploaded (gaps only)
	Missing                // no object has the records: released for deletion, or lost (gaps only)
	Excluded               // left out by a restore that was told to (gaps only)
)

func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

var reasonNames = [...]string{"none", "retention.ms", "retention.bytes", "records deleted", "topic deleted", "superseded",
	"expired before upload", "missing", "excluded"}

// Entry is one segment object as a manifest lists it: records [Base, End). A restore may list an object trimmed:
// then [Base, End) is narrower than the object's own range.
type Entry struct {
	Base, End    int64
	Archive      string // id of the archive that holds the object, "" for the manifest's own
	Object       string // key below that archive's prefix
	SizeBytes    int64  // of the whole object
	DataBytes    int64  // of the batches in it
	LeaderEpoch  int32  // of the uploader
	MaxTimestamp int64  // of its records, ms
	FirstAppend  int64  // append time of its first batch, ms
	LastAppend   int64  // append time of its last batch, ms; where that is not known exactly, the latest that it can be
	Tail         bool   // uploaded by time from an active segment, a rolled one will supersede it
	State        State
	DeadAt       int64 // ms by the store's clock, when State is not Live
	Reason       Reason
	SHA256       [32]byte // of the data part
}

// Contains reports whether offset lies in [Base, End).
func (e *Entry) Contains(offset int64) bool { return e.Base <= offset && offset < e.End }

// compareEntries is the order of a manifest's list, through its groups and its inline entries.
func compareEntries(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(a.End, b.End))
}

func (e *Entry) check() error {
	switch {
	case e.Base < 0 || e.End <= e.Base:
		return fmt.Errorf("entry [%d, %d) is no range", e.Base, e.End)
	case e.Object == "":
		return fmt.Errorf("entry [%d, %d) has no object", e.Base, e.End)
	case len(e.Object) > math.MaxUint16 || len(e.Archive) > math.MaxUint16:
		return fmt.Errorf("entry [%d, %d): its object's name is too long", e.Base, e.End)
	case e.DataBytes <= 0 || e.SizeBytes < e.DataBytes:
		return fmt.Errorf("entry [%d, %d): %d bytes of data in an object of %d", e.Base, e.End, e.DataBytes, e.SizeBytes)
	case e.LeaderEpoch < 0:
		return fmt.Errorf("entry [%d, %d): leader epoch %d", e.Base, e.End, e.LeaderEpoch)
	case e.FirstAppend > e.LastAppend:
		return fmt.Errorf("entry [%d, %d): append times [%d, %d]", e.Base, e.End, e.FirstAppend, e.LastAppend)
	case e.State > Doomed || e.Reason >= RetentionUpload:
		return fmt.Errorf("entry [%d, %d): %v, %v", e.Base, e.End, e.State, e.Reason)
	case (e.State == Live) != (e.Reason == NoReason) || e.State == Live && e.DeadAt != 0:
		return fmt.Errorf("entry [%d, %d) is %v, but died at %d by %v", e.Base, e.End, e.State, e.DeadAt, e.Reason)
	}
	return nil
}
