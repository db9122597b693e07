package manifest

import (
	"math"
	"sort"
	"strings"
	"testing"
)

func testTopic(b byte) TopicID {
	var id TopicID
	for i := range id {
		id[i] = b + byte(i)*7
	}
	return id
}

func testPartition() PartitionID { return PartitionID{testTopic(3), 7} }

func TestKeysParseToWhatMadeThem(t *testing.T) {
	p := testPartition()
	for _, m := range []ManifestName{{p, 1, 0, 1}, {p, math.MaxUint32, math.MaxInt32, math.MaxUint64}, {PartitionID{TopicID{}, math.MaxInt32}, 3, 4, 5}} {
		if got, ok := ParseManifestKey(m.Key()); !ok || got != m {
			t.Fatalf("ParseManifestKey(%q) = %+v, %t", m.Key(), got, ok)
		}
		g := GroupName{m, MaxGroups - 1}
		if got, ok := ParseGroupKey(g.Key()); !ok || got != g {
			t.Fatalf("ParseGroupKey(%q) = %+v, %t", g.Key(), got, ok)
		}
	}
	for _, s := range []SegmentName{{p, 0, 0, 0, 0}, {p, 12, math.MaxInt64, math.MaxInt32, math.MaxUint64}, {p, 5, 6, 7, 0xabcdef}} {
		if got, ok := ParseSegmentKey(s.Key()); !ok || got != s {
			t.Fatalf("ParseSegmentKey(%q) = %+v, %t", s.Key(), got, ok)
		}
	}
	if id, n, ok := ParseTopicRecordKey(TopicRecordKey(p.Topic, 9)); !ok || id != p.Topic || n != 9 {
		t.Fatalf("topic record: %v %d %t", id, n, ok)
	}
	if inc, seal, ok := ParseIncarnationKey(SealKey(12)); inc != 12 || !seal || !ok {
		t.Fatalf("seal: %d %t %t", inc, seal, ok)
	}
	if inc, seal, ok := ParseIncarnationKey(ClaimKey(math.MaxUint32)); inc != math.MaxUint32 || seal || !ok {
		t.Fatalf("claim: %d %t %t", inc, seal, ok)
	}
	if id, ok := ParseLeaseKey(LeaseKey("a-b_9")); id != "a-b_9" || !ok {
		t.Fatalf("lease: %q %t", id, ok)
	}
	if got, rest, ok := ParsePartitionKey(SegmentPrefix(p) + "x"); got != p || rest != "s/x" || !ok {
		t.Fatalf("partition: %v %q %t", got, rest, ok)
	}
}

func TestKeysHaveTheFormOfTheDesign(t *testing.T) {
	p := PartitionID{TopicID{}, 3}
	const id = "AAAAAAAAAAAAAAAAAAAAAA"
	for _, c := range [][2]string{
		{SegmentKey(p, 5, 9, 2, 0xff), "t/" + id + "/0000000003/s/00000000000000000005-00000000000000000009-0000000002-00000000000000ff"},
		{ManifestKey(p, 1, 2, 3), "t/" + id + "/0000000003/m/0000000001-0000000002-00000000000000000003"},
		{GroupKey(p, 1, 2, 3, 4), "t/" + id + "/0000000003/g/0000000001-0000000002-00000000000000000003-0004"},
		{TopicRecordKey(p.Topic, 1), "t/" + id + "/topic.00000000000000000001"},
		{ClaimKey(1), "inc/0000000001.claim"}, {SealKey(1), "inc/0000000001.seal"}, {ClusterPrefix("x"), "c/x/"},
	} {
		if c[0] != c[1] {
			t.Errorf("key %q, want %q", c[0], c[1])
		}
	}
}

