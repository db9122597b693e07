package peer

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A line that loses everything is given up by the kernel: there is nothing else that a follower which waits for an answer could notice.
func TestConnectionEndsAfterSilence(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var o Options
	o.fill()
	nc, err := o.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	read := func(fd uintptr) {
		for name, option := range map[string][2]int{
			"user timeout, ms": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}, "probing": {unix.SOL_SOCKET, unix.SO_KEEPALIVE},
			"idle before a probe, s": {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, "between probes, s": {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
			"probes": {unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
		} {
			if got[name], err = unix.GetsockoptInt(int(fd), option[0], option[1]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := raw.Control(read); err != nil {
		t.Fatal(err)
	}
	if got["user timeout, ms"] != int((6*time.Second).Milliseconds()) || got["probing"] != 1 {
		t.Errorf("%v, want a user timeout of 6 s, and probes", got)
	}
	if last := got["idle before a probe, s"] + got["between probes, s"]*got["probes"]; last > 10 {
		t.Errorf("%v: who waits for an answer learns only after %d s that nobody is there", got, last)
	}
}
