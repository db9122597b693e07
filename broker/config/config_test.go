package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func mustNew(t *testing.T, props map[string]string) *Broker {
	t.Helper()
	b, _, err := New(props)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEveryDefaultIsValid(t *testing.T) {
	for what, keys := range map[string]map[string]*Key{"topic": topicKeys, "broker": brokerKeys} {
		for name, k := range keys {
			if k.Null || k.Type == List && k.Default == "" || k.Type == String && k.Default == "" && len(k.Valid) == 0 {
				continue
			}
			if err := k.Check(k.Default); err != nil {
				t.Errorf("%s key %s: default: %v", what, name, err)
			}
		}
	}
	for name, k := range topicKeys {
		if k.Synonym != "" && brokerKeys[k.Synonym] == nil {
			t.Errorf("topic key %s: synonym %s is no broker key", name, k.Synonym)
		}
		if s := brokerKeys[k.Synonym]; s != nil && !s.Null && s.Default != k.Default {
			t.Errorf("topic key %s defaults to %s, its synonym %s to %s", name, k.Default, k.Synonym, s.Default)
		}
	}
}

func TestBadKeysAndValuesAreRefusedByNameWithTheRange(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"num.partitions", "0", "num.partitions=0: must be an integer of at least 1"},
		{"num.partitions", "many", "must be an integer of at least 1"},
		{"num.partition", "3", "did you mean num.partitions?"},
		{"log.segment.bytes", "1048575", "must be an integer of at least 1048576"},
		{"auto.create.topics.enable", "yes", "must be true or false"},
		{"log.cleaner.min.cleanable.ratio", "1.5", "must be a number from 0 to 1"},
		{"log.message.timestamp.type", "Create", "must be one of CreateTime, LogAppendTime"},
		{"log.cleanup.policy", "compact,drop", "must be a list of compact, delete"},
		{"log.dirs", "/a,/b", "one data directory"},
		{"node.id", "2147483648", "must be an integer of at least 0"},
	} {
		_, _, err := New(map[string]string{c.key: c.value})
		var ie *InvalidError
		if !errors.As(err, &ie) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), c.key) {
			t.Errorf("%s=%s: error %v, want one of %s with %q", c.key, c.value, err, c.key, c.want)
		}
	}
}

func TestKafkaOnlyKeysAreAcceptedAndSaid(t *testing.T) {
	_, inert, err := New(map[string]string{"num.io.threads": "8", "process.roles": "broker", "node.id": "3"})
	if err != nil || len(inert) != 2 {
		t.Fatalf("inert = %v, err = %v", inert, err)
	}
}

func TestTopicTakesTheFirstOfTopicDynamicStaticDefault(t *testing.T) {
	b := mustNew(t, map[string]string{"log.retention.hours": "2", "log.segment.bytes": "2097152"})
	d := Dynamic{Cluster: map[string]string{"log.segment.bytes": "3145728"}, Broker: map[string]string{"message.max.bytes": "500"}}
	got := b.Topic(d, map[string]string{"max.message.bytes": "700"})
	if got.RetentionMs != 7200000 || got.SegmentBytes != 3145728 || got.MaxMessageBytes != 700 || got.SegmentMs != 604800000 {
		t.Fatalf("%+v", got)
	}
	if !got.RemoteStorageEnable || got.LocalRetentionMs != -2 || got.RestoreWindowMs != 604800000 {
		t.Fatalf("%+v", got)
	}
	b = mustNew(t, map[string]string{"log.retention.hours": "2", "log.retention.minutes": "5", "log.retention.ms": "-1"})
	if got := b.Topic(Dynamic{}, nil).RetentionMs; got != -1 {
		t.Fatalf("retention.ms = %d, want -1", got)
	}
}

func TestLocalRetentionAboveTotalIsInvalid(t *testing.T) {
	b := mustNew(t, nil)
	for _, c := range []struct {
		set map[string]string
		ok  bool
	}{
		{map[string]string{"retention.bytes": "100", "local.retention.bytes": "101"}, false},
		{map[string]string{"retention.bytes": "100", "local.retention.bytes": "-1"}, false},
		{map[string]string{"retention.bytes": "100", "local.retention.bytes": "-2"}, true},
		{map[string]string{"retention.bytes": "100", "local.retention.bytes": "100"}, true},
		{map[string]string{"local.retention.bytes": "100"}, true},
		{map[string]string{"retention.ms": "5", "local.retention.ms": "6"}, false},
		{map[string]string{"retention.ms": "-1", "local.retention.ms": "-1"}, true},
		{map[string]string{"retention.mss": "5"}, false},
		{map[string]string{"cleanup.policy": ""}, false},
		{map[string]string{"leader.replication.throttled.replicas": "0:101,1:102", "follower.replication.throttled.replicas": "*"}, true},
		{map[string]string{"leader.replication.throttled.replicas": ""}, true},
		{map[string]string{"leader.replication.throttled.replicas": "0:101,*"}, false},
		{map[string]string{"follower.replication.throttled.replicas": "0-101"}, false},
		{map[string]string{"follower.replication.throttled.replicas": "0:-1"}, false},
	} {
		if err := b.CheckTopic(Dynamic{}, c.set); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.set, err)
		}
	}
}

