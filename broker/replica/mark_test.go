package replica

import (
	"os"
	"path"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
)

func TestCleanMarkTellsTheEpochThatEnded(t *testing.T) {
	fs, dir := vfs.OS{}, t.TempDir()
	if got, line, err := CleanEpoch(fs, dir); got != 0 || line != nil || err != nil {
		t.Fatalf("no marker: %d, %v", got, err)
	}
	for text, want := range map[string]int64{
		string(encodeMark(17, nil)):       17,
		string(encodeMark(0, nil)):        0, // ended in order, but was never registered
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
		if got, _, err := CleanEpoch(fs, dir); got != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
}

func FuzzCleanMark(f *testing.F) {
	f.Add(encodeMark(5, []string{"a", "b"}))
	f.Add([]byte(`{"version":0,"brokerEpoch":-1}`))
	f.Add([]byte(`{"brokerEpoch":1e400}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, line := decodeMark(b)
		if again, same := decodeMark(encodeMark(n, line)); n < 0 || again != n || len(same) != len(line) {
			t.Fatalf("%q reads as %d, %q", b, n, line)
		}
	})
}
