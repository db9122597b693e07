package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/varvelog/varve/record"
)

var writeGolden = flag.Bool("golden", false, "write missing golden files")

func testEntry(base, end int64) Entry {
	return Entry{Base: base, End: end, Object: SegmentKey(testPartition(), base, end-1, 2, uint64(base)*31+uint64(end)),
		SizeBytes: (end - base) * 110, DataBytes: (end - base) * 100, LeaderEpoch: 2, MaxTimestamp: 1000 + end,
		FirstAppend: 1000 + base, LastAppend: 1000 + end - 1, SHA256: sha256.Sum256(fmt.Append(nil, base, end))}
}

func testManifest() *Manifest {
	dead := testEntry(0, 10)
	dead.State, dead.Reason, dead.DeadAt = Dead, RetentionTime, 5000
	tail := testEntry(10, 15)
	tail.Tail, tail.State, tail.Reason, tail.DeadAt = true, Dead, Superseded, 6000
	foreign := testEntry(20, 30)
	foreign.Archive = "other"
	named := testEntry(30, 40)
	named.Object = "imported/somewhere.log"
	last := testEntry(50, 60)
	last.Tail = true
	group := summarize(GroupKey(testPartition(), 1, 2, 3, 0), []Entry{dead}, [32]byte{1})
	alien := summarize("elsewhere", []Entry{dead}, [32]byte{2})
	return &Manifest{Cluster: "cluster-a", Incarnation: 1, LeaderEpoch: 2, N: 4, Prev: ManifestKey(testPartition(), 1, 2, 3), Partition: testPartition(),
		Time: 7000, LogStart: 12, Through: 60, ThroughTime: 1059, Epochs: []record.Epoch{{Epoch: 0, Start: 0}, {Epoch: 2, Start: 25}},
		Groups: []Group{alien, group}, Entries: []Entry{dead, tail, testEntry(10, 20), foreign, named, last}, Gaps: []Gap{{40, 50, RetentionUpload, 6500}}}
}

func testFooter() *Footer {
	return &Footer{Cluster: "cluster-a", Partition: testPartition(), TopicName: "orders", Base: 10, End: 20, LeaderEpoch: 2, Incarnation: 1,
		DataBytes: 1000, Records: 10, MaxTimestamp: record.AppendTime{Ms: 1020, Offset: 19}, Index: []IndexEntry{{10, 0, 1010}, {15, 500, 1015}},
		Chunks: []Chunk{{0, 600, 10, 7}, {600, 400, 16, 9}}, AppendTimes: []record.AppendTime{{Ms: 1010, Offset: 10, SpanMs: 19}, {Ms: 2020, Offset: 15}}, AppendResolutionMs: 20,
		Aborted: []record.AbortedTxn{{ProducerID: 5, First: 8, Last: 12, LastStable: 13}}, Epochs: []record.Epoch{{Epoch: 0, Start: 0}, {Epoch: 2, Start: 5}},
		Producers: []byte("snapshot"), SHA256: [32]byte{1, 2, 3}}
}

func testTopicRecord() *TopicRecord {
	return &TopicRecord{"cluster-a", 1, 3, TopicAltered, 7000, testTopic(3), "orders <&>", 12, map[string]string{"retention.ms": "1000", "cleanup.policy": "delete"}, false}
}

// sample is one object of each kind: its bytes, and a decoder that encodes again what it read.
type sample struct {
	name   string
	bytes  []byte
	recode func([]byte) ([]byte, error)
}

func samples(t testing.TB) []sample {
	must := func(b []byte, err error) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	footer := testFooter().Encode()
	return []sample{
		{"manifest", testManifest().Encode(), func(b []byte) ([]byte, error) {
			m, err := DecodeManifest(b)
			if err != nil {
				return nil, err
			}
			return m.Encode(), nil
		}},
		{"group", EncodeGroup(testManifest().Entries), func(b []byte) ([]byte, error) {
			list, err := DecodeGroup(b)
			if err != nil {
				return nil, err
			}
			return EncodeGroup(list), nil
		}},
		{"footer", footer[:len(footer)-TrailerLen], func(b []byte) ([]byte, error) {
			f, err := DecodeFooter(b)
			if err != nil {
				return nil, err
			}
			again := f.Encode()
			return again[:len(again)-TrailerLen], nil
		}},
		{"topic.json", must(testTopicRecord().Encode()), func(b []byte) ([]byte, error) {
			r, err := DecodeTopicRecord(b)
			if err != nil {
				return nil, err
			}
			return r.Encode()
		}},
		{"archive.json", must(ArchiveInfo{1, "abc-1", "cluster-a", "2026-01-02T03:04:05Z"}.Encode()), func(b []byte) ([]byte, error) {
			a, err := DecodeArchiveInfo(b)
			if err != nil {
				return nil, err
			}
			return a.Encode()
		}},
		{"lease.json", must(Lease{"l-1", "cluster-b", 60000, 4}.Encode()), func(b []byte) ([]byte, error) {
			l, err := DecodeLease(b)
			if err != nil {
				return nil, err
			}
			return l.Encode()
		}},
		{"claim.json", must(Claim{2, "r4nd0m", "cluster-a", 99}.Encode()), func(b []byte) ([]byte, error) {
			c, err := DecodeClaim(b)
			if err != nil {
				return nil, err
			}
			return c.Encode()
		}},
		{"seal.json", must(Seal{2, "r4nd0m", "cluster-a", 1, 100}.Encode()), func(b []byte) ([]byte, error) {
			s, err := DecodeSeal(b)
			if err != nil {
				return nil, err
			}
			return s.Encode()
		}},
	}
}

