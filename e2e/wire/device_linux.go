package wire

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

const mtuBytes = 1500

// device makes a TUN interface in the calling thread's namespace, with its address in a network of 24 bits.
func device(name string, at netip.Addr) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err == nil {
		err = address(name, at)
	}
	if err == nil {
		err = up(name)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("interface %s, %s: %w", name, at, err)
	}
	return os.NewFile(uintptr(fd), "tun "+name), nil // only now: the poller wants to know what it is
}

func address(name string, at netip.Addr) error {
	ip := at.As4()
	if err := set(name, unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(ip[:]) }); err != nil {
		return err
	}
	return set(name, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) })
}

func up(name string) error {
	return set(name, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error {
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return nil
	})
}

// set does one request about an interface of the calling thread's namespace.
func set(name string, what uint, fill func(*unix.Ifreq) error) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := fill(r); err != nil {
		return err
	}
	return unix.IoctlIfreq(s, what, r)
}
