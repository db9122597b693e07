package tier

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/record"
)

func TestManifestPutWithoutAnswerIsRepeatedUnderTheSameKey(t *testing.T) { // PROTOCOLS 1.3
	for name, rule := range map[string]fault.Rule{
		"never arrived":    {Effect: fault.Fail},
		"arrived":          {Effect: fault.Lost},
		"arrives later":    {Effect: fault.Late, Delay: 30 * time.Second},
		"arrives at once":  {Effect: fault.Late, Delay: time.Millisecond},
		"is throttled":     {Effect: fault.Throttle},
		"arrived, 3 times": {Effect: fault.Lost, Count: 3},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				rule.Op, rule.Prefix = fault.Put, manifest.ManifestPrefix(partA)
				if rule.Count == 0 {
					rule.Count = 1
				}
				w.fault.SetRules(rule)
				n := w.lead(TopicConfig{})
				w.append(5)
				w.roll()
				settle(n)
				time.Sleep(time.Minute)
				synctest.Wait()
				w.wantArchived(n.p, 0, 5)
				wantEqual(t, "manifests", w.keys(manifest.ManifestPrefix(partA)), []string{manifest.ManifestKey(partA, 1, 1, 1)})
				if got := w.keys(manifest.SegmentPrefix(partA)); len(got) != 1 {
					t.Fatalf("segments %v", got)
				}
			})
		})
	}
}

func TestSegmentPutWithoutAnswerLeavesNoSecondObject(t *testing.T) {
	for _, effect := range []fault.Effect{fault.Fail, fault.Lost, fault.Late} {
		in(t, func(t *testing.T, w *world) {
			w.fault.SetRules(fault.Rule{Op: fault.Put, Prefix: manifest.SegmentPrefix(partA), Effect: effect, Count: 4, Delay: time.Minute})
			n := w.lead(TopicConfig{})
			w.append(5)
			w.roll()
			settle(n)
			time.Sleep(2 * time.Minute)
			w.append(30)
			settle(n)
			time.Sleep(time.Minute)
			synctest.Wait()
			w.wantArchived(n.p, 0, 35)
			m := w.check()
			if got, want := len(w.keys(manifest.SegmentPrefix(partA))), len(m.Entries); got != want {
				t.Fatalf("%d objects for %d entries", got, want)
			}
		})
	}
}

func TestRefusalWithOtherBytesTakesTheNextNumberAndOverwritesNothing(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		epoch := w.elect()
		// A former process in this epoch left its manifest 1 behind, uncommitted.
		e := manifest.Edit{Incarnation: 1, LeaderEpoch: epoch, N: 1, Time: 1}
		c, err := manifest.Apply(manifest.Empty("c1", partA, 0), e, manifest.Limits{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		foreign := c.Manifest.Encode()
		if _, err := w.mem.Put(t.Context(), c.Manifest.Key(), objstore.BytesBody(foreign), objstore.Cond{}); err != nil {
			t.Fatal(err)
		}
		_ = w.src.log.AssignEpoch(epoch)
		n := w.start(epoch, TopicConfig{})
		w.append(5)
		w.roll()
		n.p.Notify()
		time.Sleep(time.Second)
		if got := n.p.Manifest().N; got != 2 {
			t.Fatalf("committed number %d, want 2", got)
		}
		b, _, err := objstore.ReadAll(t.Context(), w.mem, c.Manifest.Key(), 1<<20)
		if err != nil || string(b) != string(foreign) {
			t.Fatalf("the foreign manifest was changed: %v", err)
		}
		w.wantArchived(n.p, 0, 5)
	})
}

func TestTransactionWithoutAnswerIsLookedUp(t *testing.T) {
	for _, lost := range []bool{false, true} {
		in(t, func(t *testing.T, w *world) {
			n := w.lead(TopicConfig{})
			w.ptrs.mu.Lock()
			w.ptrs.failAt, w.ptrs.lost = w.ptrs.calls+1, lost
			w.ptrs.mu.Unlock()
			w.append(5)
			w.roll()
			settle(n)
			time.Sleep(10 * time.Second)
			w.wantArchived(n.p, 0, 5)
			if got := len(w.ptrs.commits); got != 1 {
				t.Fatalf("lost answer %t: %d commits, want 1", lost, got)
			}
		})
	}
}