func TestDecodersAreTheInverseOfEncoders(t *testing.T) {
	m, err := DecodeManifest(testManifest().Encode())
	if err != nil || !reflect.DeepEqual(m, testManifest()) {
		t.Fatalf("manifest: %v\n%+v\n%+v", err, m, testManifest())
	}
	b := testFooter().Encode()
	data := int64(testFooter().DataBytes)
	pos, n, err := ParseTrailer(b[len(b)-20:], data+int64(len(b)))
	if err != nil || pos != data || n != int64(len(b)-TrailerLen) {
		t.Fatalf("trailer: %d, %d, %v", pos, n, err)
	}
	f, err := DecodeFooter(b[:n])
	if err != nil || !reflect.DeepEqual(f, testFooter()) {
		t.Fatalf("footer: %v\n%+v", err, f)
	}
	rb, err := testTopicRecord().Encode()
	if err != nil {
		t.Fatal(err)
	}
	r, err := DecodeTopicRecord(rb)
	if err != nil || !reflect.DeepEqual(r, testTopicRecord()) {
		t.Fatalf("topic: %v\n%+v", err, r)
	}
	for _, s := range samples(t) {
		if again, err := s.recode(s.bytes); err != nil || !bytes.Equal(again, s.bytes) {
			t.Errorf("%s: %v\n%q\n%q", s.name, err, again, s.bytes)
		}
	}
}

func TestGoldenFilesOfVersion1AreStillReadAndWritten(t *testing.T) {
	for _, s := range samples(t) {
		name := filepath.Join("testdata", "v1", s.name)
		want, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) && *writeGolden {
			want, err = s.bytes, os.WriteFile(name, s.bytes, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, s.bytes) {
			t.Errorf("%s: the encoder writes other bytes than version 1 did", s.name)
		}
		if again, err := s.recode(want); err != nil || !bytes.Equal(again, want) {
			t.Errorf("%s: golden file does not decode: %v", s.name, err)
		}
	}
}

func TestEveryFlippedBitAndEveryCutIsFound(t *testing.T) {
	for _, s := range samples(t) {
		for i := range s.bytes {
			for bit := range 8 {
				b := bytes.Clone(s.bytes)
				b[i] ^= 1 << bit
				var c *CorruptError
				if _, err := s.recode(b); !errors.As(err, &c) {
					t.Fatalf("%s: bit %d of byte %d flipped: %v", s.name, bit, i, err)
				}
			}
			var c *CorruptError
			if _, err := s.recode(s.bytes[:i]); !errors.As(err, &c) {
				t.Fatalf("%s cut at %d: %v", s.name, i, err)
			}
		}
	}
	b := testFooter().Encode()
	for i := len(b) - TrailerLen; i < len(b); i++ {
		x := bytes.Clone(b)
		x[i] ^= 4
		if _, _, err := ParseTrailer(x, int64(len(x))+1000); err == nil {
			t.Fatalf("byte %d of the trailer flipped: no error", i-len(b)+TrailerLen)
		}
	}
}

// reseal makes bytes sound again after a change behind the envelope.
func reseal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-envelopeLen))
	binary.BigEndian.PutUint32(b[12:], envelopeCRC(b))
	return b
}

