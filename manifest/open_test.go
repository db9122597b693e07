package manifest

import (
	"errors"
	"testing"
)

func TestOpenManifestTakesOnlyTheOneUnderItsKey(t *testing.T) {
	m := testManifest()
	if got, err := OpenManifest(m.Key(), m.Encode()); err != nil || got.N != m.N {
		t.Fatal(err)
	}
	var c *CorruptError
	other := ManifestKey(m.Partition, m.Incarnation, m.LeaderEpoch, m.N+1)
	if _, err := OpenManifest(other, m.Encode()); !errors.As(err, &c) || c.Object != other {
		t.Fatal(err)
	}
	if _, err := OpenManifest(other, nil); !errors.As(err, &c) || c.Object != other {
		t.Fatal(err)
	}
}

func TestOpenFooter(t *testing.T) {
	f := testFooter()
	key := SegmentKey(f.Partition, f.Base, f.End-1, f.LeaderEpoch, 1)
	object := append(make([]byte, f.DataBytes), f.Encode()...)
	size := int64(len(object))
	_, need, err := OpenFooter(key, size, object[size-TrailerLen:])
	if err != nil || need != size-f.DataBytes {
		t.Fatalf("need %d, %v", need, err)
	}
	for _, n := range []int64{need, need + 1, size} {
		if got, _, err := OpenFooter(key, size, object[size-n:]); err != nil || got.End != f.End {
			t.Fatalf("from %d bytes: %v", n, err)
		}
	}
	if _, _, err := OpenFooter("imported.log", size, object); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]func() (string, int64, []byte){
		"another base":      func() (string, int64, []byte) { return SegmentKey(f.Partition, 9, f.End-1, 2, 1), size, object },
		"another epoch":     func() (string, int64, []byte) { return SegmentKey(f.Partition, 10, f.End-1, 3, 1), size, object },
		"another partition": func() (string, int64, []byte) { return SegmentKey(PartitionID{}, 10, f.End-1, 2, 1), size, object },
		"data is missing":   func() (string, int64, []byte) { return key, size - 5, object[5:] },
		"torn":              func() (string, int64, []byte) { return key, size - 1, object[:size-1] },
		"nothing":           func() (string, int64, []byte) { return key, 0, nil },
	} {
		k, n, b := bad()
		var c *CorruptError
		if _, _, err := OpenFooter(k, n, b); !errors.As(err, &c) || c.Object != k {
			t.Errorf("%s: %v", name, err)
		}
	}
}
