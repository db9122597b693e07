//go:build unix

package recovery

import (
	"os"
	"syscall"
)

// flock takes an exclusive lock that ends with the process.
func flock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