func TestDescribeTellsSourcesAndSynonyms(t *testing.T) {
	b := mustNew(t, map[string]string{"log.segment.bytes": "2097152"})
	for _, e := range b.DescribeTopic(Dynamic{}, map[string]string{"segment.bytes": "4194304"}) {
		switch e.Key.Name {
		case "segment.bytes":
			if *e.Value != "4194304" || e.Source != SourceDynamicTopic || len(e.Synonyms) != 3 {
				t.Errorf("segment.bytes: %s %d %v", *e.Value, e.Source, e.Synonyms)
			}
		case "retention.ms":
			if *e.Value != "604800000" || e.Source != SourceDefault {
				t.Errorf("retention.ms: %s %d", *e.Value, e.Source)
			}
		}
	}
	found := false
	for _, e := range b.DescribeBroker(Dynamic{}, false) {
		if e.Key.Name == "node.id" {
			found = e.ReadOnly
		}
	}
	if !found {
		t.Error("node.id is not described as read-only")
	}
}

func TestPropertiesSyntax(t *testing.T) {
	got, err := ReadProperties("f", strings.NewReader("# c\n! c\na=1\nb : two words \nc\\=d 3\nlist=x,\\\n   y\nu=\\u0041\\tz\n\n  e=\n"))
	want := map[string]string{"a": "1", "b": "two words", "c=d": "3", "list": "x,y", "u": "A\tz", "e": ""}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%q, %v", got, err)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s = %q, want %q", k, got[k], v)
		}
	}
	for text, want := range map[string]string{"a=1\n\na=2\n": "f:3: a is set already in line 1", "=3\n": "f:1: no key", "a=\\u12\n": "f:1: short", "a=b\\\n": "continued"} {
		if _, err := ReadProperties("f", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestListeners(t *testing.T) {
	bind, adv, err := mustNew(t, map[string]string{"listeners": "PLAINTEXT://[::1]:9092,IN://:9093", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:PLAINTEXT"}).Listeners()
	if err != nil || len(bind) != 2 || bind[0].Host != "::1" || bind[1].Name != "IN" || bind[1].Port != 9093 || len(adv) != 2 {
		t.Fatalf("%v %v %v", bind, adv, err)
	}
	for _, bad := range []string{"9092", "PLAINTEXT://h", "PLAINTEXT://h:99999", "SSL://h:1", "SASL_SSL://h:1"} {
		if _, _, err := mustNew(t, map[string]string{"listeners": bad}).Listeners(); err == nil {
			t.Errorf("%s accepted", bad)
		}
	}
	if _, _, err := mustNew(t, map[string]string{"advertised.listeners": "OTHER://h:1", "listener.security.protocol.map": "OTHER:PLAINTEXT"}).Listeners(); err == nil {
		t.Error("advertised listener without a listener accepted")
	}
}

func FuzzReadProperties(f *testing.F) {
	f.Add("a=1\nb:2\\\n3\n\\u0041=x")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ReadProperties("f", strings.NewReader(s))
		if err == nil {
			for k := range m {
				if k == "" {
					t.Fatal("empty key")
				}
			}
		}
	})
}

func TestKafkaBrokerKeysAreKnownOrInertOrReallyAbsent(t *testing.T) {
	// A Kafka server.properties as its own distribution ships it must be accepted.
	text, err := os.ReadFile(filepath.Join("testdata", "server.properties"))
	if err != nil {
		t.Fatal(err)
	}
	props, err := ReadProperties("server.properties", strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := New(props)
	if err != nil {
		t.Fatal(err)
	}
	bind, adv, err := b.Listeners()
	if err != nil || len(bind) != 1 || len(adv) != 1 || bind[0].Port != 9092 {
		t.Fatalf("bind %v, advertised %v, err %v: the controller's listener stays closed", bind, adv, err)
	}
}