func TestNewerVersionIsUnsupportedNotCorrupt(t *testing.T) {
	for _, s := range samples(t)[:3] {
		b := bytes.Clone(s.bytes)
		b[5] = 2
		if _, err := s.recode(reseal(b)); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	for _, s := range samples(t)[3:] {
		body := strings.Replace(string(s.bytes[:len(s.bytes)-crcLen]), `"format":1,`, `"format":2,"more":1,`, 1)
		if _, err := s.recode(sealDocument([]byte(body))); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	b := testFooter().Encode()
	b[len(b)-11] = 2
	binary.BigEndian.PutUint32(b[len(b)-8:], crc32c(b[len(b)-16:len(b)-8]))
	if _, _, err := ParseTrailer(b, int64(len(b))+1000); !errors.Is(err, ErrUnsupported) {
		t.Errorf("trailer: %v", err)
	}
}

func TestDocumentsHaveOneEncoding(t *testing.T) {
	b, err := testTopicRecord().Encode()
	if err != nil {
		t.Fatal(err)
	}
	body := string(b[:len(b)-crcLen])
	for _, other := range []string{body + " ", strings.Replace(body, `"n":3`, `"n":3,"n":3`, 1), strings.Replace(body, `"n":3`, `"N":3`, 1),
		strings.Replace(body, `"internal":false`, `"internal":false,"x":1`, 1), strings.Replace(body, `"kind":"topic"`, `"kind":"lease"`, 1), body + "}{"} {
		if _, err := DecodeTopicRecord(sealDocument([]byte(other))); err == nil {
			t.Errorf("taken: %s", other)
		}
	}
	bad := testTopicRecord()
	bad.Configs["x"] = "\xff"
	if _, err := bad.Encode(); err == nil {
		t.Error("a config that is not UTF-8 was encoded")
	}
}

func TestHugeCountsAreRefusedBeforeTheyAllocate(t *testing.T) {
	for _, s := range samples(t)[:3] {
		for i := envelopeLen; i+4 <= len(s.bytes); i++ {
			b := bytes.Clone(s.bytes)
			copy(b[i:], "\xff\xff\xff\xff")
			b = reseal(b)
			var before = testing.AllocsPerRun(1, func() { _, _ = s.recode(b) })
			if before > 2000 {
				t.Fatalf("%s at %d: %v allocations", s.name, i, before)
			}
		}
	}
}

func TestErrorsNameTheObject(t *testing.T) {
	_, err := DecodeFooter([]byte("x"))
	var c *CorruptError
	if err = InObject(err, "t/a", 100); !errors.As(err, &c) || c.Object != "t/a" || c.Offset != 101 {
		t.Fatalf("%#v", err)
	}
	if err := InObject(fmt.Errorf("x: %w", ErrUnsupported), "t/a", 0); !errors.Is(err, ErrUnsupported) || !strings.HasPrefix(err.Error(), "t/a: ") {
		t.Fatal(err)
	}
}

func TestGroupOpensOnlyTheObjectItMeans(t *testing.T) {
	list := []Entry{testEntry(0, 10), testEntry(10, 20)}
	body := EncodeGroup(list)
	g := summarize("key", list, sha256.Sum256(body))
	if got, err := g.Open(body); err != nil || !reflect.DeepEqual(got, list) {
		t.Fatalf("%v, %v", got, err)
	}
	var c *CorruptError
	if _, err := g.Open(EncodeGroup(list[:1])); !errors.As(err, &c) || c.Object != "key" {
		t.Fatal(err)
	}
	g.Dead = 1
	if _, err := g.Open(body); !errors.As(err, &c) {
		t.Fatal(err)
	}
}

func FuzzDecoders(f *testing.F) {
	for i, s := range samples(f) {
		f.Add(i, s.bytes)
	}
	all := samples(f)
	f.Fuzz(func(t *testing.T, kind int, b []byte) {
		s := all[uint(kind)%uint(len(all))]
		if len(b) > envelopeLen && uint(kind)%uint(len(all)) < 3 {
			b = reseal(bytes.Clone(b)) // or the fuzzer never gets past the CRC
		} else if len(b) > crcLen {
			b = sealDocument(b[:len(b)-crcLen])
		}
		again, err := s.recode(b)
		if err == nil && !bytes.Equal(again, b) {
			t.Fatalf("%s: encodes to other bytes:\n%q\n%q", s.name, b, again)
		}
		var c *CorruptError
		if err != nil && !errors.As(err, &c) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("%s: %v", s.name, err)
		}
	})
}

func FuzzTrailer(f *testing.F) {
	f.Add(testFooter().Encode(), int64(5000))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		pos, n, err := ParseTrailer(b, size)
		if err == nil && (pos <= 0 || n < envelopeLen || pos+n+TrailerLen != size) {
			t.Fatalf("footer of %d bytes at %d in %d", n, pos, size)
		}
	})
}
