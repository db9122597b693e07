package recovery

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/tier"
)

// change rewrites an object in place.
func change(t *testing.T, b objstore.Bucket, key string, edit func([]byte) []byte) {
	t.Helper()
	body, _, err := objstore.ReadAll(t.Context(), b, key, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), key, objstore.BytesBody(edit(bytes.Clone(body))), objstore.Cond{}); err != nil {
		t.Fatal(err)
	}
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		if at < 0 {
			at += len(b)
		}
		b[at] ^= 1
		return b
	}
}

// damaged is an archive of two generations, with groups of its own and a restored topic.
func damagedArchive(t *testing.T, n *net) *cluster {
	a := newCluster(t, n, "mem://a")
	topic := a.topic("orders", 1)
	for range 3 {
		a.produce(topic, 0, 10)
		a.roll(topic, 0)
		a.pass(time.Minute)
	}
	a.stop()
	return a
}

// verifyURL opens the archive and verifies it; what keeps it from being opened is a finding, too.
func verifyURL(t *testing.T, c *cluster) (*Report, error) {
	t.Helper()
	s, err := OpenSource(t.Context(), c.url, c.net.open)
	var root *RootError
	if errors.As(err, &root) {
		return root.Report(), nil
	}
	if err != nil {
		return nil, err
	}
	return Verify(t.Context(), s, VerifyOptions{Full: true})
}

func TestVerifyFindsALostRoot(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		for _, lost := range []string{manifest.ArchiveKey, manifest.SealKey(1)} {
			a := newCluster(t, n, "mem://"+lost)
			a.produce(a.topic("orders", 1), 0, 10)
			a.stop()
			if err := a.bucket.Delete(t.Context(), lost); err != nil {
				t.Fatal(err)
			}
			report, err := verifyURL(t, a)
			if err != nil || len(report.Findings) != 1 || report.Findings[0].Kind != Absent || !strings.HasPrefix(lost, report.Findings[0].Object) {
				t.Fatalf("without %s: %+v, %v", lost, report, err)
			}
		}
	})
}

func TestVerifyFindsEveryFlippedBit(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := damagedArchive(t, n)
		for _, key := range keys(t, a.bucket, "") {
			body, _, err := objstore.ReadAll(t.Context(), a.bucket, key, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at < len(body); at += 1 + len(body)/97 {
				change(t, a.bucket, key, flip(at))
				report, err := verifyURL(t, a)
				if key == manifest.ArchiveKey && errors.Is(err, tier.ErrNewerFormat) {
					change(t, a.bucket, key, flip(at))
					continue // so it would say
				}
				if err != nil {
					t.Fatalf("%s, byte %d: %v", key, at, err)
				}
				named := false
				for _, f := range report.Findings {
					named = named || f.Object == key
				}
				if !named {
					t.Fatalf("%s, byte %d of %d: not found; %+v", key, at, len(body), report.Findings)
				}
				change(t, a.bucket, key, flip(at))
			}
		}
		if report, err := Verify(t.Context(), a.source(), VerifyOptions{Full: true}); err != nil || len(report.Findings) > 0 || report.Objects != 3 {
			t.Fatalf("%+v, %v", report, err)
		}
	})
}

func TestVerifyNamesThePlace(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := damagedArchive(t, n)
		id := a.inventory().Topics[0].Partitions[0].ID
		segments := keys(t, a.bucket, manifest.SegmentPrefix(id))
		for _, c := range []struct {
			name string
			do   func()
			want string
		}{
			{"flipped", func() { change(t, a.bucket, segments[0], flip(100)) }, "damage: " + segments[0] + ", chunk 0"},
			{"cut short", func() { change(t, a.bucket, segments[1], func(b []byte) []byte { return b[:len(b)-9] }) }, "damage: " + segments[1] + ", byte "},
			{"missing", func() {
				if err := a.bucket.Delete(t.Context(), segments[2]); err != nil {
					t.Fatal(err)
				}
			}, "missing: " + segments[2] + ", offsets [20, 30)"},
		} {
			c.do()
			report, err := Verify(t.Context(), a.source(), VerifyOptions{Full: true})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range report.Findings {
				got = append(got, fmt.Sprintf("%s: %s, %s", f.Kind, f.Object, f.Place))
			}
			if all := strings.Join(got, "\n"); !strings.Contains(all, c.want) {
				t.Errorf("%s: %s", c.name, all)
			}
		}
		// The structure alone knows of sizes, not of bits.
		report, err := Verify(t.Context(), a.source(), VerifyOptions{})
		if err != nil || len(report.Findings) != 2 {
			t.Errorf("quick: %+v, %v", report, err)
		}
	})
}

