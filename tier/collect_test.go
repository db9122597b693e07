package tier

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
)

const hour = int64(3600_000)

// archived leads, archives n records as rolled segments of 17 and returns the node.
func (w *world) archived(n int, c TopicConfig) *node {
	w.t.Helper()
	nd := w.lead(c)
	w.append(n)
	w.roll()
	settle(nd)
	if got := nd.p.Through(); got != w.src.log.LEO() {
		w.t.Fatalf("archived through %d, want %d", got, w.src.log.LEO())
	}
	return nd
}

func (w *world) segments() int { return len(w.keys(manifest.SegmentPrefix(partA))) }

func count(m *manifest.Manifest, s manifest.State) int {
	return len(slices.DeleteFunc(slices.Clone(m.Entries), func(e manifest.Entry) bool { return e.State != s }))
}

func TestRetentionMarksThenTheWindowDoomsThenObjectsGo(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(34, TopicConfig{RetentionMs: hour, RestoreWindowMs: 10 * hour})
		time.Sleep(50 * time.Minute)
		w.append(17)
		w.roll()
		settle(n)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		m := w.check()
		wantEqual(t, "dead", entriesOf(m, manifest.Dead), []string{"[0,17)", "[17,34)"})
		if m.LogStart != 34 || w.src.log.LogStart() != 34 || m.Entries[0].Reason != manifest.RetentionTime {
			t.Fatalf("log start %d, in the log %d, reason %v", m.LogStart, w.src.log.LogStart(), m.Entries[0].Reason)
		}
		time.Sleep(9 * time.Hour)
		synctest.Wait()
		if got := w.segments(); got != 3 {
			t.Fatalf("%d objects inside the window, want 3", got)
		}
		time.Sleep(80 * time.Minute)
		synctest.Wait()
		if m = w.check(); len(m.Entries) != 1 || w.segments() != 1 {
			t.Fatalf("after the window: %d entries, %d objects", len(m.Entries), w.segments())
		}
		time.Sleep(24 * time.Hour) // the last one has expired too
		synctest.Wait()
		if m = w.check(); len(m.Entries) != 0 || w.segments() != 0 || m.LogStart != 51 {
			t.Fatalf("at the end: %d entries, %d objects, log start %d", len(m.Entries), w.segments(), m.LogStart)
		}
	})
}

func TestLogStartRisesOnlyAfterTheCommit(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(34, TopicConfig{RetentionMs: hour})
		w.ptrs.mu.Lock()
		w.ptrs.allFail = true
		w.ptrs.mu.Unlock()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := w.src.log.LogStart(); got != 0 {
			t.Fatalf("log start %d without a commit", got)
		}
		w.wantArchived(n.p, 0, 34)
		w.ptrs.mu.Lock()
		w.ptrs.allFail = false
		w.ptrs.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.src.log.LogStart(); got != 34 {
			t.Fatalf("log start %d after the commit, want 34", got)
		}
	})
}

func TestRetentionBytesCountsArchiveAndLocalLog(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{RetentionBytes: 40 << 10})
		for range 10 {
			w.append(17)
			settle(n)
		}
		total := n.p.SizeBytes() + n.p.localAbove(n.p.Through(), w.src.log.LEO())
		if total < 40<<10 || total > 60<<10 {
			t.Fatalf("%d bytes are kept, want 40 to 60 KiB", total)
		}
		if start, ok := n.p.Start(); !ok || start != w.src.log.LogStart() || start == 0 {
			t.Fatalf("archive starts at %d, log at %d", start, w.src.log.LogStart())
		}
	})
}

// dying archives two segments, of which the first is dead and about to be doomed in an hour.
func (w *world) dying() *node {
	n := w.archived(34, TopicConfig{RestoreWindowMs: hour})
	_ = w.src.log.SetLogStart(20)
	n.p.DeleteBefore(20)
	settle(n)
	if got := entriesOf(n.p.Manifest(), manifest.Dead); !slices.Equal(got, []string{"[0,17)"}) {
		w.t.Fatalf("dead %v", got)
	}
	return n
}

