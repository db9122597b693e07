package tier

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore/fault"
)

func TestRolledSegmentsGoUpAtOnceAndReadBackEqual(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		w.append(100)
		w.roll()
		n.p.Notify()
		time.Sleep(time.Second)
		synctest.Wait()
		if n.p.Through() != 100 {
			t.Fatalf("through = %d a second after the roll, want 100", n.p.Through())
		}
		w.wantArchived(n.p, 0, 100)
		for off := int64(0); off < 100; off++ {
			d, err := n.p.Read(t.Context(), off, 1)
			if err != nil {
				t.Fatal(err)
			}
			if got := decode(t, d); len(got) != 1 || got[0].Offset != off || d.Base != off || d.Next != off+1 {
				t.Fatalf("read at %d of one byte: %d records, [%d, %d)", off, len(got), d.Base, d.Next)
			}
		}
		w.check()
	})
}

func TestTailGoesUpAfterTheLagAndIsSupersededByItsSegment(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		time.Sleep(time.Minute)
		w.append(3)
		n.p.Notify()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if got := n.p.Through(); got != 0 {
			t.Fatalf("through = %d before the lag, want 0", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantEqual(t, "live", entriesOf(n.p.Manifest(), manifest.Live), []string{"t[0,3)"})
		w.append(6) // takes the small tail before it along
		n.p.Notify()
		time.Sleep(11 * time.Second)
		wantEqual(t, "live", entriesOf(n.p.Manifest(), manifest.Live), []string{"t[0,9)"})
		w.append(2)
		n.p.Notify()
		time.Sleep(11 * time.Second)
		wantEqual(t, "live", entriesOf(n.p.Manifest(), manifest.Live), []string{"t[0,9)", "t[9,11)"})
		w.wantArchived(n.p, 0, 11)
		w.roll()
		w.append(1)
		n.p.Notify()
		time.Sleep(time.Second)
		wantEqual(t, "live", entriesOf(n.p.Manifest(), manifest.Live), []string{"[0,11)"})
		wantEqual(t, "dead", entriesOf(n.p.Manifest(), manifest.Dead), []string{"t[0,3)", "t[0,9)", "t[9,11)"})
		w.wantArchived(n.p, 0, 11)
		w.check()
	})
}

func TestAnIdlePartitionCostsNoRequests(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.held = nil // no marks: those are the broker's, one an interval
		n := w.lead(TopicConfig{RetentionMs: 1e12})
		w.append(50)
		w.roll()
		settle(n)
		time.Sleep(3 * time.Hour) // superseded tails are collected, orphans looked for
		synctest.Wait()
		before := w.fault.Calls(fault.Any)
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if got := w.fault.Calls(fault.Any) - before; got != 0 {
			t.Fatalf("%d requests in two idle days, want none", got)
		}
	})
}

func TestOnlyCommittedRecordsAreArchived(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		w.src.hw.Store(7)
		w.append(60)
		w.roll()
		settle(n)
		time.Sleep(15 * time.Second)
		if got := n.p.Through(); got != 7 {
			t.Fatalf("through = %d, want the committed 7", got)
		}
		w.src.hw.Store(60)
		settle(n)
		w.wantArchived(n.p, 0, 60)
	})
}

func TestFlushDoesNotWaitForTheLag(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		w.append(5)
		begin := time.Now()
		if err := n.p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d > time.Second {
			t.Fatalf("flush took %v", d)
		}
		w.wantArchived(n.p, 0, 5)
		n.p.Resign()
		w.append(1)
		if err := n.p.Flush(t.Context()); err != ErrResigned {
			t.Fatalf("flush after resigning: %v", err)
		}
	})
}

