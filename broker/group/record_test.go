package group

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/manifest"
)

var sampleOffset = Offset{Topic: "t", TopicID: manifest.TopicID{1, 2, 3}, Partition: 7, Offset: 42, LeaderEpoch: 5, Metadata: "m\u00e4", CommitMs: 1000, ExpireMs: 2000}

var sampleMetadata = Metadata{ProtocolType: "consumer", Generation: 3, Protocol: "range", Leader: "a-1", StateMs: 99, Members: []MemberMetadata{
	{ID: "a-1", ClientID: "a", ClientHost: "/127.0.0.1", RebalanceMs: 60000, SessionMs: 10000, Subscription: []byte("s"), Assignment: []byte("as")},
	{ID: "b-2", Instance: "ib", ClientID: "b", ClientHost: "/10.0.0.1", RebalanceMs: 1, SessionMs: 2, Subscription: []byte{}, Assignment: []byte{}},
}}

func TestOffsetValuesAreReadAsWrittenInEachVersion(t *testing.T) {
	for v := int16(0); v <= 4; v++ {
		want := sampleOffset
		want.Topic, want.Partition = "", 0
		if v < 4 {
			want.TopicID = manifest.TopicID{}
		}
		if v < 3 {
			want.LeaderEpoch = -1
		}
		if v != 1 {
			want.ExpireMs = -1
		}
		b := AppendOffsetValue(nil, v, sampleOffset)
		got, err := DecodeOffsetValue(b)
		if err != nil || got != want {
			t.Errorf("v%d: %+v, %v; want %+v", v, got, err, want)
		}
		k := kmsg.NewOffsetCommitValue()
		if err := k.ReadFrom(b); err != nil {
			t.Errorf("v%d: kmsg: %v", v, err)
		}
		if k.Version != v || k.Offset != 42 || k.Metadata != "m\u00e4" || k.CommitTimestamp != 1000 || v == 4 && k.TopicID != want.TopicID {
			t.Errorf("v%d: kmsg reads %+v", v, k)
		}
		if !bytes.Equal(k.AppendTo(nil), b) {
			t.Errorf("v%d: %x, kmsg writes %x", v, b, k.AppendTo(nil))
		}
	}
}

func TestOffsetsAreWrittenInTheVersionThatHoldsThem(t *testing.T) {
	for _, c := range []struct {
		o    Offset
		want byte
	}{{Offset{ExpireMs: -1}, 3}, {Offset{ExpireMs: 5, TopicID: manifest.TopicID{1}}, 1}, {Offset{ExpireMs: -1, TopicID: manifest.TopicID{1}}, 4}} {
		r, err := offsetRecord("g", c.o)
		if err != nil || r.Value[1] != c.want {
			t.Errorf("%+v: version %d, %v; want %d", c.o, r.Value[1], err, c.want)
		}
	}
}

func TestGroupMetadataOfEachVersionIsRead(t *testing.T) {
	for v := int16(0); v <= 4; v++ {
		k := kmsg.NewGroupMetadataValue()
		k.Version, k.ProtocolType, k.Generation, k.CurrentStateTimestamp = v, "consumer", 3, 99
		k.Protocol, k.Leader = kmsg.StringPtr("range"), kmsg.StringPtr("a-1")
		for _, m := range sampleMetadata.Members {
			km := kmsg.NewGroupMetadataValueMember()
			km.MemberID, km.ClientID, km.ClientHost = m.ID, m.ClientID, m.ClientHost
			km.RebalanceTimeoutMillis, km.SessionTimeoutMillis = m.RebalanceMs, m.SessionMs
			km.Subscription, km.Assignment = m.Subscription, m.Assignment
			if m.Instance != "" {
				km.InstanceID = &m.Instance
			}
			k.Members = append(k.Members, km)
		}
		want := sampleMetadata
		want.Members = append([]MemberMetadata(nil), want.Members...)
		if v < 2 {
			want.StateMs = -1
		}
		for i := range want.Members {
			if v < 3 {
				want.Members[i].Instance = ""
			}
			if v < 1 {
				want.Members[i].RebalanceMs = want.Members[i].SessionMs
			}
		}
		got, err := DecodeMetadata(k.AppendTo(nil))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("v%d: %+v, %v; want %+v", v, got, err, want)
		}
		if v == groupValueVersion && !bytes.Equal(AppendMetadata(nil, sampleMetadata), k.AppendTo(nil)) {
			t.Errorf("written: %x, kmsg %x", AppendMetadata(nil, sampleMetadata), k.AppendTo(nil))
		}
	}
}

func TestKeysAreKafkas(t *testing.T) {
	ok := kmsg.NewOffsetCommitKey()
	ok.Version, ok.Group, ok.Topic, ok.Partition = 1, "g", "t", 7
	if got := appendOffsetKey(nil, "g", "t", 7); !bytes.Equal(got, ok.AppendTo(nil)) {
		t.Errorf("offset key %x, kmsg %x", got, ok.AppendTo(nil))
	}
	gk := kmsg.NewGroupMetadataKey()
	gk.Version, gk.Group = 2, "g"
	if got := appendGroupKey(nil, "g"); !bytes.Equal(got, gk.AppendTo(nil)) {
		t.Errorf("group key %x, kmsg %x", got, gk.AppendTo(nil))
	}
	if _, err := DecodeKey([]byte{0, 3, 0, 1, 'g'}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("key of a consumer group: %v", err)
	}
}

