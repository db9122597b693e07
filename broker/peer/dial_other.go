//go:build !linux

package peer

import "time"

// setUserTimeout does nothing here: the request's own timeout is what there is.
func setUserTimeout(int, time.Duration) error { return nil }