func TestDeletedRecordsBelowTheUploadAreAGap(t *testing.T) { // BUG-048
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		w.fault.SetRules(fault.Rule{Op: fault.Put, Effect: fault.Fail})
		w.append(200)
		w.roll()
		settle(n)
		if err := w.src.log.SetLogStart(45); err != nil {
			t.Fatal(err)
		}
		n.p.DeleteBefore(45)
		w.fault.SetRules()
		time.Sleep(time.Minute)
		synctest.Wait()
		m := w.check()
		if live := entriesOf(m, manifest.Live); live[0] != "[45,51)" || m.LogStart != 45 || m.Through != 200 {
			t.Fatalf("log start %d through %d, entries %v", m.LogStart, m.Through, live)
		}
		w.wantArchived(n.p, 45, 200)
		if _, err := n.p.Read(t.Context(), 44, 1); err == nil {
			t.Fatal("read below the log start succeeds")
		}
		// In the middle: archived, deleted before the upload, archived.
		w.fault.SetRules(fault.Rule{Op: fault.Put, Effect: fault.Fail})
		w.append(100)
		w.roll()
		settle(n)
		_ = w.src.log.SetLogStart(250)
		n.p.DeleteBefore(250)
		w.fault.SetRules()
		time.Sleep(time.Minute)
		synctest.Wait()
		m = w.check()
		// The object that was on its way when the records were deleted is committed, and dead.
		last := m.Gaps[len(m.Gaps)-1]
		if last.From != 217 || last.To != 250 || last.Reason != manifest.RecordsDeleted {
			t.Fatalf("gaps %v", m.Gaps)
		}
		w.wantArchived(n.p, 250, 300)
	})
}

func TestEverythingDeletedBeforeTheUploadMovesThroughWithoutAnObject(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		w.append(20)
		_ = w.src.log.SetLogStart(20)
		settle(n)
		if n.p.Through() != 20 || len(w.keys(manifest.SegmentPrefix(partA))) != 0 {
			t.Fatalf("through %d, objects %v", n.p.Through(), w.keys(manifest.SegmentPrefix(partA)))
		}
	})
}

func TestCopyDisabledUploadsNothingAndLaterRecordsTheLossAsAGap(t *testing.T) { // BUG-102, BUG-043
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		w.append(30)
		w.roll()
		settle(n)
		n.p.SetConfig(TopicConfig{Name: "a", CopyDisabled: true})
		w.append(60)
		w.roll()
		w.append(1)
		settle(n)
		if n.p.Through() != 30 {
			t.Fatalf("through = %d with copying disabled, want 30", n.p.Through())
		}
		if _, err := w.src.log.Retain(time.Now().UnixMilli(), 90); err != nil { // the local limits delete it
			t.Fatal(err)
		}
		local := w.src.log.LocalStart()
		if local <= 30 {
			t.Fatalf("local start %d: nothing was deleted", local)
		}
		n.p.SetConfig(TopicConfig{Name: "a"})
		settle(n)
		time.Sleep(11 * time.Second)
		m := w.check()
		if len(m.Gaps) != 1 || m.Gaps[0].From != 30 || m.Gaps[0].To != local || m.Gaps[0].Reason != manifest.RetentionUpload {
			t.Fatalf("gaps %v, want [30, %d)", m.Gaps, local)
		}
		d, err := n.p.Read(context.Background(), 35, 100)
		if err != nil {
			t.Fatal(err)
		}
		if got := decode(t, d); len(got) == 0 || got[0].Offset != local {
			t.Fatalf("read inside the gap: %d records, base %d", len(got), d.Base)
		}
	})
}

func TestUploadWaitsNoLongerWhereTheClockIsSetBack(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		var ahead time.Duration
		w.opts.MaxLag = 10 * time.Second
		w.opts.Wall = func() time.Time { return time.Now().Add(ahead) }
		n := w.lead(TopicConfig{})
		w.append(3)
		n.p.Notify()
		synctest.Wait()
		ahead = -time.Hour
		w.append(3)
		n.p.Notify()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if n.p.Through() != 6 {
			t.Fatalf("archived through %d after 15 s, want 6", n.p.Through())
		}
		// A new leader finds records whose append times are ahead of its clock.
		w.append(3)
		n.stop()
		n = w.lead(TopicConfig{})
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if n.p.Through() != 9 {
			t.Fatalf("archived through %d after 15 s, want 9", n.p.Through())
		}
	})
}