func TestListOrderIsPrecedence(t *testing.T) {
	p := testPartition()
	keys := []string{ManifestKey(p, 1, 2, 10), ManifestKey(p, 1, 9, 3), ManifestKey(p, 1, 10, 1), ManifestKey(p, 1, 10, 2), ManifestKey(p, 2, 0, 1), ManifestKey(p, 10, 0, 1)}
	if !sort.StringsAreSorted(keys) {
		t.Fatalf("not in byte order: %q", keys)
	}
	if !strings.HasPrefix(keys[5], ManifestIncarnationPrefix(p, 10)) || strings.HasPrefix(keys[0], ManifestIncarnationPrefix(p, 10)) {
		t.Fatal("the prefix of an incarnation does not tell incarnations apart")
	}
	if !sort.StringsAreSorted([]string{SegmentKey(p, 9, 9, 0, 1), SegmentKey(p, 10, 11, 0, 0), SegmentKey(p, 1000, 1001, 0, 0)}) {
		t.Fatal("segments are not in order of offsets")
	}
}

func TestNoKeyIsThePathPrefixOfAnother(t *testing.T) {
	p := testPartition()
	keys := []string{ArchiveKey, ClaimKey(1), SealKey(1), LeaseKey("x"), TopicRecordKey(p.Topic, 1), SegmentKey(p, 0, 1, 0, 1),
		ManifestKey(p, 1, 0, 1), GroupKey(p, 1, 0, 1, 0), ClusterPrefix("c") + "cut/1-1"}
	for _, a := range keys {
		for _, b := range keys {
			if a != b && strings.HasPrefix(b, a+"/") {
				t.Errorf("%q is the path prefix of %q", a, b)
			}
		}
	}
}

func TestForeignKeysAreRefused(t *testing.T) {
	p := testPartition()
	good := []string{ManifestKey(p, 1, 2, 3), GroupKey(p, 1, 2, 3, 4), SegmentKey(p, 1, 2, 3, 4), TopicRecordKey(p.Topic, 1), ClaimKey(1), LeaseKey("x")}
	bad := []string{"", "t/", "lease/", "lease/a/b", "lease/..", SegmentKey(p, 5, 4, 0, 0), SegmentKey(p, -1, 4, 0, 0), SegmentKey(p, 0, 4, -1, 0),
		SegmentKey(PartitionID{p.Topic, -1}, 0, 4, 0, 0), strings.ToUpper(SegmentKey(p, 1, 2, 3, 0xabcdef)), "inc/00000000x1.claim", "inc/9999999999.seal",
		strings.Replace(ManifestKey(p, 1, 2, 3), "0000000002", "4294967295", 1), strings.Replace(ManifestKey(p, 1, 2, 3), "-0", "-+", 1),
		"t/AAAAAAAAAAAAAAAAAAAAA\n/topic.00000000000000000001", "t/AAAAAAAAAAAAAAAAAAAAAB/topic.00000000000000000001"}
	for _, g := range good {
		bad = append(bad, g[:len(g)-1]+"/", g+"/", "/"+g, g[1:], " "+g, strings.Replace(g, "/", "//", 1))
	}
	for _, k := range bad {
		_, m := ParseManifestKey(k)
		_, g := ParseGroupKey(k)
		_, s := ParseSegmentKey(k)
		_, _, r := ParseTopicRecordKey(k)
		_, _, i := ParseIncarnationKey(k)
		_, l := ParseLeaseKey(k)
		if m || g || s || r || i || l {
			t.Errorf("%q was taken: %t %t %t %t %t %t", k, m, g, s, r, i, l)
		}
	}
}

func FuzzKeys(f *testing.F) {
	p := testPartition()
	for _, k := range []string{ManifestKey(p, 1, 2, 3), GroupKey(p, 1, 2, 3, 4), SegmentKey(p, 1, 2, 3, 4), TopicRecordKey(p.Topic, 1), ClaimKey(1), SealKey(2), LeaseKey("x")} {
		f.Add(k)
	}
	f.Fuzz(func(t *testing.T, key string) {
		again := key
		if m, ok := ParseManifestKey(key); ok {
			again = m.Key()
		} else if g, ok := ParseGroupKey(key); ok {
			again = g.Key()
		} else if s, ok := ParseSegmentKey(key); ok {
			again = s.Key()
		} else if id, n, ok := ParseTopicRecordKey(key); ok {
			again = TopicRecordKey(id, n)
		} else if inc, seal, ok := ParseIncarnationKey(key); ok && seal {
			again = SealKey(inc)
		} else if ok {
			again = ClaimKey(inc)
		}
		if again != key {
			t.Fatalf("%q parses to %q", key, again)
		}
	})
}
