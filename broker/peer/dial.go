package peer

import (
	"net"
	"syscall"
	"time"
)

// Dialer makes connections that end when the other end has been silent for about silenceMax. A network that loses all packets refuses nothing: what is under way
// is sent again for a quarter of an hour, and each time it waits twice as long, so that a request would meet the end of a cut of 20 s only
// 20 s later; and who waits for an answer, and sends nothing himself, would not notice at all. So that the first is bounded by the user
// timeout and the second by probes.
func Dialer(silenceMax time.Duration) *net.Dialer {
	const probes = 3
	each := max(silenceMax/(probes+1), time.Second)
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: each, Interval: each, Count: probes},
		Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			if cerr := c.Control(func(fd uintptr) { err = setUserTimeout(int(fd), silenceMax) }); cerr != nil {
				return cerr
			}
			return err
		},
	}
}
