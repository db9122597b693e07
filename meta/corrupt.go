package meta

import "fmt"

// CorruptError is a record that cannot be read: its key, and why. errors.Is finds ErrUnsupported below it where the
// record is of a newer major version, which is not damage.
type CorruptError struct {
	Key string
	Err error
}

func (e *CorruptError) Error() string { return fmt.Sprintf("metadata record %s: %v", e.Key, e.Err) }
func (e *CorruptError) Unwrap() error { return e.Err }
