package tier

import (
	"errors"
	"testing"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
)

// followed reads all of [0, through) as a broker that does not lead.
func (w *world) followed(f *Follower, through int64) {
	w.t.Helper()
	for off := int64(0); off < through; {
		d, err := f.Read(w.t.Context(), off, 3000)
		if err != nil {
			w.t.Fatalf("read %d: %v", off, err)
		}
		for _, r := range decode(w.t, d) {
			if r.Offset < off {
				continue
			}
			if r.Offset != off || string(r.Value) != string(w.value(off)) {
				w.t.Fatalf("offset %d: read %d %.20q", off, r.Offset, r.Value)
			}
			off++
		}
		if d.Next != off {
			w.t.Fatalf("goes on at %d, read up to %d", d.Next, off)
		}
		d.Release()
	}
	if _, err := f.Read(w.t.Context(), through, 1); !errors.Is(err, localseg.ErrOffsetOutOfRange) {
		w.t.Fatalf("read at %d, archived through %d: %v", through, through, err)
	}
}

func TestFollowerReadsWhatTheLeaderHasCommitted(t *testing.T) { // KIP-405
	in(t, func(t *testing.T, w *world) {
		w.withCache()
		n := w.archived(40, TopicConfig{})
		other := New(w.fault, w.info, w.ptrs, w.cache, w.opts)
		f := other.Follow(partA, func() Pointer { return Pointer{} })
		w.followed(f, 40)
		// It goes on where the leader does, although nobody tells it.
		w.append(30)
		w.roll()
		settle(n)
		w.followed(f, n.p.Through())
	})
}

func TestFollowerReadsWithoutTheMetadataStore(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.archived(40, TopicConfig{})
		known := w.ptrs.get(partA)
		w.ptrs.allFail = true
		f := New(w.fault, w.info, w.ptrs, nil, w.opts).Follow(partA, func() Pointer { return known })
		if d, err := f.Read(t.Context(), 0, 3000); err != nil {
			t.Fatal(err)
		} else {
			d.Release()
		}
		if _, err := f.Read(t.Context(), 40, 1); !errors.Is(err, errPointers) {
			t.Fatalf("what is not known to be archived: %v, want the store's error", err)
		}
	})
}

func TestFollowerThatKnowsAnOldManifestFindsTheNewest(t *testing.T) { // BUG-085
	in(t, func(t *testing.T, w *world) {
		n := w.archived(40, TopicConfig{})
		old := w.ptrs.get(partA)
		f := New(w.fault, w.info, w.ptrs, nil, w.opts).Follow(partA, func() Pointer { return old })
		w.followed(f, 40)
		for range 30 { // enough that manifests are trimmed
			w.append(5)
			w.roll()
			settle(n)
		}
		if _, err := w.mem.Head(t.Context(), old.Manifest); err == nil {
			t.Fatal("the old manifest is still there")
		}
		w.followed(f, n.p.Through())
		w.followed(New(w.fault, w.info, w.ptrs, nil, w.opts).Follow(partA, func() Pointer { return old }), n.p.Through())
	})
}

func TestFollowerSaysThatTheStoreIsAway(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.archived(40, TopicConfig{})
		f := New(w.fault, w.info, w.ptrs, nil, w.opts).Follow(partA, func() Pointer { return w.ptrs.get(partA) })
		w.fault.SetRules(fault.Rule{Op: fault.Get, Effect: fault.Fail})
		for range 2 { // the manifest, too, is read again
			if _, err := f.Read(t.Context(), 0, 3000); !objstore.Retryable(err) {
				t.Fatalf("read: %v", err)
			}
		}
		w.fault.SetRules()
		w.followed(f, 40)
	})
}