func TestPinBlocksTheDoom(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.dying()
		w.ptrs.change(partA, func(p *Pointer) { p.Pins = []Pin{{ID: "fork-1"}} })
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		if got := count(n.p.Manifest(), manifest.Dead); got != 1 || w.segments() != 2 {
			t.Fatalf("%d dead, %d objects while pinned", got, w.segments())
		}
		w.ptrs.change(partA, func(p *Pointer) { p.Pins = nil })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := w.segments(); got != 1 {
			t.Fatalf("%d objects after the pin, want 1", got)
		}
	})
}

func TestPinThatComesBetweenDecisionAndCommitWins(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.dying()
		// The manifest that dooms is written when the pin comes: the guard refuses the transaction.
		late := false
		w.ptrs.mu.Lock()
		w.ptrs.before = func() {
			late = true
			w.ptrs.change(partA, func(p *Pointer) { p.Pins = []Pin{{ID: "fork-1"}} })
		}
		w.ptrs.mu.Unlock()
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		m := w.check()
		if !late || count(m, manifest.Doomed) != 0 || count(m, manifest.Dead) != 1 || w.segments() != 2 {
			t.Fatalf("dead %v, doomed %v, %d objects", entriesOf(m, manifest.Dead), entriesOf(m, manifest.Doomed), w.segments())
		}
	})
}

func (w *world) putLease(id string, ttl time.Duration, renewal int64) {
	w.t.Helper()
	b, err := manifest.Lease{ID: id, Cluster: "c2", TTLMs: ttl.Milliseconds(), Renewal: renewal}.Encode()
	if err == nil {
		_, err = w.mem.Put(w.t.Context(), manifest.LeaseKey(id), objstore.BytesBody(b), objstore.Cond{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestLeasesSeenAfterTheDoomDelayDeletionUntilTheyEnd(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.dying()
		time.Sleep(59 * time.Minute)
		w.putLease("a", 10*time.Minute, 0)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if count(n.p.Manifest(), manifest.Doomed) != 1 || w.segments() != 2 {
			t.Fatalf("doomed %v, %d objects", entriesOf(n.p.Manifest(), manifest.Doomed), w.segments())
		}
		w.putLease("a", 10*time.Minute, 1)     // renewed: its old expiry is never remembered
		w.putLease("later", 1000*time.Hour, 0) // younger than the doom: no wait
		time.Sleep(8 * time.Minute)            // the first expiry has passed
		synctest.Wait()
		if got := w.segments(); got != 2 {
			t.Fatalf("%d objects while the renewed lease lives", got)
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if got := w.segments(); got != 1 {
			t.Fatalf("%d objects after the lease, want 1", got)
		}
	})
}

func TestReturnedLeaseEndsTheWait(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.dying()
		w.putLease("a", 1000*time.Hour, 0)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := w.segments(); got != 2 {
			t.Fatalf("%d objects under a lease", got)
		}
		_ = w.mem.Delete(t.Context(), manifest.LeaseKey("a"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := w.segments(); got != 1 {
			t.Fatalf("%d objects after the lease was given back", got)
		}
	})
}

func TestUnreadableLeaseBlocksDeletion(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.dying()
		_, _ = w.mem.Put(t.Context(), manifest.LeaseKey("x"), objstore.BytesBody([]byte("garbage")), objstore.Cond{})
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		if got := w.segments(); got != 2 {
			t.Fatalf("%d objects", got)
		}
	})
}

func TestInheritedDoomIsCollectedByTheNextLeaderAfterItsOwnLookAtLeases(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.dying()
		w.fault.SetRules(fault.Rule{Op: fault.Delete, Effect: fault.Fail})
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if count(n.p.Manifest(), manifest.Doomed) != 1 {
			t.Fatal("not doomed")
		}
		n.stop()
		w.fault.SetRules()
		w.putLease("a", 30*time.Minute, 0)
		n = w.lead(TopicConfig{RestoreWindowMs: hour})
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if got := w.segments(); got != 2 {
			t.Fatalf("%d objects under a lease that the new leader must see", got)
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if m := w.check(); w.segments() != 1 || len(m.Entries) != 1 {
			t.Fatalf("%d objects, %d entries", w.segments(), len(m.Entries))
		}
		_ = n
	})
}

