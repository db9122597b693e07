package main

import (
	"fmt"
	"time"
)

// parseMoment reads a moment: RFC 3339 with a zone, or without one if tz names it. A moment in the future is an error: nothing
// can be known of it.
func parseMoment(flag, text, tz string, now time.Time) (time.Time, error) {
	t, err := parseTime(flag, text, tz)
	if err != nil {
		return t, err
	}
	if t.After(now) {
		return t, usagef("%s %s is in the future; it is now %s", flag, text, now.UTC().Format(time.RFC3339))
	}
	return t, nil
}

func parseTime(flag, text, tz string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04"} {
		if _, err := time.Parse(layout, text); err != nil {
			continue
		}
		if tz == "" {
			return time.Time{}, usagef("%s %s has no zone: write %sZ for UTC, +02:00 or the like at its end, or give --tz", flag, text, text)
		}
		zone, err := time.LoadLocation(tz)
		if err != nil {
			return time.Time{}, usagef("--tz %s: %v", tz, err)
		}
		return local(flag, layout, text, zone)
	}
	return time.Time{}, usagef("%s %q is no time; write it as RFC 3339, %s", flag, text, time.Date(2026, 11, 29, 14, 30, 0, 0, time.UTC).Format(time.RFC3339))
}

// local reads a wall time in zone and refuses one that the clocks jumped over or showed twice: which moment is meant must be said.
func local(flag, layout, text string, zone *time.Location) (time.Time, error) {
	t, err := time.ParseInLocation(layout, text, zone)
	if err != nil {
		return t, usagef("%s %q: %v", flag, text, err)
	}
	wall, _ := time.Parse(layout, text)
	if same := func(u time.Time) bool { return u.In(zone).Format(layout) == wall.Format(layout) }; !same(t) {
		return t, usagef("%s %s does not exist in %s: the clocks jumped over it", flag, text, zone)
	} else {
		for _, d := range []time.Duration{-time.Hour, time.Hour, -30 * time.Minute, 30 * time.Minute} {
			if u := t.Add(d); same(u) {
				return t, usagef("%s %s was twice in %s: write %s or %s", flag, text, zone, t.Format(time.RFC3339), u.Format(time.RFC3339))
			}
		}
	}
	return t, nil
}

// stamp writes a moment for people.
func stamp(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// size writes bytes for people.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n), -1
	for v >= unit && i < 4 {
		v /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[i])
}
