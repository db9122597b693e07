// Package wallclock is the clock that people read: the time of day, which an operator or NTP may set forward or back at any moment. What
// is written down for others, or compared with what others have written, goes by it. Durations and deadlines inside a process never do:
// they are differences of time.Now, which no setting disturbs.
//
// It is a seam so that a simulation can set the clock of one broker of several.
package wallclock

import "time"

// Clock says what time it is. The zero value is the system's clock. Concurrent if the function is.
type Clock func() time.Time

// Now is the time of day, without the reading that would let it be used for durations.
func (c Clock) Now() time.Time {
	if c == nil {
		return time.Now().Round(0)
	}
	return c().Round(0)
}

// Ms is Now in milliseconds since 1970.
func (c Clock) Ms() int64 {
	if c == nil {
		return time.Now().UnixMilli()
	}
	return c().UnixMilli()
}