func TestNewerClaimStopsCollectionForGood(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.dying()
		b, err := manifest.Claim{Incarnation: 2, ID: "r", Cluster: "c1"}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.mem.Put(t.Context(), manifest.ClaimKey(2), objstore.BytesBody(b), objstore.Cond{})
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		if got := w.segments(); got != 2 {
			t.Fatalf("%d objects under a newer claim", got)
		}
		_ = w.mem.Delete(t.Context(), manifest.ClaimKey(2)) // nobody may do this; even so
		time.Sleep(50 * time.Hour)
		synctest.Wait()
		if got := w.segments(); got != 2 {
			t.Fatalf("%d objects after the claim", got)
		}
		w.append(17) // all else goes on
		w.roll()
		settle(n)
		w.wantArchived(n.p, 20, 51)
	})
}

func TestEntryIsDroppedOnlyWhenItsObjectIsSeenGone(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.dying()
		w.fault.SetRules(fault.Rule{Op: fault.Delete, Prefix: manifest.SegmentPrefix(partA), Effect: fault.Late, Delay: 3 * time.Hour, Count: 1},
			fault.Rule{Op: fault.Delete, Prefix: manifest.SegmentPrefix(partA), Effect: fault.Fail})
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		m := w.check()
		if count(m, manifest.Doomed) != 1 || w.segments() != 2 {
			t.Fatalf("doomed %v, %d objects", entriesOf(m, manifest.Doomed), w.segments())
		}
		time.Sleep(4 * time.Hour) // the late DELETE has landed; its twins still fail
		w.fault.SetRules()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if m = w.check(); len(m.Entries) != 1 || w.segments() != 1 {
			t.Fatalf("%d entries, %d objects", len(m.Entries), w.segments())
		}
		_ = n
	})
}

func TestEntryStaysListedWhileAListingStillShowsItsObject(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.fault = fault.New(w.mem, fault.Options{ListDelay: 30 * time.Minute})
		n := w.dying()
		time.Sleep(75 * time.Minute)
		synctest.Wait()
		if m := w.check(); count(m, manifest.Doomed) != 1 || w.segments() != 1 {
			t.Fatalf("doomed %v, %d objects", entriesOf(m, manifest.Doomed), w.segments())
		}
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if m := w.check(); len(m.Entries) != 1 {
			t.Fatalf("%d entries", len(m.Entries))
		}
		_ = n
	})
}

func TestNothingOfTheOwnEpochIsSweptWhateverItsAge(t *testing.T) { // PROTOCOLS 3.5: no sweep by age
	in(t, func(t *testing.T, w *world) {
		n := w.archived(17, TopicConfig{})
		// An upload of this leader has arrived, its commit is stuck for days.
		w.ptrs.mu.Lock()
		w.ptrs.allFail = true
		w.ptrs.mu.Unlock()
		w.append(17)
		w.roll()
		settle(n)
		stalled := w.segments()
		n.p.w.sweepAt = time.Time{}
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		if got := w.segments(); got != stalled || got != 2 {
			t.Fatalf("%d objects, want %d", got, stalled)
		}
		w.ptrs.mu.Lock()
		w.ptrs.allFail = false
		w.ptrs.mu.Unlock()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		w.wantArchived(n.p, 0, 34)
	})
}

