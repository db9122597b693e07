package proc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports that FreeAddr gives out are below those that systems choose for outgoing connections, so that a broker which starts again
// finds its port free: a client's connection cannot have taken it meanwhile.
const firstPort, lastPort = 11000, 32000

var given struct {
	sync.Mutex
	ports map[int]bool
}

// FreeAddr returns a loopback address whose port is free, and which this process has not got from it before.
func FreeAddr() (string, error) { return FreeAddrOn("127.0.0.1") }

// FreeAddrOn returns an address of a host with a port that this process has not got before. That it is free is seen only on this host.
func FreeAddrOn(host string) (string, error) {
	given.Lock()
	defer given.Unlock()
	if given.ports == nil {
		given.ports = map[int]bool{}
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if given.ports[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		given.ports[port] = true
		return net.JoinHostPort(host, strconv.Itoa(port)), nil
	}
	return "", errors.New("no free port found")
}
