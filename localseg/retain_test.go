package localseg_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/localseg/localsegtest"
)

func asCorrupt(err error, to **localseg.CorruptError) bool { return errors.As(err, to) }

// filled has segments of 10 records each, one batch a record, timestamps 1000+offset, and the last one half full.
func filled(t *testing.T, m vfs.FS, c localseg.Config) *localseg.Log {
	t.Helper()
	c.SegmentBytes = 720
	if c.RetentionMs == 0 {
		c.RetentionMs = -1
	}
	l := open(t, m, localseg.Options{Config: c})
	for i := range 95 {
		add(t, l, 0, localsegtest.Plain(t, int64(1000+i)))
	}
	return l
}

func TestRetention(t *testing.T) {
	for name, c := range map[string]struct {
		config        localseg.Config
		now, archived int64
		start, local  int64 // afterwards
	}{
		"nothing is old":             {localseg.Config{RetentionMs: 50}, 1059, 0, 0, 0},
		"by time, strictly older":    {localseg.Config{RetentionMs: 50}, 1080, 0, 30, 30},
		"by time, all":               {localseg.Config{RetentionMs: 50}, 9999, 0, 95, 95}, // BUG-091
		"by size":                    {localseg.Config{RetentionBytes: 2000}, 0, 0, 60, 60},
		"by size keeps what it may":  {localseg.Config{RetentionBytes: 720 * 20}, 0, 0, 0, 0},
		"compacted topics keep":      {localseg.Config{RetentionMs: 50, Compact: true}, 9999, 0, 0, 0},
		"tiered: local by size":      {localseg.Config{Tiered: true, RetentionBytes: -1, LocalRetentionBytes: 2000}, 0, 95, 0, 60},
		"tiered: only what is there": {localseg.Config{Tiered: true, LocalRetentionBytes: 2000}, 0, 35, 0, 30},
		"tiered: local by time":      {localseg.Config{Tiered: true, LocalRetentionMs: 50}, 1080, 95, 0, 30},
		"tiered: -2 is the whole":    {localseg.Config{Tiered: true, RetentionBytes: 2000, LocalRetentionBytes: -2, LocalRetentionMs: -2}, 0, 95, 0, 60}, // BUG-102
		"copying off: by size":       {localseg.Config{Tiered: true, CopyDisabled: true, RetentionBytes: 2000, LocalRetentionBytes: 720}, 0, 10, 60, 60}, // BUG-102
		"copying off: by time":       {localseg.Config{Tiered: true, CopyDisabled: true, RetentionMs: 50, LocalRetentionMs: 1}, 1080, 0, 30, 30},
		"tiered: nothing archived":   {localseg.Config{Tiered: true, LocalRetentionBytes: 2000, LocalRetentionMs: 1}, 9999, 0, 0, 0},
		"tiered: all archived":       {localseg.Config{Tiered: true, LocalRetentionMs: 1}, 9999, 95, 0, 95},
	} {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem()
			l := filled(t, m, c.config)
			size := l.SizeBytes()
			n, err := l.Retain(c.now, c.archived)
			if err != nil || l.LogStart() != c.start || l.LocalStart() != c.local || l.LEO() != 95 {
				t.Fatalf("log start %d, want %d; local %d, want %d; LEO %d, %v", l.LogStart(), c.start, l.LocalStart(), c.local, l.LEO(), err)
			}
			if l.SizeBytes() != size-n || n != c.local*72 {
				t.Fatalf("%d bytes deleted, size %d of %d", n, l.SizeBytes(), size)
			}
			if _, err := l.Read(c.local-1, 95, 10); c.local > 0 {
				want := localseg.ErrOffsetOutOfRange
				if c.config.Tiered && !c.config.CopyDisabled {
					want = localseg.ErrBelowLocal
				}
				if !errors.Is(err, want) {
					t.Fatalf("read below: %v", err)
				}
			}
			m.Crash(3) // LEO never goes back, nor does what was deleted come back in pieces
			c.config.SegmentBytes = 720
			l = open(t, m, localseg.Options{Config: c.config})
			if c.local == 95 && l.LEO() != 95 {
				t.Fatalf("LEO %d after a crash", l.LEO())
			}
			if c.config.Tiered && l.LogStart() != c.start {
				t.Fatalf("log start %d after a crash", l.LogStart())
			}
			add(t, l, 1, localsegtest.Plain(t, 1))
			readAll(t, l, l.LocalStart(), 500)
		})
	}
}

func TestDeletedFilesWaitForTheirDelay(t *testing.T) {
	m := vfs.NewMem()
	l := filled(t, m, localseg.Config{RetentionMs: 1, FileDeleteDelayMs: 100})
	deleted := func() (n int) {
		es, _ := m.ReadDir(dir)
		for _, e := range es {
			if strings.HasSuffix(e.Name(), ".deleted") {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		now  int64
		some bool
	}{{5000, true}, {5099, true}, {5100, false}} {
		if _, err := l.Retain(c.now, 0); err != nil || deleted() > 0 != c.some {
			t.Fatalf("at %d: %d files wait, %v", c.now, deleted(), err)
		}
	}
}

// BUG-087: on a LogAppendTime topic the client's future timestamps do not hold retention up.
func TestRetentionByAppendTime(t *testing.T) {
	l := open(t, vfs.NewMem(), localseg.Options{Config: localseg.Config{SegmentBytes: 720, LogAppendTime: true, RetentionMs: 10000}})
	var last int64
	for range 30 {
		last = add(t, l, 0, localsegtest.Plain(t, 1<<42)).AppendTime
	}
	if n, err := l.Retain(last+20000, 0); err != nil || n == 0 || l.LogStart() != 30 {
		t.Fatalf("%d bytes deleted, log start %d, %v", n, l.LogStart(), err)
	}
}

func TestRetainRollsByTime(t *testing.T) {
	rolls := 0
	l, err := localseg.Open(vfs.NewMem(), dir, localseg.Options{Config: localseg.Config{SegmentMs: 1000, RetentionMs: -1}, OnRoll: func() { rolls++ }})
	if err != nil {
		t.Fatal(err)
	}
	at := add(t, l, 0, localsegtest.Plain(t, 5)).AppendTime
	for _, c := range []struct {
		now  int64
		want int
	}{{at + 1000, 0}, {at + 1001, 1}, {at + 9000, 1}} {
		if _, err := l.Retain(c.now, 0); err != nil || rolls != c.want {
			t.Fatalf("at %d: %d rolls, %v", c.now-at, rolls, err)
		}
	}
	if err := l.FlushRolled(); err != nil || l.RecoveryPoint() != 1 {
		t.Fatalf("recovery point %d, %v", l.RecoveryPoint(), err)
	}
}

func TestLogStartSurvives(t *testing.T) {
	m := vfs.NewMem()
	l := filled(t, m, localseg.Config{})
	if err := l.SetLogStart(37); err != nil {
		t.Fatal(err)
	}
	m.Crash(1)
	l = open(t, m, localseg.Options{Config: localseg.Config{SegmentBytes: 720, RetentionMs: -1}})
	if l.LogStart() != 37 {
		t.Fatalf("log start %d", l.LogStart())
	}
	if n, err := l.Retain(0, 0); err != nil || n != 30*72 || l.LocalStart() != 37 {
		t.Fatalf("%d bytes deleted, local start %d, %v", n, l.LocalStart(), err)
	}
}