func TestVerifyFindsTopicsWithoutARecord(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := damagedArchive(t, n)
		id := a.inventory().Topics[0].ID
		if err := a.bucket.Delete(t.Context(), manifest.TopicRecordKey(id, 1)); err != nil {
			t.Fatal(err)
		}
		report, err := Verify(t.Context(), a.source(), VerifyOptions{})
		if err != nil || len(report.Findings) != 1 || report.Findings[0].Kind != Stray {
			t.Fatalf("%+v, %v", report, err)
		}
	})
}

func TestVerifyOfALivingArchiveFindsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		for i := range 200 {
			a.produce(topic, 0, 3)
			if i%10 == 0 {
				a.roll(topic, 0)
			}
			time.Sleep(700 * time.Millisecond) // tails are superseded, and go, while it is read
			report, err := Verify(t.Context(), a.source(), VerifyOptions{Full: true})
			if err != nil || len(report.Findings) > 0 {
				t.Fatalf("%+v, %v", report, err)
			}
		}
	})
}

func TestAFailingStoreIsNoFinding(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := damagedArchive(t, n)
		a.bucket.SetRules(fault.Rule{Op: fault.Get, Prefix: "t/", From: 6, Effect: fault.Fail})
		if report, err := Verify(t.Context(), a.source(), VerifyOptions{Full: true}); !errors.Is(err, objstore.ErrUnavailable) {
			t.Fatalf("%+v, %v", report, err)
		}
	})
}

func TestADamagedSourceIsToldAndNothingIsMade(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := damagedArchive(t, n)
		id := a.inventory().Topics[0].Partitions[0].ID
		manifests := keys(t, a.bucket, manifest.ManifestPrefix(id))
		tip := manifests[len(manifests)-1]
		change(t, a.bucket, tip, flip(-1))
		_, err := a.restoring("mem://b", latest()).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), tip) {
			t.Fatalf("a damaged manifest: %v", err)
		}
		change(t, a.bucket, tip, flip(-1))
		segments := keys(t, a.bucket, manifest.SegmentPrefix(id))
		change(t, a.bucket, segments[2], flip(70))
		_, err = a.restoring("mem://b", latest()).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), segments[2]) {
			t.Fatalf("a damaged last object: %v", err)
		}
	})
}

func TestABucketThatIsNoArchiveIsSaidPlainly(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		open := func() error {
			_, err := OpenSource(t.Context(), "mem://x", n.open)
			return err
		}
		if err := open(); !errors.Is(err, ErrEmpty) {
			t.Errorf("empty: %v", err)
		}
		b := n.at("mem://x")
		if _, err := b.Put(t.Context(), "photos/1.jpg", objstore.BytesBody([]byte("x")), objstore.Cond{}); err != nil {
			t.Fatal(err)
		}
		if err := open(); !errors.Is(err, ErrNotArchive) || !strings.Contains(err.Error(), "photos/1.jpg") {
			t.Errorf("not ours: %v", err)
		}
		a := newCluster(t, n, "mem://a")
		body, err := manifest.ArchiveInfo{ID: "x", Cluster: "c", Created: "2026-01-01T00:00:00Z"}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		a.stop()
		newer := futureDocument(body)
		change(t, a.bucket, manifest.ArchiveKey, func([]byte) []byte { return newer })
		if _, err := OpenSource(t.Context(), a.url, n.open); !errors.Is(err, tier.ErrNewerFormat) {
			t.Errorf("newer: %v", err)
		}
		change(t, a.bucket, manifest.ArchiveKey, func([]byte) []byte { return []byte("{}") })
		if _, err := OpenSource(t.Context(), a.url, n.open); err == nil || errors.Is(err, ErrEmpty) {
			t.Errorf("unreadable: %v", err)
		}
	})
}
