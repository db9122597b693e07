package cluster

import (
	"testing"

	"github.com/varvelog/varve/e2e/wire"
)

// newWired lays three brokers out, each in a namespace of its own.
func newWired(t *testing.T, set ...string) (*world, *wire.Net) {
	t.Helper()
	n, err := wire.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	var at []*wire.Host
	var ips []string
	for id := 1; id <= 3; id++ {
		h, err := n.Add(id)
		if err != nil {
			t.Fatal(err)
		}
		at, ips = append(at, h), append(ips, h.IP.String())
	}
	w := newWorld(t, ips, set...)
	w.net = n.Lines
	for i, v := range w.Brokers {
		v.Spawn = at[i].Start
	}
	return w, n
}

// apartOnWire is apartOn namespaces; the etcd has one of its own too.
func apartOnWire(t *testing.T, set ...string) *world {
	t.Helper()
	w, n := newWired(t, set...)
	h, err := n.Add(etcd)
	if err != nil {
		t.Fatal(err)
	}
	at := w.runEtcd(h.IP.String(), h.Start)
	for _, v := range w.Brokers {
		w.configure(v, "etcd.initial.cluster=", "etcd.endpoints="+at)
	}
	w.start()
	return w
}

// togetherOnWire starts three brokers with an etcd member in each, in a namespace of its own.
func togetherOnWire(t *testing.T, set ...string) *world {
	t.Helper()
	w, _ := newWired(t, set...)
	w.start()
	return w
}
