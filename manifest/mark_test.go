package manifest

import (
	"bytes"
	"testing"
)

func TestMarkAndAttachedDocuments(t *testing.T) {
	m := Mark{"c1", 7, 1234, 5678, 1300}
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"format":1,"kind":"mark","cluster_id":"c1","broker":7,"time_ms":1234,"restore_window_ms":5678,"written_ms":1300,"crc32c":"`
	if !bytes.HasPrefix(b, []byte(want)) {
		t.Errorf("mark %s", b)
	}
	if got, err := DecodeMark(b); err != nil || got != m {
		t.Errorf("mark %+v, %v", got, err)
	}
	if n, ok := ParseMarkKey("c1", m.Key()); !ok || n != 7 || m.Key() != "c/c1/mark/0000000007" {
		t.Errorf("mark key %s: %d, %t", m.Key(), n, ok)
	}
	a := Attached{"c1", "abc", "s3://b/p?region=x"}
	if b, err = a.Encode(); err != nil {
		t.Fatal(err)
	}
	const wantAttached = `{"format":1,"kind":"attached","cluster_id":"c1","archive_id":"abc","url":"s3://b/p?region=x","crc32c":"`
	if !bytes.HasPrefix(b, []byte(wantAttached)) {
		t.Errorf("attached %s", b)
	}
	if got, err := DecodeAttached(b); err != nil || got != a {
		t.Errorf("attached %+v, %v", got, err)
	}
	if id, ok := ParseAttachedKey("c1", a.Key()); !ok || id != "abc" || a.Key() != "c/c1/attached/abc" {
		t.Errorf("attached key %s: %s, %t", a.Key(), id, ok)
	}
	if _, err := DecodeMark(b); err == nil {
		t.Error("an attached archive is a mark")
	}
	for _, bad := range []interface{ Encode() ([]byte, error) }{Mark{}, Mark{"c", -1, 0, 0, 0}, Mark{"c", 1, -1, 0, 0}, Attached{}, Attached{"c", "a/b", "u"}, Attached{"c", "a", ""}} {
		if _, err := bad.Encode(); err == nil {
			t.Errorf("%+v is encoded", bad)
		}
	}
}

func FuzzMark(f *testing.F) {
	b, err := Mark{"c1", 7, 1234, 5678, 1300}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMark(b)
		if err != nil {
			return
		}
		if again, err := m.Encode(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%s became %s, %v", b, again, err)
		}
	})
}

func FuzzAttached(f *testing.F) {
	b, err := Attached{"c1", "abc", "file:///x"}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeAttached(b)
		if err != nil {
			return
		}
		if again, err := a.Encode(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%s became %s, %v", b, again, err)
		}
	})
}
