package cluster

import (
	"os"
	"testing"
)

// A disk that is gone takes the log and the etcd member with it.
func TestBrokerReturnsWithAnEmptyDisk(t *testing.T) {
	w := together(t)
	l := w.loaded("empty")
	w.Broker(1).Kill()
	if err := os.RemoveAll(w.Broker(1).Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(w.Broker(1).Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l.more(200)
	w.startOne(1)
	w.inSync("empty")
	w.wholeAfter(l)
}

// An older copy of a disk ends with a clean-shutdown marker, and lacks what was acknowledged since; an etcd member on it lacks what it has told
// the others.
func TestBrokerReturnsWithAnOlderDisk(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, ...string) *world{"etcd apart": apart, "etcd member on it": together} {
		t.Run(name, func(t *testing.T) {
			w := begin(t)
			l := w.loaded("older")
			v := w.Broker(1)
			w.stopOne(1)
			old := v.Dir + ".old"
			if err := os.CopyFS(old, os.DirFS(v.Dir)); err != nil {
				t.Fatal(err)
			}
			w.startOne(1)
			w.inSync("older")
			l.more(300)
			v.Kill()
			if err := os.RemoveAll(v.Dir); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(old, v.Dir); err != nil {
				t.Fatal(err)
			}
			w.startOne(1)
			w.inSync("older")
			w.wholeAfter(l)
		})
	}
}