func TestChangeBesideThePointerNeedsNoNewManifest(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		w.ptrs.change(partA, func(*Pointer) {}) // the ISR
		w.append(5)
		w.roll()
		settle(n)
		w.wantArchived(n.p, 0, 5)
		wantEqual(t, "manifests", w.keys(manifest.ManifestPrefix(partA)), []string{manifest.ManifestKey(partA, 1, 1, 1)})
	})
}

func TestZombieLosesAndItsObjectsAreUploadedAgainThenSwept(t *testing.T) { // BUG-026
	in(t, func(t *testing.T, w *world) {
		zombie := w.lead(TopicConfig{})
		w.append(20)
		settle(zombie)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		through := zombie.p.Through()
		// The zombie uploads, but its transaction comes after the next election.
		w.ptrs.mu.Lock()
		w.ptrs.allFail = true
		w.ptrs.mu.Unlock()
		w.append(20)
		settle(zombie)
		w.ptrs.mu.Lock()
		w.ptrs.allFail = false
		w.ptrs.mu.Unlock()
		epoch := w.elect()
		_ = w.src.log.AssignEpoch(epoch)
		before := w.keys(manifest.SegmentPrefix(partA))
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := zombie.p.Err(); !errors.Is(err, ErrFenced) {
			t.Fatalf("zombie: %v, want fenced", err)
		}
		if got := w.ptrs.get(partA).Through; got != through {
			t.Fatalf("pointer through %d, want %d", got, through)
		}
		n := w.start(epoch, TopicConfig{})
		if got := n.p.Through(); got != through {
			t.Fatalf("the new leader adopted through %d, want the committed %d", got, through)
		}
		w.append(10)
		settle(n)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		w.wantArchived(n.p, 0, 50)
		m := w.check()
		for _, e := range m.Entries {
			if name, _ := manifest.ParseSegmentKey(e.Object); name.LeaderEpoch == 1 && e.Base >= through {
				t.Fatalf("entry [%d, %d) adopts the zombie's object", e.Base, e.End)
			}
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		m = w.check()
		after := w.keys(manifest.SegmentPrefix(partA))
		if len(after) != len(m.Entries) {
			t.Fatalf("%d objects for %d entries; before the election %d", len(after), len(m.Entries), len(before))
		}
		for _, key := range w.keys(manifest.ManifestPrefix(partA)) {
			if strings.Contains(key, "-0000000001-") {
				t.Fatalf("manifest %s of the old epoch is still there", key)
			}
		}
		w.wantArchived(n.p, 0, 50)
	})
}

func TestMissingOrBadManifestBehindThePointerIsNoFreshStart(t *testing.T) {
	for name, spoil := range map[string]func(*world, string){
		"missing": func(w *world, key string) { _ = w.mem.Delete(w.t.Context(), key) },
		"empty":   func(w *world, key string) { w.mem.Corrupt(key, func([]byte) []byte { return nil }) },
		"flipped": func(w *world, key string) {
			w.mem.Corrupt(key, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		},
		"pointer without a key": func(w *world, _ string) {
			w.ptrs.change(partA, func(p *Pointer) { p.Manifest = "" })
		},
		"pointer with another through": func(w *world, _ string) {
			w.ptrs.change(partA, func(p *Pointer) { p.Through++ })
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				n := w.lead(TopicConfig{})
				w.append(5)
				w.roll()
				settle(n)
				n.stop()
				spoil(w, w.ptrs.get(partA).Manifest)
				epoch := w.elect()
				a := New(w.fault, w.info, w.ptrs, nil, w.opts)
				_, err := a.Lead(t.Context(), partA, epoch, w.src, TopicConfig{Name: "a"})
				var bad *ManifestError
				if !errors.As(err, &bad) {
					t.Fatalf("lead: %v, want a ManifestError", err)
				}
			})
		})
	}
}

