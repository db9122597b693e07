package localseg_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/localseg/localsegtest"
)

func TestAppendsAreStampedAfterWhatTheClockHasPassed(t *testing.T) {
	var c localseg.Clock
	a := open(t, vfs.NewMem(), localseg.Options{Config: small, Clock: &c})
	b, err := localseg.Open(vfs.NewMem(), "b-0", localseg.Options{Config: small, Clock: &c})
	if err != nil {
		t.Fatal(err)
	}
	add(t, a, 0, localsegtest.Plain(t, 1))
	hour := time.Now().Add(time.Hour).UnixMilli() // the clock was an hour ahead, and is set back
	c.Pass(hour)
	c.Pass(hour - 10)
	for _, l := range []*localseg.Log{a, b} {
		from := l.LEO()
		add(t, l, 0, localsegtest.Plain(t, 2))
		if ms, there, err := l.AppendedSince(from); err != nil || !there || ms != hour+1 {
			t.Fatalf("appended at %d, %v, %v, want %d", ms, there, err, hour+1)
		}
	}
	if ms, there, err := a.AppendedSince(a.LEO()); err != nil || there {
		t.Fatalf("something since %d, %v: nothing is there", ms, err)
	}
	if ms, _, err := a.AppendedSince(0); err != nil || ms >= hour {
		t.Fatalf("the first append was at %d, %v", ms, err)
	}
}

// slowFS calls back in the middle of a write to a segment.
type slowFS struct {
	vfs.FS
	during func()
}

type slowFile struct {
	vfs.File
	fs *slowFS
}

func (s *slowFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return &slowFile{f, s}, nil
}

func (f *slowFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.during()
	return f.File.WriteAt(p, off)
}

// A write may take as long as the disk likes; who asks meanwhile since when something is there has to be told of it.
func TestAppendUnderWayIsKnown(t *testing.T) {
	var l *localseg.Log
	calls := 0
	before := time.Now().UnixMilli()
	f := &slowFS{FS: vfs.NewMem(), during: func() {
		calls++
		if ms, there, err := l.AppendedSince(l.LEO()); err != nil || !there || ms < before || ms > time.Now().UnixMilli() {
			t.Errorf("during a write: %d, %v, %v", ms, there, err)
		}
	}}
	l, err := localseg.Open(f, "a-0", localseg.Options{Config: small})
	if err != nil {
		t.Fatal(err)
	}
	add(t, l, 0, localsegtest.Plain(t, 1))
	if calls == 0 {
		t.Fatal("nothing was written")
	}
	if _, there, _ := l.AppendedSince(l.LEO()); there {
		t.Fatal("the append is over")
	}
}

func TestFlushByTimeGoesOnWhereTheClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var ahead time.Duration
			c := localseg.Clock{Wall: func() time.Time { return time.Now().Add(ahead) }}
			cfg := small
			cfg.FlushMs = 10_000
			l := open(t, vfs.NewMem(), localseg.Options{Config: cfg, Clock: &c})
			add(t, l, 0, localsegtest.Plain(t, 1))
			ahead = by
			time.Sleep(9 * time.Second)
			add(t, l, 0, localsegtest.Plain(t, 1))
			if got := l.RecoveryPoint(); got != 0 {
				t.Fatalf("%s: flushed to %d after 9 s", by, got)
			}
			time.Sleep(2 * time.Second)
			add(t, l, 0, localsegtest.Plain(t, 1))
			if got := l.RecoveryPoint(); got != 3 {
				t.Fatalf("%s: flushed to %d after 11 s", by, got)
			}
			add(t, l, 0, localsegtest.Plain(t, 1))
			if got := l.RecoveryPoint(); got != 3 {
				t.Fatalf("%s: flushed to %d, again at once", by, got)
			}
		})
	}
}

func TestAppendTimesDoNotGoBackWithTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead time.Duration
		c := localseg.Clock{Wall: func() time.Time { return time.Now().Add(ahead) }}
		l := open(t, vfs.NewMem(), localseg.Options{Config: small, Clock: &c})
		last := int64(0)
		for _, by := range []time.Duration{0, time.Hour, -time.Hour, 0} {
			ahead = by
			a := add(t, l, 0, localsegtest.Plain(t, 1))
			if a.AppendTime < last {
				t.Fatalf("the clock is set to %s from now: appended at %d, the one before at %d", by, a.AppendTime, last)
			}
			last = a.AppendTime
			time.Sleep(3 * time.Second)
		}
	})
}
