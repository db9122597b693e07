package open_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/open"
)

func TestURLsAreRefusedByName(t *testing.T) {
	chain(t, keys)
	for _, c := range []struct{ url, says string }{
		{"s3://buc?endpont=http://x", `"endpont"`},
		{"s3://buc?secret_key=hunter2", `"secret_key"`},
		{"s3://buc?region=a&region=b", `"region"`},
		{"s3://buc?use_path_style=perhaps", "use_path_style"},
		{"s3://buc?client=boto", `"boto"`},
		{"s3://buc?endpoint=ftp://x", "endpoint"},
		{"s3://buc?endpoint=http://user:hunter2@x", "endpoint"},
		{"s3://buc?ca_file=/none/such.pem", "ca_file"},
		{"s3:///prefix", "bucket name"},
		{"s3://b?client=minio", "3 to 63"},
		{"s3://buc/a/../c", "prefix"},
		{"s3://user:hunter2@b", "AWS chain"},
		{"s3://buc?%zz=hunter2", "parameters"},
		{"file://relative/path", "three slashes"},
		{"file:relative", "want"},
		{"file:///d?sync=false", `"sync"`},
		{"mem://", "mem://name"},
		{"mem://a/b", "mem://name"},
		{"gs://b", `"gs"`},
		{"/just/a/path", "scheme"},
		{"s3://b\x7fhunter2", "parsed"},
		{"", "scheme"},
	} {
		b, err := open.Open(t.Context(), c.url, open.Options{})
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %s (bucket %v)", c.url, err, c.says, b)
		}
	}
}

func TestURLsOpen(t *testing.T) {
	chain(t, keys)
	dir := t.TempDir()
	for _, url := range []string{"file://" + dir, "file://localhost" + dir, "mem://open-test"} {
		b, err := open.Open(t.Context(), url, open.Options{})
		if err != nil {
			t.Fatal(url, err)
		}
		if f, err := objstore.Probe(t.Context(), b); err != nil {
			t.Errorf("%s: %v, %+v", url, err, f)
		}
		if _, err := b.Put(t.Context(), "kept", text("x"), objstore.Cond{}); err != nil {
			t.Fatal(err)
		}
		again, err := open.Open(t.Context(), url, open.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.Head(t.Context(), "kept"); err != nil {
			t.Errorf("%s opened again: %v", url, err)
		}
	}
}

func TestConfigurationIsPrintedWithoutCredentials(t *testing.T) {
	chain(t, keys)
	b := plain(t, s3URL("data", "http://127.0.0.1:1", "aws"))
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, b); strings.Contains(s, "wJalr") || strings.Contains(s, "AKIA") {
			t.Errorf("%s prints %s", format, s)
		}
	}
}
