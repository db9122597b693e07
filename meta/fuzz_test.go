package meta

import (
	"errors"
	"reflect"
	"testing"

	"github.com/varvelog/varve/manifest"
)

func FuzzKey(f *testing.F) {
	k := newKeys("c", 1)
	id := manifest.TopicID{1, 2, 3}
	for _, s := range []string{
		k.broker(1), k.known(2), k.drain(3), k.topic("t"), k.deleted(id), k.pending(id), k.partition(manifest.PartitionID{Topic: id, Partition: 7}),
		k.config("broker/"), k.attached("a"), k.controller(), k.producers(), string(k) + "later/x", "/varve/c/2/topic/t", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := k.parse(s)
		if err != nil {
			return
		}
		var again string
		switch p.area {
		case areaBroker:
			again = k.broker(p.broker)
		case areaKnown:
			again = k.known(p.broker)
		case areaDrain:
			again = k.drain(p.broker)
		case areaTopic:
			again = k.topic(p.name)
		case areaDeleted:
			again = k.deleted(p.topic)
		case areaPending:
			again = k.pending(p.topic)
		case areaPartition:
			again = k.partition(manifest.PartitionID{Topic: p.topic, Partition: p.part})
		case areaConfig:
			again = k.config(p.name)
		case areaAttached:
			again = k.attached(p.name)
		default:
			return
		}
		if again != s {
			t.Fatalf("%q reads as %q", s, again)
		}
	})
}

func FuzzPartition(f *testing.F) {
	f.Add([]byte(`{"v":1,"replicas":[1,2],"isr":[1],"leader":1,"epoch":3,"pepoch":4,"ptr":{"m":"k","n":1,"through":5,"time":6,"pins":[{"id":"a","reason":"b"}]}}`))
	f.Add([]byte(`{"v":1,"replicas":[1],"isr":[],"leader":-1,"epoch":0,"pepoch":0,"later":{"x":[1]}}`))
	f.Add([]byte(`{"v":2,"replicas":"other"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePartition(manifest.PartitionID{}, Pair{Key: "k", Value: b, ModRev: 1})
		checkDecoded(t, err)
		if err != nil {
			return
		}
		q, err := decodePartition(manifest.PartitionID{}, Pair{Key: "k", Value: encodePartition(p), ModRev: 1})
		if err != nil || q.Leader != p.Leader || q.LeaderEpoch != p.LeaderEpoch || q.Pointer.N != p.Pointer.N {
			t.Fatalf("%+v, %v after encoding, was %+v", q, err, p)
		}
	})
}

func FuzzTopicAndBroker(f *testing.F) {
	f.Add([]byte(`{"v":1,"name":"t","id":"AQIDAAAAAAAAAAAAAAAAAA","configs":{"a":"b"},"created":1,"version":1,"partitions":3}`))
	f.Add([]byte(`{"v":1,"listeners":[{"name":"P","host":"h","port":1}],"dir":"d"}`))
	f.Add([]byte(`{"v":99}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, id, err := decodeTopic(Pair{Key: "k", Value: b}, "t", topicID{}, false)
		checkDecoded(t, err)
		if err == nil {
			again, _, err := decodeTopic(Pair{Key: "k", Value: encode(r)}, "t", topicID{}, false)
			if err != nil || again.ID != id.String() || again.Partitions != r.Partitions {
				t.Fatalf("%+v, %v after encoding, was %+v", again, err, r)
			}
		}
		br, err := decodeBroker(1, Pair{Key: "k", Value: b})
		checkDecoded(t, err)
		if err == nil {
			if again, err := decodeBroker(1, Pair{Key: "k", Value: encodeBroker(*br)}); err != nil || !reflect.DeepEqual(again, br) && len(br.Listeners) > 0 {
				t.Fatalf("%+v, %v after encoding, was %+v", again, err, br)
			}
		}
		k, err := decodeKnown(1, Pair{Key: "k", Value: b})
		checkDecoded(t, err)
		if err == nil {
			if again, err := decodeKnown(1, Pair{Key: "k", Value: encodeKnown(k)}); err != nil || !reflect.DeepEqual(again, k) && len(k.Listeners) > 0 {
				t.Fatalf("%+v, %v after encoding, was %+v", again, err, k)
			}
		}
	})
}

func checkDecoded(t *testing.T, err error) {
	t.Helper()
	var bad *CorruptError
	if err != nil && (!errors.As(err, &bad) || bad.Key != "k") {
		t.Fatalf("%v does not name the key", err)
	}
}
