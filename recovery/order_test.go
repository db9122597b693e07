package recovery

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/varvelog/varve/manifest"
)

// futureDocument is a document of the next format, with a checksum that holds.
func futureDocument(b []byte) []byte {
	plain := b[:bytes.LastIndex(b, []byte(`,"crc32c"`))]
	plain = bytes.Replace(plain, []byte(`"format":1`), []byte(`"format":2`), 1)
	return fmt.Appendf(plain, ",\"crc32c\":\"%08x\"}\n", crc32.Checksum(plain, castagnoli))
}

func TestParseOffsets(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"17", "17"},
		{"0=17", "0=17"},
		{"orders:2=5,orders:1=0", "orders:2=5 orders:1=0"},
		{"a:0=1, b:0=2", "a:0=1 b:0=2"},
		{"", ""}, {"x", ""}, {"-1", ""}, {"0=-1", ""}, {"1,2", ""}, {"0=1,0=2", ""}, {"0=1,7", ""}, {"a/b:0=1", ""}, {"orders:=1", ""},
		{"orders:0", ""}, {"9223372036854775808", ""}, {"2147483648=0", ""}, {"orders=5", ""},
	} {
		list, err := ParseOffsets(c.text)
		var got []string
		for _, p := range list {
			got = append(got, p.String())
		}
		if s := strings.Join(got, " "); (err == nil) != (c.want != "") || err == nil && s != c.want {
			t.Errorf("%q: %q, %v, want %q", c.text, s, err, c.want)
		}
		if err != nil && !errors.Is(err, ErrRequest) {
			t.Errorf("%q: %v is no ErrRequest", c.text, err)
		}
	}
}

func testOrder() Order {
	return Order{Format: 1, URL: "s3://b/p", Archive: "abc", Source: "orders", ID: manifest.TopicID{1}, Configs: map[string]string{"retention.ms": "1"},
		Partitions: []OrderPartition{{0, 10, 3}, {5, 5, 0}}}
}

func TestTheEncodingOfAnOrderIsKept(t *testing.T) {
	b, err := testOrder().Encode()
	if err != nil {
		t.Fatal(err)
	}
	// Its bytes are in the ids of the topics that it makes: another encoding would not know them again.
	const want = `{"format":1,"repo":"s3://b/p","archive":"abc","source":"orders","id":"AQAAAAAAAAAAAAAAAAAAAA","configs":{"retention.ms":"1"},"partitions":[{"start":0,"end":10,"missing":3},{"start":5,"end":5}]}`
	if string(b) != want {
		t.Errorf("encoding %s", b)
	}
	if id := topicID(b, "orders.restored", 0).String(); id != "nYBRKzHSSd9u_MXbpou0wg" {
		t.Errorf("topic id %s", id)
	}
}

func TestOrdersThatMakeNoSenseAreRefused(t *testing.T) {
	good, err := testOrder().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new string }{
		{`"format":1`, `"format":2`}, {`"repo":"s3://b/p"`, `"repo":""`}, {`"archive":"abc"`, `"archive":""`}, {`"orders"`, `"or/ders"`},
		{`AQAAAAAAAAAAAAAAAAAAAA`, `AAAAAAAAAAAAAAAAAAAAAA`}, {`"end":10`, `"end":-1`}, {`"start":5`, `"start":6`}, {`"missing":3`, `"missing":11`},
		{`"partitions":[{"start":0,"end":10,"missing":3},{"start":5,"end":5}]`, `"partitions":[]`}, {`"configs"`, `"config"`}, {`}]}`, `}]}{}`},
	} {
		bad := strings.Replace(string(good), c.old, c.new, 1)
		if bad == string(good) {
			t.Fatalf("%s is not in it", c.old)
		}
		if _, err := DecodeOrder([]byte(bad)); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", c.new, err)
		}
	}
	if _, err := DecodeOrder(bytes.Repeat([]byte(" "), orderMax+1)); !errors.Is(err, ErrRequest) {
		t.Errorf("too large: %v", err)
	}
}

func FuzzDecodeOrder(f *testing.F) {
	b, err := testOrder().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := DecodeOrder(b)
		if err != nil {
			return
		}
		again, err := o.Encode()
		if err != nil {
			t.Fatal(err)
		}
		o2, err := DecodeOrder(again)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := o2.Encode(); err != nil || !bytes.Equal(again, twice) {
			t.Fatalf("%s became %s, %v", again, twice, err)
		}
	})
}
