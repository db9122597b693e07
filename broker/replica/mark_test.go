package replica

import (
	"os"
	"path"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
)

func TestCleanMarkTellsTheEpochThatEnded(t *testing.T) {
	fs, dir := vfs.OS{}, t.TempDir()
	if got, err := CleanEpoch(fs, dir); got != 0 || err != nil {
		t.Fatalf("no marker: %d, %v", got, err)
	}
	for text, want := range map[string]int64{
		string(encodeMark(17)):            17,
		string(encodeMark(0)):             0, // ended in order, but was never registered
		`{"version":0,"brokerEpoch":-1}`:  0,
		`{"version":0}`:                   0,
		"":                                0,
		"garbage":                         0,
		`{"version":0,"brokerEpoch":"x"}`: 0,
	} {
		f, err := fs.OpenFile(path.Join(dir, cleanFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if got, err := CleanEpoch(fs, dir); got != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
}

func FuzzCleanMark(f *testing.F) {
	f.Add(encodeMark(5))
	f.Add([]byte(`{"version":0,"brokerEpoch":-1}`))
	f.Add([]byte(`{"brokerEpoch":1e400}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := decodeMark(b); n < 0 || n > 0 && decodeMark(encodeMark(n)) != n {
			t.Fatalf("%q reads as %d", b, n)
		}
	})
}
