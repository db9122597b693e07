package manifest

import (
	"errors"
	"fmt"
)

// ErrUnsupported: the object is sound and of a newer format than this program knows. Not corruption.
var ErrUnsupported = errors.New("format is newer than this program")

// CorruptError names bad bytes: at byte Offset of Object, or of the bytes given where Object is "".
type CorruptError struct {
	Object string
	Offset int64
	Err    error
}

func (e *CorruptError) Error() string {
	object := e.Object
	if object == "" {
		object = "object"
	}
	return fmt.Sprintf("%s: corrupt at byte %d: %v", object, e.Offset, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// InObject names the object in a decoder's error, whose bytes began at byte pos of it. Other errors pass unchanged
// but for the name in front.
func InObject(err error, object string, pos int64) error {
	if err == nil {
		return nil
	}
	var c *CorruptError
	if errors.As(err, &c) && c.Object == "" {
		return &CorruptError{Object: object, Offset: pos + c.Offset, Err: c.Err}
	}
	return fmt.Errorf("%s: %w", object, err)
}

func corruptf(off int, format string, args ...any) error {
	return &CorruptError{Offset: int64(off), Err: fmt.Errorf(format, args...)}
}
