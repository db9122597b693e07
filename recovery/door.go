// Package recovery brings topics, or a whole cluster, back as they were, from a bucket alone: inventory, target, plan,
// execution, verification. It needs no broker and no metadata store of the source, and writes to the source nothing but a
// lease.
//
// The command line calls it, and a broker that restores a topic into its cluster (Attach). A restore copies no record that
// it need not: the manifests that it writes refer to the source's objects, trimmed to the target. A crash at any point leaves
// the source as it was; Cluster.Restore says what it leaves behind at the destination, and goes on by doing it again.
// Verify reads everything and changes nothing.
package recovery

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers branch on.
var (
	// ErrEmpty: there is nothing in the bucket.
	ErrEmpty = errors.New("the bucket is empty")
	// ErrNotArchive: the bucket holds something, but no archive.
	ErrNotArchive = errors.New("the bucket holds no varve archive")
	// ErrDone: the directory holds a finished restore.
	ErrDone = errors.New("already restored")
	// ErrUnfinished: a restore into the directory was interrupted.
	ErrUnfinished = errors.New("an unfinished restore is in it; run the same restore again, or remove the directory")
	// ErrInUse: the destination is used by another process, or holds something else.
	ErrInUse = errors.New("destination is in use")
	// ErrRequest: what is asked for contradicts itself or names what is not there.
	ErrRequest = errors.New("invalid request")
)

// TargetError: the target cannot be restored. Window is what can be.
type TargetError struct {
	Reason string
	Window Window
}

func (e *TargetError) Error() string {
	if e.Window.Empty() {
		return e.Reason + "; nothing can be restored from this archive yet"
	}
	return fmt.Sprintf("%s; the restorable window is %s to %s", e.Reason, Stamp(e.Window.From), Stamp(e.Window.To))
}

// Stamp writes a time in ms as RFC 3339 in UTC, to the millisecond.
func Stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format(stampLayout) }

const stampLayout = "2006-01-02T15:04:05.000Z07:00"

// Time is a time in ms whose JSON is RFC 3339 to the millisecond.
type Time int64

func (t Time) String() string { return Stamp(int64(t)) }

// MarshalText writes it as String does.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads RFC 3339; parts of a millisecond are cut off.
func (t *Time) UnmarshalText(b []byte) error {
	at, err := time.Parse(time.RFC3339Nano, string(b))
	if err == nil {
		*t = Time(at.UnixMilli())
	}
	return err
}
