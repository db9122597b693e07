package localseg_test

import (
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/localseg/localsegtest"
	"github.com/varvelog/varve/record"
)

func wantTime(t *testing.T, l *localseg.Log, ts, offset, at int64) {
	t.Helper()
	got, err := l.OffsetForTime(ts)
	if err != nil || got.Offset != offset || got.Timestamp != at {
		t.Fatalf("time %d: %+v, %v; want offset %d timestamp %d", ts, got, err, offset, at)
	}
}

func wantMax(t *testing.T, l *localseg.Log, offset, at int64) {
	t.Helper()
	got, err := l.MaxTimestamp()
	if err != nil || got.Offset != offset || got.Timestamp != at {
		t.Fatalf("max: %+v, %v; want offset %d timestamp %d", got, err, offset, at)
	}
}

// BUG-001
func TestTimeInsideABatch(t *testing.T) {
	const B = 1700000000000
	l := open(t, vfs.NewMem(), localseg.Options{Config: small})
	add(t, l, 4, localsegtest.Plain(t, B, B+10, B+10, B+20))
	for _, c := range [][3]int64{{B, 0, B}, {B + 5, 1, B + 10}, {B + 10, 1, B + 10}, {B + 11, 3, B + 20}, {B + 20, 3, B + 20}, {B + 21, -1, -1}} {
		wantTime(t, l, c[0], c[1], c[2])
	}
	if got, _ := l.OffsetForTime(B); got.LeaderEpoch != 4 {
		t.Fatalf("leader epoch %d", got.LeaderEpoch)
	}
}

// BUG-019
func TestTimeNoneFound(t *testing.T) {
	l := open(t, vfs.NewMem(), localseg.Options{Config: small})
	wantTime(t, l, 0, -1, -1)
	wantMax(t, l, -1, -1)
	add(t, l, 0, localsegtest.Plain(t, 1000, 2000, 3000))
	wantTime(t, l, 3001, -1, -1)
	if err := l.SetLogStart(3); err != nil {
		t.Fatal(err)
	}
	wantTime(t, l, 0, -1, -1)
	wantMax(t, l, -1, -1)
}

// BUG-038
func TestMaxTimestampIsTheFirstRecordWithIt(t *testing.T) {
	for _, codec := range []record.Codec{0, 1, 4} {
		l := open(t, vfs.NewMem(), localseg.Options{Config: small})
		add(t, l, 0, localsegtest.Batch(t, record.BatchOptions{ProducerID: -1, Codec: codec}, 100, 300, 200))
		wantMax(t, l, 1, 300)
		add(t, l, 0, localsegtest.Plain(t, 300))
		wantMax(t, l, 1, 300)
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
		add(t, l, 0, localsegtest.Plain(t, 300, 300))
		wantMax(t, l, 1, 300)
		if err := l.SetLogStart(2); err != nil { // the largest is deleted: the next one is found
			t.Fatal(err)
		}
		wantMax(t, l, 3, 300)
		wantTime(t, l, 150, 2, 200)
	}
}

// BUG-060
func TestLogAppendTimeLookUps(t *testing.T) {
	c := small
	c.LogAppendTime = true
	l := open(t, vfs.NewMem(), localseg.Options{Config: c})
	at := add(t, l, 0, localsegtest.Plain(t, 1, 50000, 100000)).AppendTime
	wantTime(t, l, at, 0, at)
	wantTime(t, l, at-1, 0, at)
	wantTime(t, l, at+1, -1, -1)
	wantMax(t, l, 0, at)
}

// Look-ups over many segments with timestamps out of order agree with a search of all records.
func TestTimesAgreeWithAScan(t *testing.T) {
	m := vfs.NewMem()
	l := open(t, m, localseg.Options{Config: small})
	var all []int64
	for i := range int64(300) {
		a, b := 1000+i*3-(i%7)*20, 1000+i*3+(i%5)*15
		add(t, l, 0, localsegtest.Plain(t, a, b))
		all = append(all, a, b)
	}
	check := func(start int64) {
		t.Helper()
		maxAt := start
		for o := start; o < int64(len(all)); o++ {
			if all[o] > all[maxAt] {
				maxAt = o
			}
		}
		wantMax(t, l, maxAt, all[maxAt])
		for ts := int64(850); ts < 2000; ts += 3 {
			want := int64(-1)
			for o := start; o < int64(len(all)) && want < 0; o++ {
				if all[o] >= ts {
					want = o
				}
			}
			if want < 0 {
				wantTime(t, l, ts, -1, -1)
			} else {
				wantTime(t, l, ts, want, all[want])
			}
		}
	}
	check(0)
	closeClean(t, l)
	l = open(t, m, localseg.Options{Config: small, Clean: true, Files: localseg.NewFileCache(1)})
	check(0)
	if err := l.SetLogStart(333); err != nil {
		t.Fatal(err)
	}
	check(333)
}
