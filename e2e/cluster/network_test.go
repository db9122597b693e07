package cluster

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/wire"
)

// The places of the network: a broker by its id, the etcd, or all clients.
const (
	clients = wire.Own
	etcd    = 100
)

// oneWay cuts the ways from one place to others.
func (w *world) oneWay(from int, to ...int) {
	for _, p := range to {
		w.net.Cut(from, p)
	}
}

// bothWays cuts one place off from others.
func (w *world) bothWays(a int, others ...int) {
	w.oneWay(a, others...)
	for _, o := range others {
		w.oneWay(o, a)
	}
}

// The kinds of a network: relays before the listeners, which hold bytes back, work everywhere; between namespaces packets are lost.
const (
	relayed    = "relay"
	namespaced = "namespace"
)

// noNamespaces says why the tests cannot have network namespaces; nil: they can.
var noNamespaces error

// networks are the kinds that the tests of cuts run on: the one that VARVE_NET names, or else namespaces where they can be had and relays
// where not, and in CI, where nothing is left out, both.
func networks(t *testing.T) []string {
	t.Helper()
	var kinds []string
	switch forced := os.Getenv("VARVE_NET"); {
	case forced != "" && forced != relayed && forced != namespaced:
		t.Fatalf("VARVE_NET=%s: want %s or %s", forced, relayed, namespaced)
	case forced == namespaced && noNamespaces != nil:
		t.Fatalf("VARVE_NET=%s: %v", forced, noNamespaces)
	case forced != "":
		kinds = []string{forced}
	case noNamespaces != nil:
		kinds = []string{relayed}
	case os.Getenv("CI") != "":
		kinds = []string{relayed, namespaced}
	default:
		kinds = []string{namespaced}
	}
	why := ""
	if noNamespaces != nil {
		why = fmt.Sprintf("; no namespaces: %v", noNamespaces)
	}
	t.Logf("network: %v%s", kinds, why)
	return kinds
}

// begin starts the brokers of a test.
type begin func(t *testing.T, set ...string) *world

// onNetworks runs a test of brokers with an etcd apart on each kind of network.
func onNetworks(t *testing.T, test func(t *testing.T, apart begin)) {
	for _, kind := range networks(t) {
		t.Run(kind, func(t *testing.T) {
			test(t, func(t *testing.T, set ...string) *world { return apartOn(t, kind, set...) })
		})
	}
}

// healed ends all cuts and waits until the topics are whole: soon, whatever connections have come to think of the other end meanwhile.
func (w *world) healed(topics ...string) {
	w.t.Helper()
	w.net.Heal()
	began := time.Now()
	for _, topic := range topics {
		w.inSync(topic)
	}
	w.t.Logf("in sync %s after the network was whole", time.Since(began).Round(10*time.Millisecond))
}