func TestOrphansWaitForLeasesAndClaimsToo(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(17, TopicConfig{})
		n.stop()
		orphan := manifest.SegmentKey(partA, 17, 33, 1, 7)
		_, _ = w.mem.Put(t.Context(), orphan, objstore.BytesBody([]byte("x")), objstore.Cond{})
		own := manifest.SegmentKey(partA, 17, 33, 2, 7) // of the epoch to come: not an orphan in it
		_, _ = w.mem.Put(t.Context(), own, objstore.BytesBody([]byte("x")), objstore.Cond{})
		w.putLease("a", 3*time.Hour, 0)
		n = w.lead(TopicConfig{})
		there := func(key string) bool { return slices.Contains(w.keys(manifest.SegmentPrefix(partA)), key) }
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if !there(orphan) {
			t.Fatal("the orphan is gone under a lease")
		}
		if got := n.p.Manifest().LeaderEpoch; got != 2 {
			t.Fatalf("committed epoch %d: an orphan is doomed by a manifest of the new epoch", got)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if there(orphan) || !there(own) {
			t.Fatalf("orphan there: %t, own epoch's object there: %t", there(orphan), there(own))
		}
		w.wantArchived(n.p, 0, 17)
	})
}

func TestObjectsOfOthersAreOnlyUnlisted(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(34, TopicConfig{RestoreWindowMs: hour})
		n.stop()
		// A restored partition lists an object of another one, and one of another archive.
		m := *n.p.Manifest()
		m.Entries = slices.Clone(m.Entries)
		other := manifest.SegmentKey(manifest.PartitionID{Topic: manifest.TopicID{9}}, 0, 16, 1, 1)
		for i, key := range []string{other, m.Entries[1].Object} {
			_, _ = w.mem.Put(t.Context(), key, objstore.BytesBody([]byte("x")), objstore.Cond{})
			m.Entries[i].Object = key
		}
		m.Entries[1].Archive = "elsewhere"
		m.N++
		_, _ = w.mem.Put(t.Context(), m.Key(), objstore.BytesBody(m.Encode()), objstore.Cond{})
		w.ptrs.change(partA, func(p *Pointer) { p.Manifest, p.N = m.Key(), m.N })
		keys := w.keys("t/")
		n = w.lead(TopicConfig{RestoreWindowMs: hour})
		_ = w.src.log.SetLogStart(34)
		n.p.DeleteBefore(34)
		n.p.w.sweepAt = time.Now().Add(1000 * time.Hour)
		settle(n)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if got := n.p.Manifest().Entries; len(got) != 0 {
			t.Fatalf("still listed: %v", got)
		}
		for _, key := range keys {
			if _, ok := manifest.ParseSegmentKey(key); !ok {
				continue
			}
			if _, err := w.mem.Head(t.Context(), key); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
		}
	})
}

func TestManifestsBelowTheCommittedOneAreTrimmed(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		for range 300 {
			w.append(17)
			settle(n)
		}
		if got := len(w.keys(manifest.ManifestPrefix(partA))); got > 2*trimBatch {
			t.Fatalf("%d manifests", got)
		}
		m := w.check()
		w.wantArchived(n.p, 0, n.p.Through())
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if got := len(w.keys(manifest.ManifestPrefix(partA))); got != 1 {
			t.Fatalf("%d manifests after the sweep, want 1", got)
		}
		if got := len(w.keys(manifest.GroupPrefix(partA))); len(m.Groups) == 0 || got != len(w.check().Groups) {
			t.Fatalf("%d groups in the bucket, %d in the manifest", got, len(w.check().Groups))
		}
		_ = w.src.log.SetLogStart(1000) // deep in a group
		n.p.DeleteBefore(1000)
		settle(n)
		w.wantArchived(n.p, 1000, n.p.Through())
		w.check()
	})
}

