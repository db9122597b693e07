//go:build !linux

package wire

import (
	"errors"
	"net/netip"
	"os/exec"
	"time"
)

// errLinux says why none of it works here.
var errLinux = errors.New("network namespaces are Linux's")

// Own is the id of the host that is the test's own process.
const Own = 0

// Net cannot be made here.
type Net struct{}

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

// Cut does nothing here.
func (*Net) Cut(from, to int) {}

// Impair does nothing here.
func (*Net) Impair(int, float64, time.Duration) {}

// Heal does nothing here.
func (*Net) Heal() {}

// Close does nothing here.
func (*Net) Close() error { return nil }

// Start fails here.
func (*Host) Start(*exec.Cmd) error { return errLinux }
