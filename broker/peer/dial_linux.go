package peer

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout sets how long sent bytes may stay without acknowledgement.
func setUserTimeout(fd int, d time.Duration) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds())))
}