func TestADeletedTopicGoesAfterItsWindowTopicRecordsLast(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(34, TopicConfig{})
		rec := manifest.TopicRecord{N: 1, Event: manifest.TopicCreated, Time: 1, ID: topicA, Name: "a", Partitions: 1}
		put := func(r manifest.TopicRecord) {
			t.Helper()
			for range 2 { // idempotent
				if err := n.a.PutTopic(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
		}
		put(rec)
		collect := func() (bool, error) {
			return n.a.CollectDeleted(t.Context(), topicA, 1, time.Now().UnixMilli(), 10*hour)
		}
		if _, err := collect(); !errors.Is(err, ErrTopicLive) {
			t.Fatalf("collect of a living topic: %v", err)
		}
		rec.N, rec.Event = 2, manifest.TopicDropped
		put(rec)
		other := rec
		other.Name = "b"
		if err := n.a.PutTopic(t.Context(), other); !errors.Is(err, objstore.ErrExists) {
			t.Fatalf("another record under the same number: %v", err)
		}
		n.p.Resign()
		deleted := time.Now().UnixMilli()
		collect = func() (bool, error) { return n.a.CollectDeleted(t.Context(), topicA, 1, deleted, 10*hour) }
		if done, err := collect(); done || err != nil {
			t.Fatalf("collect at once: %t, %v", done, err)
		}
		m := w.check()
		if count(m, manifest.Dead) != 2 || m.Entries[0].Reason != manifest.TopicDeleted {
			t.Fatalf("dead %v by %v", entriesOf(m, manifest.Dead), m.Entries[0].Reason)
		}
		time.Sleep(9 * time.Hour)
		if done, err := collect(); done || err != nil || w.segments() != 2 {
			t.Fatalf("inside the window: %t, %v, %d objects", done, err, w.segments())
		}
		w.putLease("a", time.Hour, 0)
		time.Sleep(2 * time.Hour)
		w.putLease("b", time.Hour, 0)
		if done, err := collect(); done || err != nil || w.segments() != 2 {
			t.Fatalf("under a lease: %t, %v, %d objects", done, err, w.segments())
		}
		time.Sleep(2 * time.Hour)
		w.fault.SetRules(fault.Rule{Op: fault.Delete, Prefix: manifest.ManifestPrefix(partA), Effect: fault.Fail, Count: 1})
		if done, err := collect(); done || err == nil {
			t.Fatalf("a DELETE failed: %t, %v", done, err)
		}
		r, err := OpenBucket(t.Context(), w.mem, ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for topic, err := range r.Topics(t.Context()) {
			if err != nil || topic.Last().Event != manifest.TopicDropped {
				t.Fatalf("topic %+v, %v", topic, err)
			}
			seen++
		}
		if seen != 1 {
			t.Fatalf("%d topics in the bucket before the end, want the deleted one", seen)
		}
		if done, err := collect(); !done || err != nil {
			t.Fatalf("at the end: %t, %v", done, err)
		}
		wantEqual(t, "left", w.keys(manifest.TopicPrefix(topicA)), nil)
		if done, err := collect(); !done || err != nil {
			t.Fatalf("once more: %t, %v", done, err)
		}
	})
}

func TestUndeleteInsideTheWindowBringsEverythingBack(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(34, TopicConfig{})
		rec := manifest.TopicRecord{N: 1, Event: manifest.TopicDropped, Time: 1, ID: topicA, Name: "a", Partitions: 1}
		if err := n.a.PutTopic(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		n.p.Resign()
		deleted := time.Now().UnixMilli()
		if _, err := n.a.CollectDeleted(t.Context(), topicA, 1, deleted, 10*hour); err != nil {
			t.Fatal(err)
		}
		n.stop()
		rec.N, rec.Event = 2, manifest.TopicUndropped
		n = w.lead(TopicConfig{})
		if err := n.a.PutTopic(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		w.wantArchived(n.p, 0, 34)
		time.Sleep(30 * time.Hour)
		if _, err := n.a.CollectDeleted(t.Context(), topicA, 1, deleted, 10*hour); !errors.Is(err, ErrTopicLive) {
			t.Fatalf("collect after the undelete: %v", err)
		}
		w.wantArchived(n.p, 0, 34)
	})
}

// An undelete gives the partitions new leader epochs first and brings the topic back then. A collection that read a record in between
// has the new leader's guard and epoch: it would mark that leader's whole archive dead.
func TestACollectionUnderWayDoesNotTouchAnUndeletedTopic(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(34, TopicConfig{})
		rec := manifest.TopicRecord{N: 1, Event: manifest.TopicDropped, Time: 1, ID: topicA, Name: "a", Partitions: 1}
		if err := n.a.PutTopic(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		n.stop()
		n = w.lead(TopicConfig{}) // the epoch that the undelete gives
		w.ptrs.before = func() {
			w.ptrs.mu.Lock()
			w.ptrs.living = true
			w.ptrs.mu.Unlock()
		}
		if _, err := n.a.CollectDeleted(t.Context(), topicA, 1, time.Now().UnixMilli(), 10*hour); !errors.Is(err, ErrConflict) {
			t.Fatalf("collect: %v", err)
		}
		w.append(3)
		settle(n)
		if m := w.check(); count(m, manifest.Dead) != 0 {
			t.Fatalf("dead %v", entriesOf(m, manifest.Dead))
		}
		w.wantArchived(n.p, 0, n.p.Through())
	})
}