// TestGoldenRecords pins the bytes: line by line name, key, value.
func TestGoldenRecords(t *testing.T) {
	b, err := os.ReadFile("testdata/v1/records.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	line := func(name string, r Record) {
		got.WriteString(name + " " + hex.EncodeToString(r.Key) + " " + hex.EncodeToString(r.Value) + "\n")
	}
	for _, o := range []Offset{sampleOffset, {Topic: "t", Offset: 1, LeaderEpoch: -1, ExpireMs: -1}, {Topic: "t", TopicID: sampleOffset.TopicID, Offset: 1, LeaderEpoch: 2, ExpireMs: -1}} {
		r, err := offsetRecord("g", o)
		if err != nil {
			t.Fatal(err)
		}
		line("offset", r)
	}
	line("group", Record{appendGroupKey(nil, "g"), AppendMetadata(nil, sampleMetadata)})
	if got.String() != string(b) {
		t.Errorf("records are\n%swant\n%s", got.String(), b)
	}
}

func TestNamesThatDoNotFitAreRefused(t *testing.T) {
	long := strings.Repeat("x", 40_000)
	if _, err := offsetRecord(long, Offset{}); err == nil {
		t.Error("a group id of 40000 bytes was encoded")
	}
	if _, err := offsetRecord("g", Offset{Metadata: long}); err == nil {
		t.Error("metadata of 40000 bytes was encoded")
	}
	c := NewCore(Config{NewID: func() string { return "1" }})
	good := JoinRequest{Group: "g", SessionMs: 10000, ProtocolType: "consumer", Protocols: []Protocol{{Name: "range"}}}
	for _, f := range []func(*JoinRequest){
		func(r *JoinRequest) { r.Group = long }, func(r *JoinRequest) { r.Group = "" }, func(r *JoinRequest) { r.Instance = long },
		func(r *JoinRequest) { r.ProtocolType = long }, func(r *JoinRequest) { r.Protocols = []Protocol{{Name: long}} },
		func(r *JoinRequest) { r.ClientID = long },
	} {
		r := good
		f(&r)
		out := c.Join(0, 1, r, nil)
		if res := out[0].(Answer).Result.(JoinResult); res.Err == nil || len(out) != 1 {
			t.Errorf("join %.40v: %v", r, out)
		}
	}
}

func TestPartitionForIsJavas(t *testing.T) {
	// computed with java.lang.String.hashCode
	for g, want := range map[string]int32{"": 0, "a": 47, "g": 3, "my-group": 12, "polygenelubricants": 0} {
		if got := PartitionFor(g, 50); got != want {
			t.Errorf("%q: %d, want %d", g, got, want)
		}
	}
	if got, want := PartitionFor("\U0001F600", 50), javaMod(31*0xD83D+0xDE00, 50); got != want {
		t.Errorf("beyond the BMP: %d, want %d", got, want)
	}
}

func javaMod(h, n int32) int32 {
	if h < 0 {
		h = -h
	}
	return h % n
}

func FuzzDecode(f *testing.F) {
	f.Add(appendOffsetKey(nil, "g", "t", 1))
	f.Add(appendGroupKey(nil, "g"))
	for v := int16(0); v <= 4; v++ {
		f.Add(AppendOffsetValue(nil, v, sampleOffset))
	}
	f.Add(AppendMetadata(nil, sampleMetadata))
	f.Add(subscription("a+b"))
	f.Add([]byte{0, 4, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := DecodeKey(b); err == nil {
			if k.OfGroup() && !bytes.HasPrefix(b, appendGroupKey(nil, k.Group)) {
				if len(b) < 4 || b[2] < 0x80 { // null is read as ""
					t.Errorf("group key %x of %x", appendGroupKey(nil, k.Group), b)
				}
			}
		}
		if o, err := DecodeOffsetValue(b); err == nil && len(o.Metadata) < 32_768 {
			again, err := DecodeOffsetValue(AppendOffsetValue(nil, offsetVersionOf(b), o))
			if err != nil || again != o {
				t.Errorf("%+v became %+v, %v", o, again, err)
			}
		}
		if m, err := DecodeMetadata(b); err == nil && len(b) < 32_768 {
			again, err := DecodeMetadata(AppendMetadata(nil, m))
			if err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
			if again.Generation != m.Generation || again.StateMs != m.StateMs || len(again.Members) != len(m.Members) {
				t.Errorf("%+v became %+v", m, again)
			}
		}
		if topics, err := subscribedTopics(b); err == nil && len(topics) > len(b) {
			t.Errorf("%d topics from %d bytes", len(topics), len(b))
		}
		c := NewCore(Config{NewID: func() string { return "" }})
		_ = c.Replay(Record{Key: b, Value: b}, 0, -1)
		_ = c.Replay(Record{Key: appendGroupKey(nil, "g"), Value: b}, 0, -1)
		_ = c.Replay(Record{Key: appendOffsetKey(nil, "g", "t", 0), Value: b}, 1, 5)
		c.EndTransaction(5, true)
		out := c.Loaded(0, nil)
		_ = c.Tick(1<<40, out)
	})
}

func offsetVersionOf(b []byte) int16 { return int16(b[1]) }