func TestLeadComparesEpochHistoriesNotOffsets(t *testing.T) { // PROTOCOLS 1.6
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		w.append(20)
		w.roll()
		settle(n)
		n.stop()
		lead := func() error {
			epoch := w.elect()
			a := New(w.fault, w.info, w.ptrs, nil, w.opts)
			_, err := a.Lead(t.Context(), partA, epoch, w.src, TopicConfig{Name: "a"})
			return err
		}
		if err := lead(); err != nil {
			t.Fatal(err)
		}
		var d *DivergedError
		w.newLog() // shorter: a lost disk
		if err := lead(); !errors.As(err, &d) || d.At != 0 {
			t.Fatalf("empty log: %v", err)
		}
		w.newLog()
		w.mark = "other"
		w.epoch = 1
		w.append(10) // the same epoch up to 10, then another one: as long, and different
		w.epoch = 9
		w.append(30)
		if err := lead(); !errors.As(err, &d) || d.At != 10 || d.Through != 20 {
			t.Fatalf("diverging log: %v", err)
		}
		// The way out: start from the archive.
		a := New(w.fault, w.info, w.ptrs, nil, w.opts)
		s, err := a.StartState(t.Context(), partA)
		if err != nil || s.Through != 20 || len(s.Epochs) != 1 {
			t.Fatalf("start state %+v, %v", s, err)
		}
		w.newLog()
		if err := w.src.log.StartAt(s.LogStart, s.Through, s.Epochs, s.Producers, s.LastAppend); err != nil {
			t.Fatal(err)
		}
		w.mark = ""
		n = w.lead(TopicConfig{})
		w.append(10)
		w.roll()
		settle(n)
		w.wantArchived(n.p, 0, 30)
	})
}

func TestLeadRefusesAnEpochThatIsNotTheRecords(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.elect()
		w.elect()
		a := New(w.fault, w.info, w.ptrs, nil, w.opts)
		for epoch, want := range map[int32]error{1: ErrFenced, 3: ErrBehind} {
			if _, err := a.Lead(t.Context(), partA, epoch, w.src, TopicConfig{}); !errors.Is(err, want) {
				t.Fatalf("epoch %d: %v, want %v", epoch, err, want)
			}
		}
		w.ptrs.change(partA, func(p *Pointer) { p.Incarnation = 2 })
		if _, err := a.Lead(t.Context(), partA, 2, w.src, TopicConfig{}); !errors.Is(err, ErrFenced) {
			t.Fatalf("other incarnation: %v", err)
		}
	})
}

func TestLeaderChangeWithOtherSegmentBordersKeepsEachOffsetOnce(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		for range 3 {
			w.append(11)
			settle(n)
			time.Sleep(11 * time.Second) // tails and rolled segments, borders at 17, 34
		}
		n.stop()
		w.newLog() // a follower whose segments are cut elsewhere
		old := w.epoch
		w.epoch = old
		w.append(5)
		w.roll()
		w.append(20)
		w.roll()
		w.append(8)
		n = w.lead(TopicConfig{})
		for range 4 {
			w.append(9)
			settle(n)
			time.Sleep(11 * time.Second)
			synctest.Wait()
			w.wantArchived(n.p, 0, n.p.Through())
		}
		w.roll()
		settle(n)
		w.wantArchived(n.p, 0, 69)
		w.check()
	})
}

func TestDamagedLocalBatchIsNeverArchived(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		w.src.hw.Store(0)
		w.append(12)
		w.roll()
		sp, err := w.src.log.Read(6, 12, 1)
		if err != nil {
			t.Fatal(err)
		}
		name, pos := sp.File.Name(), sp.Pos
		sp.Release()
		f, err := w.fs.OpenFile(name, 2, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{0xff}, pos+record.HeaderSize+20); err != nil {
			t.Fatal(err)
		}
		w.src.hw.Store(12)
		settle(n)
		if n.p.Through() != 0 || len(w.keys(manifest.SegmentPrefix(partA))) != 0 {
			t.Fatalf("through %d, objects %v", n.p.Through(), w.keys(manifest.SegmentPrefix(partA)))
		}
		var bad *localseg.CorruptError
		_, err = buildSegment(t.Context(), w.src.log, part{base: 0, end: 12}, segmentOf{partition: partA, chunkBytes: 1024})
		if !errors.As(err, &bad) || bad.Pos != pos {
			t.Fatalf("describe: %v, want the batch at %d", err, pos)
		}
	})
}

func TestStoreOutageIsMetWithBackOff(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		w.fault.SetRules(fault.Rule{Effect: fault.Fail})
		w.append(100)
		w.roll()
		before := w.fault.Calls(fault.Any)
		for range 100 {
			n.p.Notify()
			time.Sleep(6 * time.Second)
		}
		if got := w.fault.Calls(fault.Any) - before; got < 10 || got > 60 {
			t.Fatalf("%d requests in ten minutes of outage", got)
		}
		w.fault.SetRules()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.wantArchived(n.p, 0, 100)
	})
}
