package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestMoments(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		text, tz, want, err string
	}{
		{"2026-11-29T11:00:00Z", "", "2026-11-29T11:00:00Z", ""},
		{"2026-11-29T11:00:00.123+02:00", "", "2026-11-29T09:00:00.123Z", ""},
		{"2026-11-29 11:00:00", "Europe/Berlin", "2026-11-29T10:00:00Z", ""},
		{"2026-11-29 11:00", "UTC", "2026-11-29T11:00:00Z", ""},
		{"2026-11-29T11:00:00", "", "", "has no zone"},
		{"2026-11-29T12:00:01Z", "", "", "in the future"},
		{"yesterday", "", "", "is no time"},
		{"1700000000", "", "", "is no time"},
		{"2026-11-29 11:00:00", "Mars/Base", "", "--tz Mars/Base"},
		{"2026-03-29 02:30:00", "Europe/Berlin", "", "jumped over"},
		{"2026-10-25 02:30:00", "Europe/Berlin", "", "was twice"},
	} {
		got, err := parseMoment("--target", c.text, c.tz, now)
		if c.err != "" {
			var e *exitError
			if err == nil || !strings.Contains(err.Error(), c.err) || !errors.As(err, &e) || e.code != exitUsage {
				t.Errorf("%s in %q: error %v, want a usage error with %q", c.text, c.tz, err, c.err)
			}
			continue
		}
		if err != nil || got.UTC().Format(time.RFC3339Nano) != c.want {
			t.Errorf("%s in %q: %v %v, want %s", c.text, c.tz, got.UTC(), err, c.want)
		}
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 30: "1.0 GiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}