// The last leader's commit and the collection's first one may race: the collection's manifest has the higher number of the same epoch, lacks
// what the leader has committed, and is not committed itself.
func TestWhatACollectionLeftIsNotTheNewestManifestAfterAnUndelete(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.archived(34, TopicConfig{})
		rec := manifest.TopicRecord{N: 1, Event: manifest.TopicDropped, Time: 1, ID: topicA, Name: "a", Partitions: 1}
		if err := n.a.PutTopic(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		w.ptrs.loaded = func() {
			w.append(3)
			w.roll()
			settle(n)
		}
		if _, err := n.a.CollectDeleted(t.Context(), topicA, 1, time.Now().UnixMilli(), 10*hour); !errors.Is(err, ErrConflict) {
			t.Fatalf("collect: %v", err)
		}
		n.stop()
		epoch := w.elect()
		w.ptrs.change(partA, func(p *Pointer) { p.Undeleted = true })
		if err := w.src.log.AssignEpoch(epoch); err != nil {
			t.Fatal(err)
		}
		n = w.start(epoch, TopicConfig{})
		r, err := OpenBucket(t.Context(), w.mem, ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		tip, err := r.Tip(t.Context(), partA)
		if err != nil || tip.Through != 37 || count(tip, manifest.Dead) != 0 {
			t.Fatalf("the newest manifest is %s, through %d, %d entries dead, %v; want through 37", tip.Key(), tip.Through, count(tip, manifest.Dead), err)
		}
		w.wantArchived(n.p, 0, 37)
	})
}

// The clock of the broker that deleted it may have been behind: the window begins when the store was told.
func TestADeletedTopicsWindowGoesByTheStoresClock(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n := w.lead(TopicConfig{})
		r := manifest.TopicRecord{Cluster: "c1", Incarnation: 1, N: 1, Event: manifest.TopicDropped, Time: 1, ID: topicA, Name: "a", Partitions: 1}
		if err := n.a.PutTopic(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		const hour = 3_600_000
		wants := func(want bool, deletedMs int64) {
			t.Helper()
			if over, err := n.a.WindowOver(t.Context(), topicA, deletedMs, hour); err != nil || over != want {
				t.Fatalf("over %v, want %v: %v", over, want, err)
			}
		}
		behind, ahead := time.Now().Add(-time.Hour).UnixMilli(), time.Now().Add(time.Hour).UnixMilli()
		wants(false, behind)
		time.Sleep(59 * time.Minute)
		wants(false, behind)
		time.Sleep(2 * time.Minute)
		wants(true, behind)
		wants(false, ahead)
		time.Sleep(time.Hour)
		wants(true, ahead)
	})
}
