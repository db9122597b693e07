//go:build !linux

package wire

import (
	"errors"
	"net/netip"
	"os/exec"
)

// errLinux says why none of it works here.
var errLinux = errors.New("network namespaces are Linux's")

// Net cannot be made here.
type Net struct{ *Lines }

// Host cannot be made here.
type Host struct{ IP netip.Addr }

// Enter fails here.
func Enter(...string) (int, error) { return 0, errLinux }

// Entered is false here.
func Entered() bool { return false }

// Prepare fails here.
func Prepare() error { return errLinux }

// New fails here.
func New() (*Net, error) { return nil, errLinux }

// Add fails here.
func (*Net) Add(int) (*Host, error) { return nil, errLinux }

// Close does nothing here.
func (*Net) Close() error { return nil }

// Start fails here.
func (*Host) Start(*exec.Cmd) error { return errLinux }
